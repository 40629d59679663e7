"""NVIDIA cards, read from the driver's management library (NVML) in a child process.

Knows nothing of CUDA. A driver in trouble can keep a caller waiting for ever, so NVML is never
called here: the child is given a time, and what it had told by then is kept. Where neither a
driver nor its library is there, no child is started.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from local_tp import settings
from local_tp.codec import decode
from local_tp.core import Device, Link
from local_tp.errors import InputError
from local_tp.facts import DriverFault
from local_tp.hardware.live.timed_program import run_for

# A driver without its persistence service wakes every card at the first question.
SECONDS = 15.0
REMEDY = "restart the PC, and if that does not help check the card's seat, riser and power cables"


@dataclass(frozen=True, slots=True)
class Nvidia:
    """What NVML told: cards in PCI bus order, a link for each pair of them.

    `cuda` is the newest CUDA that the driver can run, such as "13.0"; `fault` says why the driver
    does not answer at all. A card that fell off the bus is listed with its loss and no memory.
    """

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    fault: DriverFault | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of the child's output: all that it has read, and what it asks for next."""

    found: Nvidia
    asking: str = ""


def read_nvidia(root: Path = Path("/"), seconds: float = SECONDS) -> Nvidia:
    """The machine's NVIDIA cards, after `seconds` at most. `root` is where `/proc` is found."""
    if not is_present(root):
        return Nvidia()
    command = [sys.executable, "-m", "local_tp.hardware.live.nvidia_child", str(root)]
    try:
        child = run_for(command, seconds, _environment())
    except OSError as error:
        return Nvidia(unknown=(f"NVIDIA cards: the reader did not start: {error}",))
    progress = _last(child.output)
    if child.code == 0:
        return progress.found
    if child.code is None:
        return _cut_off(progress, f"the driver did not answer within {seconds:g} seconds; {REMEDY}")
    return _cut_off(progress, f"reading ended with {child.how}")


def is_present(root: Path = Path("/")) -> bool:
    """Whether this system has NVIDIA's driver, or at least the library to ask it."""
    if (root / "proc/driver/nvidia").exists():
        return True
    library = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def module_version(root: Path = Path("/")) -> str | None:
    """The version of the kernel module that is loaded, which an update leaves behind."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return found and found.group()


def _environment() -> dict[str, str]:
    """The child finds this package wherever the program was started from."""
    environment = settings.child_environment()
    before = environment.get("PYTHONPATH")
    places = [str(settings.source()), *([before] if before else [])]
    return environment | {"PYTHONPATH": os.pathsep.join(places)}


def _last(output: bytes) -> Progress:
    """The last whole line that the child wrote; each holds everything read so far."""
    lines = output.split(b"\n")[:-1]
    try:
        return decode(Progress, json.loads(lines[-1])) if lines else Progress(Nvidia())
    except (ValueError, InputError) as error:
        return Progress(Nvidia(unknown=(f"NVIDIA cards: the answer was not understood: {error}",)))


def _cut_off(progress: Progress, why: str) -> Nvidia:
    """What was read before the end, with a plain link for each pair of cards."""
    found = progress.found
    links = found.links or tuple(
        Link(a.id, b.id, "host") for a, b in combinations(found.devices, 2)
    )
    line = f"{progress.asking or 'NVIDIA cards'}: {why}"
    return replace(found, links=links, unknown=(*found.unknown, line))
