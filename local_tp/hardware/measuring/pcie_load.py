"""PCI Express links as they are while they carry data, read from outside the process that copies.

An idle card slows its link down, so only the fastest state seen under load says what a slot gives.
Knows nothing of who copies. Reading takes microseconds and makes no context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pynvml

from local_tp.facts import PcieReading

T = TypeVar("T")

AMD = "0x1002"
# Giga-transfers a second of each generation, as the kernel writes them.
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


@dataclass(slots=True)
class PcieWatch:
    """Keeps the fastest state of each slot; `look` is called while something copies."""

    slots: tuple[str, ...]
    root: Path = Path("/")
    fastest: dict[str, PcieReading] = field(default_factory=dict)

    def look(self) -> None:
        for slot in self.slots:
            now = read_link(slot, self.root)
            if now and _speed(now) > _speed(self.fastest.get(slot, PcieReading())):
                self.fastest[slot] = now


def read_link(slot: str, root: Path = Path("/")) -> PcieReading | None:
    """The link's state now: from sysfs, from NVML where there is none, or None if neither tells."""
    folder = root / "sys/bus/pci/devices" / slot
    if folder.exists():
        return _from_sysfs(folder.resolve())
    return _from_nvml(slot)


def _from_sysfs(folder: Path) -> PcieReading | None:
    """An AMD card has a switch of its own: the link to the slot is the switch's upper one."""
    if _text(folder / "vendor") == AMD:
        while _text(folder.parent / "vendor") == AMD:
            folder = folder.parent
    generation = GENERATIONS.get(_text(folder / "current_link_speed").partition(" ")[0])
    width = _text(folder / "current_link_width")
    if generation is None or not width.isdecimal() or width == "0":
        return None
    return PcieReading(generation, int(width))


def _from_nvml(slot: str) -> PcieReading | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(slot.encode())
        generation = _asked(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle)
        width = _asked(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle)
        return PcieReading(generation, width) if generation and width else None
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _asked(call: Callable[[object], int], handle: object) -> int:
    return call(handle)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _speed(reading: PcieReading) -> int:
    """Proportional to bytes a second: each generation doubles the one before."""
    return (reading.width or 0) << (reading.generation or 0)
