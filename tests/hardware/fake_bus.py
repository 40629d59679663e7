"""A machine's `/sys`, written to a folder: PCI functions below bridges, each with its files."""

from __future__ import annotations

from pathlib import Path


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def add_function(
    root: Path, place: str, vendor: str, device: str, driver: str = "", **files: str
) -> Path:
    """A function at `place`, such as `0000:00:01.0/0000:01:00.0`, and the bridges above it.

    `files` are the function's own; `__` in a name stands for a folder's slash.
    """
    folder = root / "sys/devices/pci0000:00" / place
    kind = files.pop("kind", "0x030000")
    texts = {"vendor": vendor, "device": device, "class": kind} | files
    write(folder, {name.replace("__", "/"): text for name, text in texts.items()})
    listing = root / "sys/bus/pci/devices"
    listing.mkdir(parents=True, exist_ok=True)
    (listing / folder.name).symlink_to(folder)
    if driver:
        held = root / "sys/bus/pci/drivers" / driver
        held.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(held)
    return folder


def add_bridge(
    root: Path, place: str, vendor: str, device: str, speed: str, width: str, now: str = ""
) -> None:
    """A bridge with its link's most, and the width now where it differs."""
    files = {"max_link_speed": f"{speed} GT/s PCIe", "max_link_width": width}
    files |= {"current_link_speed": f"{speed} GT/s PCIe", "current_link_width": now or width}
    add_function(root, place, vendor, device, "pcieport", kind="0x060400", **files)
