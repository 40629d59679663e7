"""Intel's cards in `lspci`: the link of the switch that they carry, and not the one inside."""

from __future__ import annotations

import pytest
from pasted_text import read

from local_tp.core import Pcie
from local_tp.facts import PcieReading
from local_tp.hardware.diagnose import diagnose

ROOT = """\
00:01.0 PCI bridge: Intel Corporation Device a70d (rev 01) PCI Express Root Port
\tBus: primary=00, secondary=01, subordinate=03, sec-latency=0
\t\tLnkCap:\tPort #2, Speed 32GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x8
"""
SWITCH = """\
01:00.0 PCI bridge: Intel Corporation Device 4fa0 (rev 01)
\tBus: primary=01, secondary=02, subordinate=03, sec-latency=0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
02:01.0 PCI bridge: Intel Corporation Device 4fa4
\tBus: primary=02, secondary=03, subordinate=03, sec-latency=0
\t\tLnkCap:\tPort #0, Speed 2.5GT/s, Width x1, ASPM L0s L1
\t\tLnkSta:\tSpeed 2.5GT/s, Width x1
"""
CARD = """\
03:00.0 VGA compatible controller: Intel Corporation DG2 [Arc A770] (rev 08)
\tRegion 2: Memory at 4010000000 (64-bit, prefetchable) [size=16G]
\t\tLnkCap:\tPort #0, Speed 2.5GT/s, Width x1, ASPM L0s L1
\t\tLnkSta:\tSpeed 2.5GT/s, Width x1
"""
NVIDIA = """\
65:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x1 (downgraded)
"""


def test_the_upper_port_of_the_cards_switch_meets_the_slot() -> None:
    (card,) = read(ROOT + SWITCH + CARD).rig.devices
    assert card.pcie == Pcie(4, 8, 4, 16)
    assert card.facts.pcie_card == PcieReading(4, 16)
    assert card.facts.pcie_slot == PcieReading(5, 16)


@pytest.mark.parametrize("text", [CARD, ROOT.replace("secondary=01", "secondary=03") + CARD])
def test_without_the_switch_the_link_is_not_known(text: str) -> None:
    rig = read(text).rig
    (card,) = rig.devices
    assert card.pcie is None
    assert card.facts.pcie_card == PcieReading(4, 16)  # as sold
    assert diagnose(rig) == ()


def test_a_small_window_of_a_card_with_much_memory_is_resizable_bar_off() -> None:
    rig = read(ROOT + SWITCH + CARD.replace("size=16G", "size=256M")).rig
    assert rig.devices[0].facts.bar1_total == 256 << 20
    assert [f.id for f in diagnose(rig)] == ["pcie-narrow", "resizable-bar-off"]
    assert read(ROOT + SWITCH + CARD).rig.devices[0].facts.bar1_total == 16 << 30


def test_one_lane_of_another_maker_is_believed() -> None:
    machine = read(NVIDIA + CARD).rig
    assert [device.pcie for device in machine.devices] == [None, Pcie(1, 1, 4, 16)]
    assert {f.id for f in diagnose(machine)} == {"pcie-x1", "mixed-vendors"}
