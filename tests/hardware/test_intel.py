"""Intel graphics as the kernel's files show them, and functions that no driver of ours holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_bus import add_bridge, add_function

from local_tp.core import Pcie
from local_tp.facts import PcieReading
from local_tp.hardware.live.intel import read_intel
from local_tp.hardware.probe import probe

MIB = 1024**2
GIB = 1024**3
PORT = "0000:00:1c.0"
CARD = f"{PORT}/0000:01:00.0/0000:02:01.0/0000:03:00.0"


def add_arc(root: Path, device: str = "0x56a0", window: int = 256 * MIB, **files: str) -> None:
    """An Arc behind its own switch; the card's end of it always reads Gen1 x1."""
    add_bridge(root, PORT, "0x8086", "0x7ab8", "16.0", "4")
    add_bridge(root, f"{PORT}/0000:01:00.0", "0x8086", "0x4fa0", "16.0", "16", now="4")
    add_bridge(root, f"{PORT}/0000:01:00.0/0000:02:01.0", "0x8086", "0x4fa4", "2.5", "1")
    start = 0x4000000000
    resource = f"0x0 0x0 0x0\n0x0 0x0 0x0\n{start:#x} {start + window - 1:#x} 0x14220c"
    slow = {"current_link_speed": "2.5 GT/s PCIe", "current_link_width": "1"}
    slow |= {"max_link_speed": "2.5 GT/s PCIe", "max_link_width": "1", "resource": resource}
    add_function(root, CARD, "0x8086", device, "i915", **(slow | files))


def test_an_arc_shows_the_link_to_its_slot(tmp_path: Path) -> None:
    add_arc(
        tmp_path,
        drm__card1__lmem_total_bytes=str(16 * GIB),
        drm__card1__gt_act_freq_mhz="600",
        drm__card1__gt_RP0_freq_mhz="2400",
    )
    found = read_intel(tmp_path)
    (card,) = found.devices
    assert (card.id, card.kind, card.name, card.total) == (
        *("0000:03:00.0", "xpu"),
        *("Intel Arc A770", 16 * GIB),
    )
    assert card.pcie == Pcie(4, 4, 4, 4)
    assert card.facts.pcie_card == PcieReading(4, 16)
    assert card.facts.pcie_slot == PcieReading(4, 4)
    assert (card.facts.clock, card.facts.clock_max) == (600, 2400)
    assert (card.facts.integrated, card.facts.architecture) == (False, "alchemist")
    assert card.facts.bar1_total == 256 * MIB
    assert (card.facts.driver_in_use, card.facts.link_errors) == ("i915", None)
    assert found.unknown == (
        "0000:03:00.0: the driver does not tell how much of its memory is in use",
    )


def test_an_arc_whose_switch_is_not_seen_tells_nothing_of_its_slot(tmp_path: Path) -> None:
    slow = {"current_link_speed": "2.5 GT/s PCIe", "current_link_width": "1"}
    slow |= {"max_link_speed": "2.5 GT/s PCIe", "max_link_width": "1"}
    add_function(tmp_path, "0000:00:05.0", "0x8086", "0xe20b", "xe", **slow)
    (card,) = read_intel(tmp_path).devices
    assert (card.name, card.pcie, card.facts.pcie_card) == ("Intel Arc B580", None, None)


@pytest.mark.parametrize(
    ("device", "window", "total"),
    [("0xe20b", 256 * MIB, 12 * GIB), ("0x56a0", 16 * GIB, 16 * GIB), ("0x56a0", 256 * MIB, 0)],
)
def test_memory_by_model_or_by_a_whole_window(
    tmp_path: Path, device: str, window: int, total: int
) -> None:
    add_arc(tmp_path, device, window)
    found = read_intel(tmp_path)
    assert found.devices[0].total == total
    assert ("does not tell its memory" in found.unknown[0]) == (total == 0)


def test_a_processors_own_graphics(tmp_path: Path) -> None:
    add_function(tmp_path, "0000:00:02.0", "0x8086", "0xa780", "i915")
    found = read_intel(tmp_path)
    (card,) = found.devices
    assert (card.facts.integrated, card.total, card.pcie) == (True, 0, None)
    assert card.name == "Intel graphics a780"
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("vendor", "driver", "line"),
    [
        ("0x10de", "nouveau", "NVIDIA graphics held by nouveau: install NVIDIA's driver to use it"),
        ("0x10de", "", "NVIDIA graphics without a driver: install NVIDIA's driver to use it"),
        ("0x1002", "vfio-pci", "handed to virtual machines (vfio-pci): left out"),
        ("0x1b36", "qxl", "a virtual display adapter (QXL): no card to compute on"),
        ("0x1a03", "ast", "the display chip of the server's remote console: no card to compute on"),
    ],
)
def test_what_is_no_device_is_said(tmp_path: Path, vendor: str, driver: str, line: str) -> None:
    add_function(tmp_path, "0000:00:01.0/0000:01:00.0", vendor, "0x2204", driver)
    rig = probe(tmp_path)
    assert [device.id for device in rig.devices] == ["cpu"]
    assert f"0000:01:00.0: {line}" in rig.unknown


def test_a_cable_is_told_from_a_slot(tmp_path: Path) -> None:
    add_arc(tmp_path)
    assert read_intel(tmp_path).devices[0].facts.external is None
    (tmp_path / "sys/devices/pci0000:00" / PORT / "removable").write_text("fixed\n")
    assert read_intel(tmp_path).devices[0].facts.external is None
    upper = tmp_path / "sys/devices/pci0000:00" / PORT / "0000:01:00.0"
    (upper / "removable").write_text("removable\n")
    assert read_intel(tmp_path).devices[0].facts.external is True
