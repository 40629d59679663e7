"""A low PCIe generation is put down to idleness only where the card was not busy."""

from __future__ import annotations

import pytest
from diagnosis_rigs import card, rig

from local_tp.core import Pcie
from local_tp.hardware.describe import describe
from local_tp.hardware.report.facts import device_facts

IDLE = "(idle cards slow down)"


@pytest.mark.parametrize(
    ("utilization", "state", "said"),
    [(0, "P8", True), (None, None, True), (60, "P8", True), (100, "P2", False), (97, None, False)],
)
def test_only_an_idle_card_slows_down(
    utilization: int | None, state: str | None, said: bool
) -> None:
    device = card(pcie=Pcie(1, 16, 4, 16), utilization=utilization, performance_state=state)
    assert (IDLE in describe(rig(device))) is said
    assert any(IDLE in fact.value for fact in device_facts(device)) is said
