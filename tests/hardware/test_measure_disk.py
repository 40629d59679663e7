"""A disk's speed is told past the cache, or from what is not in it, or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from local_tp.hardware.measuring import child_disk
from local_tp.hardware.measuring.child_disk import fastest, measure, outside_the_cache, uncached
from local_tp.hardware.measuring.readings import NOTE, READY, DiskRequest

MIB = 1024**2
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's way to empty a cache")


def test_only_blocks_without_a_cached_page_are_read() -> None:
    pages = [0, 0, 1, 0, 0, 0, 0, 0xFF, 0xFE, 0, 0]
    assert uncached(pages, 4096, 8192) == [0, 4 * 4096, 8 * 4096]
    assert uncached(pages, 4096, 4 * 4096) == []
    assert uncached([], 4096, 8192) == []


def in_memory(folder: Path) -> bool:
    """Whether what is mounted there is a file system without a disk."""
    parts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    nearest = next(place for place in (folder, *folder.parents) if place in parts)
    return parts[nearest] in ("tmpfs", "ramfs")


def test_the_fastest_stretch_counts_and_not_what_others_took_of_the_rest() -> None:
    seconds = [1.0] * 4 + [0.1] * 4 + [1.0] * 8  # sixteen reads, four of them undisturbed
    times = [sum(seconds[:n]) for n in range(17)]
    assert fastest([(n * MIB, time) for n, time in enumerate(times)]) == pytest.approx(10 * MIB)


def test_a_slow_disk_is_slow_in_every_stretch() -> None:
    assert fastest([(n * MIB, float(n)) for n in range(17)]) == pytest.approx(MIB)


def test_few_reads_are_one_stretch() -> None:
    assert fastest([(0, 0.0), (MIB, 1.0), (2 * MIB, 1.5)]) == pytest.approx(2 * MIB / 1.5)
    assert fastest([(0, 0.0)]) is None
    assert fastest([]) is None


@linux
def test_a_file_in_the_cache_tells_nothing_and_one_outside_does(tmp_path: Path) -> None:
    if in_memory(tmp_path):
        pytest.skip("no disk: the folder for temporary files lies in memory")
    file = tmp_path / "model"
    file.write_bytes(os.urandom(MIB) * 32)
    request = DiskRequest(str(file), 16 * MIB)
    assert outside_the_cache(request, MIB) is None
    handle = os.open(file, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)
    rate = outside_the_cache(request, MIB)
    assert rate is not None
    assert 1e5 < rate < 1e12


@linux
def test_where_nothing_passes_the_cache_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model"
    file.write_bytes(bytes(MIB))
    request = DiskRequest(str(file), MIB)
    monkeypatch.setattr(child_disk, "past_the_cache", lambda request: None)
    ready, note = measure(request)
    assert ready.what == READY
    assert note.what == NOTE
    assert note.detail == "its largest file lies in the system's cache, which is faster"


def test_a_file_that_is_gone_is_a_note(tmp_path: Path) -> None:
    *_, note = measure(DiskRequest(str(tmp_path / "gone"), MIB))
    assert note.what == NOTE
    assert note.detail.startswith("it cannot be read past the system's cache: ")
    assert "gone" in note.detail
