"""Reads a file past the system's cache and says how fast.

Run as
`python -m local_tp.hardware.measuring.child_disk`, in a process of its own because a network drive
that is gone makes its readers wait for ever. Knows nothing of models. Where the system cannot
read past its cache nothing is measured, since the cache's speed would be told instead.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Iterator

from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.readings import NOTE, READY, DiskRequest, Reading

BLOCK = 8 * 1024**2


def measure(request: DiskRequest) -> Iterator[Reading]:
    yield Reading(READY)
    if sys.platform != "linux":
        yield Reading(NOTE, detail="this system offers no read past its cache")
        return
    try:
        handle = os.open(request.file, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        yield Reading(NOTE, detail=f"its file system offers no read past the cache ({error})")
        return
    try:
        yield Reading("disk_read", _rate(handle, request.nbytes))
    finally:
        os.close(handle)


def _rate(handle: int, nbytes: int) -> float:
    """Bytes a second from the start of the file, in large blocks one after another."""
    done = 0
    with mmap.mmap(-1, BLOCK) as block:  # a mapping begins at a page, as such reads demand
        started = time.perf_counter()
        while done < nbytes and (count := os.readv(handle, [block])):
            done += count
        return done / (time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(serve(DiskRequest, measure))
