"""The memory that this process may use: the PC's, or what its container has of it.

Knows nothing of graphics cards, some of which have no memory but this. `root` is where `/` is
found.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil

from local_tp.hardware.live.cgroup import memory_limit


class Ram(NamedTuple):
    """Bytes in all, and bytes available now."""

    total: int
    free: int


def read_ram(root: Path = Path("/")) -> Ram:
    """What the system says, or a tighter limit of a control group."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    if limit := memory_limit(root):
        return Ram(min(total, limit.limit), min(total, free, limit.available))
    return Ram(total, free)
