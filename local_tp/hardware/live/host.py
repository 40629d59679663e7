"""The processor, its memory and the system, as far as this process may use them.

Knows nothing of graphics cards. A limit set by a container, a service manager or CPU affinity
counts as the machine's size: a plan must fit inside it. Every value is read or measured now.
"""

from __future__ import annotations

import math
import platform
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil

from local_tp.core import Device
from local_tp.facts import CardFacts, HostFacts
from local_tp.hardware.live.cgroup import cpu_quota
from local_tp.hardware.live.host_facts import attempt, read_host_facts
from local_tp.hardware.live.ram import Ram, read_ram

ORDERED_STORES = frozenset({"x86_64", "amd64", "x86", "i686"})
GIB = 1024**3
MIB = 1024**2
# Large enough that a desktop's stacked cache (96 MiB and more) does not pass for memory, and copied
# in milliseconds; the small one is for containers and PCs with little memory free.
COPIED_BYTES = (128 * MIB, 32 * MIB)
FREE_TIMES = 8  # as much memory must be free as this many copies take
COPIES = 5
COPY_SECONDS = 0.3  # slow memory gets fewer copies, for a probe is to be quick


@dataclass(frozen=True, slots=True)
class Host:
    """`cores` are physical; `unknown` says in words what could not be learned."""

    cpu: Device
    cores: int
    os: str
    unknown: tuple[str, ...] = ()
    facts: HostFacts = field(default_factory=HostFacts)


def read_host(root: Path = Path("/")) -> Host:
    """This machine without its cards. `root` is where `/proc` and `/sys` are found."""
    unknown: list[str] = []
    total, free = attempt("memory", lambda: read_ram(root), Ram(0, 0), unknown)
    bandwidth: float | None = None
    if nbytes := next((size for size in COPIED_BYTES if free >= FREE_TIMES * size), None):
        bandwidth = attempt("memory bandwidth", lambda: measure_bandwidth(nbytes), None, unknown)
    else:
        unknown.append("memory bandwidth: too little memory is free to measure it")
    cpu = Device(
        id="cpu",
        kind="cpu",
        name=attempt("processor's name", lambda: _processor(root), platform.machine(), unknown),
        total=total,
        free=free,
        reserve=min(GIB, total // 10),
        bandwidth=bandwidth,
        ordered_stores=platform.machine().lower() in ORDERED_STORES,
    )
    cores = attempt("physical cores", lambda: _cores(root), 1, unknown)
    cpu = replace(cpu, facts=CardFacts(cores=cores, core_bandwidth=bandwidth))
    facts = attempt(
        "host", lambda: read_host_facts(root, cpu.name, unknown), HostFacts(cpu.name), unknown
    )
    return Host(cpu, cores, _system(), tuple(unknown), facts)


def measure_bandwidth(nbytes: int) -> float:
    """Bytes a second that one thread moves in a copy, each byte counted twice: read and written.

    The best of up to five copies of `nbytes`, since others only ever slow it down. Several threads
    together reach more; what they reach is not measured here.
    """
    source = np.ones(nbytes, np.uint8)
    target = np.empty_like(source)
    np.copyto(target, source)  # the first touch of each page is the kernel's time, not memory's
    seconds: list[float] = []
    while len(seconds) < COPIES and sum(seconds) < COPY_SECONDS:
        started = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - started)
    return 2 * nbytes / min(seconds)


def _cores(root: Path) -> int:
    """Physical cores this process may run on, at most its share of CPU time, at least one."""
    usable = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    if sys.platform in ("linux", "win32"):  # the others have no affinity
        allowed = psutil.Process().cpu_affinity()
        usable = min(usable, len(allowed))
        shared = [root / f"sys/devices/system/cpu/cpu{n}/topology/core_cpus_list" for n in allowed]
        if all(path.exists() for path in shared):
            usable = len({path.read_text() for path in shared})
    quota = cpu_quota(root)
    return max(1, usable if quota is None else min(usable, math.floor(quota)))


def _processor(root: Path) -> str:
    """The processor's name as its maker writes it, or at least its architecture."""
    if sys.platform == "win32":
        import winreg

        place = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    information = root / "proc/cpuinfo"
    if information.exists():
        for line in information.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()


def _system() -> str:
    """The operating system and its kernel in one line."""
    if sys.platform != "linux":
        return platform.platform()
    kernel = f"Linux {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel
