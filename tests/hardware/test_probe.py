"""The whole look at a machine: what it says of cards that no driver answers for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_bus import add_function

from local_tp import settings
from local_tp.facts import DriverFault
from local_tp.hardware.probe import probe


@pytest.mark.parametrize(
    ("vendor", "device", "driver", "fault"),
    [
        ("0x10de", "0x2204", "", "not-running"),
        ("0x10de", "0x2204", "nouveau", "not-running"),
        ("0x10de", "0x2204", "vfio-pci", None),
        ("0x1002", "0x744c", "", "amdgpu-missing"),
        ("0x1002", "0x744c", "vfio-pci", None),
        ("0x1002", "0x515e", "radeon", None),  # a server's display chip, or a card too old
        ("0x1002", "0x164e", "", None),  # a processor's own graphics
        ("0x8086", "0x56a0", "", None),
    ],
)
def test_cards_without_their_driver_are_a_fault(
    tmp_path: Path, vendor: str, device: str, driver: str, fault: DriverFault | None
) -> None:
    add_function(tmp_path, "0000:00:01.0/0000:01:00.0", vendor, device, driver)
    assert probe(tmp_path).software.driver_fault == fault


def test_a_user_without_a_home_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(settings, "models", homeless)
    rig = probe(tmp_path)
    assert rig.host.disk_free is None
    assert "free disk space: Could not determine home directory." in rig.unknown


def test_a_machine_without_cards_has_no_fault(tmp_path: Path) -> None:
    assert probe(tmp_path).software.driver_fault is None
