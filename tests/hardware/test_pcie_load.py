"""The state of a slot's link, read from a small tree in the form of sysfs."""

from __future__ import annotations

import time
from pathlib import Path

from local_tp.facts import PcieReading
from local_tp.hardware.measuring.pcie_load import PcieWatch, read_link

SLOT = "0000:03:00.0"


def function(folder: Path, vendor: str, speed: str, width: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "current_link_speed").write_text(speed + "\n")
    (folder / "current_link_width").write_text(width + "\n")
    return folder


def placed(root: Path, folder: Path) -> None:
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices" / SLOT).symlink_to(folder)


def test_a_card_s_link(tmp_path: Path) -> None:
    root_port = function(tmp_path / "sys/devices/pci/0000:00:01.0", "0x8086", "8.0 GT/s PCIe", "4")
    placed(tmp_path, function(root_port / SLOT, "0x10de", "16.0 GT/s PCIe", "16"))
    assert read_link(SLOT, tmp_path) == PcieReading(4, 16)


def test_an_amd_card_s_link_is_that_of_its_own_switch(tmp_path: Path) -> None:
    root_port = function(tmp_path / "sys/devices/pci/0000:00:01.1", "0x1022", "32.0 GT/s", "16")
    upper = function(root_port / "0000:01:00.0", "0x1002", "8.0 GT/s PCIe", "4")
    lower = function(upper / "0000:02:00.0", "0x1002", "16.0 GT/s PCIe", "16")
    placed(tmp_path, function(lower / SLOT, "0x1002", "16.0 GT/s PCIe", "16"))
    assert read_link(SLOT, tmp_path) == PcieReading(3, 4)


def test_the_fastest_state_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/0000:03:00.0"
    placed(tmp_path, function(folder, "0x10de", "2.5 GT/s PCIe", "16"))
    watch = PcieWatch(SLOT, tmp_path)
    for speed in ("2.5 GT/s PCIe", "16.0 GT/s PCIe", "5.0 GT/s PCIe"):
        function(folder, "0x10de", speed, "16")
        watch.look()
    assert watch.fastest == PcieReading(4, 16)


def test_what_cannot_be_read_is_not_guessed(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/0000:03:00.0"
    placed(tmp_path, function(folder, "0x10de", "Unknown", "16"))
    assert read_link(SLOT, tmp_path) is None
    function(folder, "0x10de", "8.0 GT/s PCIe", "0")
    assert read_link(SLOT, tmp_path) is None
    (folder / "current_link_speed").unlink()
    watch = PcieWatch(SLOT, tmp_path)
    watch.look()
    assert watch.fastest is None


def test_it_looks_while_somebody_copies(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/0000:03:00.0"
    placed(tmp_path, function(folder, "0x10de", "2.5 GT/s PCIe", "8"))
    watch = PcieWatch(SLOT, tmp_path)
    deadline = time.monotonic() + 10
    with watch.meanwhile():
        function(folder, "0x10de", "16.0 GT/s PCIe", "8")
        while watch.fastest != PcieReading(4, 8) and time.monotonic() < deadline:
            time.sleep(0.01)
        function(folder, "0x10de", "2.5 GT/s PCIe", "8")
    assert watch.fastest == PcieReading(4, 8)


def test_an_intel_card_s_link_is_that_of_its_own_switch(tmp_path: Path) -> None:
    root_port = add_port(tmp_path)
    upper = function(root_port / "0000:01:00.0", "0x8086", "16.0 GT/s PCIe", "8")
    (upper / "device").write_text("0x4fa0\n")
    lower = function(upper / "0000:02:01.0", "0x8086", "2.5 GT/s PCIe", "1")
    (lower / "device").write_text("0x4fa4\n")
    card = function(lower / SLOT, "0x8086", "2.5 GT/s PCIe", "1")
    (card / "device").write_text("0x56a0\n")
    placed(tmp_path, card)
    assert read_link(SLOT, tmp_path) == PcieReading(4, 8)


def add_port(root: Path) -> Path:
    return function(root / "sys/devices/pci/0000:00:01.0", "0x8086", "32.0 GT/s PCIe", "16")
