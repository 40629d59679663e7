"""Reads a file past the system's cache and says how fast.

Run as
`python -m local_tp.hardware.measuring.child_disk`, in a process of its own because a network drive
that is gone makes its readers wait for ever. Knows nothing of models. Where the cache cannot be
passed by, only what is not in it is read; where all of it is, nothing is measured, since the
cache's speed would be told instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.readings import NOTE, READY, DiskRequest, Reading

BLOCK = 8 * 1024**2
LEAST = 4  # blocks, below which a disk's speed cannot be told from its first answer
STRETCHES = 4  # of which the fastest counts: another program's reading slows some, never all
LOOKED_AT = 4 * 1024**3  # bytes of the file that are searched for parts outside the cache
NO_CACHE = 48  # macOS: F_NOCACHE of fcntl
UNBUFFERED, SEQUENTIAL = 0x20000000, 0x08000000  # Windows: flags of CreateFileW
GENERIC_READ, SHARE_READ, OPEN_EXISTING = 0x80000000, 1, 3


def measure(request: DiskRequest) -> Iterator[Reading]:
    """The speed in bytes a second, or a note that says why it is not known."""
    yield Reading(READY)
    try:
        rate = past_the_cache(request)
        if rate is None:
            rate = outside_the_cache(request, BLOCK)
    except OSError as error:
        yield Reading(NOTE, detail=f"it cannot be read past the system's cache: {error}")
        return
    if rate is None:
        yield Reading(NOTE, detail="its largest file lies in the system's cache, which is faster")
        return
    yield Reading("disk_read", rate)


def past_the_cache(request: DiskRequest) -> float | None:
    """Bytes a second of reads that the system does not cache; None where it has no such reads."""
    if sys.platform == "win32":
        return _unbuffered(request.file, request.nbytes)
    if sys.platform != "linux":
        return None
    try:
        handle = os.open(request.file, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # not on every file system
        return None
    try:
        return _rate(handle, request.nbytes)
    finally:
        os.close(handle)


def outside_the_cache(request: DiskRequest, block: int) -> float | None:
    """Bytes a second of plain reads of blocks that are not cached; None where they are too few."""
    if sys.platform == "win32":
        return None
    handle = os.open(request.file, os.O_RDONLY)
    try:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(handle, NO_CACHE, 1)  # what is read must not count as cached next time
        places = uncached(_resident(handle), mmap.PAGESIZE, block)[: request.nbytes // block]
        if len(places) < LEAST:
            return None
        marks = [(0, time.perf_counter())]
        for place in places:
            done = marks[-1][0] + len(os.pread(handle, block, place))
            marks.append((done, time.perf_counter()))
        return fastest(marks)
    finally:
        os.close(handle)


def uncached(resident: Sequence[int], page: int, block: int) -> list[int]:
    """Where blocks start of which no page is in the cache; one byte a page, odd if it is."""
    pages = block // page
    return [
        start * page
        for start in range(0, len(resident) - pages + 1, pages)
        if not any(byte & 1 for byte in resident[start : start + pages])
    ]


def fastest(marks: Sequence[tuple[int, float]]) -> float | None:
    """Bytes a second of the fastest of `STRETCHES` equal parts; None where nothing was read.

    `marks` are bytes read so far and the time at that moment, the start first. A part has
    `LEAST` reads at least, so a short file has fewer parts.
    """
    reads = len(marks) - 1
    if reads < 1 or not marks[-1][0]:
        return None
    parts = max(1, min(STRETCHES, reads // LEAST))
    ends = [marks[reads * part // parts] for part in range(parts + 1)]
    return max((b - a) / max(t - s, 1e-9) for (a, s), (b, t) in pairwise(ends))


def _resident(handle: int) -> bytes:
    """What `mincore` says of each page. Where it may not tell, Linux calls every page cached."""
    length = min(os.fstat(handle).st_size, LOOKED_AT)
    # A private, writable mapping, because only of such a one does ctypes tell the address.
    with mmap.mmap(handle, length, access=mmap.ACCESS_COPY) as mapped:
        answers = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        size = ctypes.c_size_t(length)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), size, answers)
        del first  # a mapping that somebody points into cannot be closed
        if failed:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return bytes(answers)


def _rate(handle: int, nbytes: int) -> float | None:
    """Bytes a second from the start of the file, in large blocks one after another."""
    done = 0
    with mmap.mmap(-1, BLOCK) as block:  # a mapping begins at a page, as such reads demand
        marks = [(0, time.perf_counter())]
        try:
            while done < nbytes and (count := os.readv(handle, [block])):
                done += count
                marks.append((done, time.perf_counter()))
        except OSError:  # opened, but refused at the first read
            return None
        return fastest(marks)


def _unbuffered(file: str, nbytes: int) -> float | None:
    """As `_rate`, by the calls of Windows, which past its cache reads whole sectors only."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = ctypes.c_void_p
        flags = UNBUFFERED | SEQUENTIAL
        opened = kernel.CreateFileW(
            ctypes.c_wchar_p(file), GENERIC_READ, SHARE_READ, None, OPEN_EXISTING, flags, None
        )
        if opened in (None, ctypes.c_void_p(-1).value):
            raise ctypes.WinError(ctypes.get_last_error())
        handle, done, count = ctypes.c_void_p(opened), 0, ctypes.c_ulong()
        try:
            with mmap.mmap(-1, BLOCK) as block:
                room = (ctypes.c_char * BLOCK).from_buffer(block)
                marks = [(0, time.perf_counter())]
                while done < nbytes:
                    if not kernel.ReadFile(handle, room, BLOCK, ctypes.byref(count), None):
                        raise ctypes.WinError(ctypes.get_last_error())
                    if not count.value:
                        break
                    done += count.value
                    marks.append((done, time.perf_counter()))
                del room
                return fastest(marks)
        finally:
            kernel.CloseHandle(handle)
    return None


if __name__ == "__main__":
    sys.exit(serve(DiskRequest, measure))
