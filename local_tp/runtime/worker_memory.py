"""What this process really holds, in the PC's memory and on its card.

Memory counts where no other process shares it, and by its part where ranks share some: pages of
mapped files, which the system can drop and read again, do not count. Knows nothing of models.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import psutil
import torch

from local_tp.core import Device
from local_tp.runtime.wire import Held

_STATUS, _ROLLUP = Path("/proc/self/status"), Path("/proc/self/smaps_rollup")


class Meter:
    """Readings of this process; made before the model, so that it knows what was there already.

    `alone` is whether no other rank runs on the device.
    """

    def __init__(self, device: Device, alone: bool) -> None:
        self._device, self._alone = device, alone
        self._host_peak = self._baseline = 0
        if device.kind != "cpu":
            torch.cuda.reset_peak_memory_stats()
        self._baseline = self.read().now

    def read(self) -> Held:
        """What is held now, and was at most."""
        host, host_peak = host_bytes()
        # Files that were mapped since the peak make it look lower than an earlier reading said.
        self._host_peak = host_peak = max(self._host_peak, host_peak)
        if self._device.kind == "cpu":
            return Held(host, host_peak, host, host_peak, self._baseline)
        free, _ = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        taken = max(self._device.free - free, reserved)
        now = taken if self._alone else self._device.context + reserved
        return Held(
            now=now,
            peak=now + torch.cuda.max_memory_reserved() - reserved,
            host=host,
            host_peak=host_peak,
            baseline=self._baseline,
            allocated=torch.cuda.max_memory_allocated(),
            free=free,
        )


def give_back() -> None:
    """Let the C library return what it keeps between blocks in use, where it can (glibc)."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def host_bytes() -> tuple[int, int]:
    """Bytes of this process in the PC's memory that are its own: now, and at most so far."""
    if _ROLLUP.exists():
        status, rollup = _fields(_STATUS), _fields(_ROLLUP)
        shared = rollup["Pss_Shmem"]
        others = status["RssFile"] + status["RssShmem"]
        now = status["RssAnon"] + shared
        return now, max(now, status["VmHWM"] - others + shared)
    memory = psutil.Process().memory_full_info()
    own = int(memory.uss)
    most = getattr(memory, "peak_wset", None)
    return own, max(own, own + int(most) - int(memory.rss)) if most else own


def _fields(file: Path) -> dict[str, int]:
    """The lines "name: n kB" of a file of the kernel, in bytes."""
    fields = {}
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            fields[name] = int(value[:-3]) * 1024
    return fields
