"""A PCI Express link as it is while it carries data, read from outside the code that copies.

An idle card slows its link down, so only the fastest state seen under load says what a slot gives.
Knows nothing of who copies. Reading takes microseconds and makes no context, but a driver in
trouble may never answer: only processes that can be killed look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pynvml

from local_tp.facts import PcieReading
from local_tp.hardware.live import pci

PERIOD = 0.01  # seconds between looks
PATIENCE = 1.0  # seconds for a look that is under way at the end


@dataclass(slots=True)
class PcieWatch:
    """Keeps the fastest state of one slot's link."""

    slot: str
    root: Path = Path("/")
    fastest: PcieReading | None = None

    def look(self) -> None:
        now = read_link(self.slot, self.root)
        if now and (self.fastest is None or _speed(now) > _speed(self.fastest)):
            self.fastest = now

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Look again and again while the caller's block runs, at least once."""
        done = threading.Event()

        def watch() -> None:
            self.look()
            while not done.wait(PERIOD):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(PATIENCE)


def read_link(slot: str, root: Path = Path("/")) -> PcieReading | None:
    """The link's state now: from sysfs, from NVML where there is none, or None if neither tells."""
    folder = root / "sys/bus/pci/devices" / slot
    if not folder.exists():
        return _from_nvml(slot)
    if (function := pci.read_function(folder.resolve())) is None:
        return None
    now = pci.pcie(function)
    return _whole(now.generation, now.width)


def _from_nvml(slot: str) -> PcieReading | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(slot.encode())
        return _whole(
            _asked(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            _asked(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        )
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _asked(call: Callable[[object], int], handle: object) -> int:
    return call(handle)


def _whole(generation: int | None, width: int | None) -> PcieReading | None:
    return PcieReading(generation, width) if generation and width else None


def _speed(reading: PcieReading) -> int:
    """Proportional to bytes a second: each generation doubles the one before."""
    return (reading.width or 0) << (reading.generation or 0)
