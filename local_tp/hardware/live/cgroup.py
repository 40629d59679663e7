"""What a container or a service manager lets this process have, read from Linux control groups.

Knows nothing of the machine's own size. Versions 1 and 2 and a mixture of both are read; where
no control group exists (Windows, macOS) there is no limit. `root` is where `/` is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class MemoryLimit(NamedTuple):
    """Bytes: what the group may hold, and what of that is not yet taken."""

    limit: int
    available: int


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """The tightest memory limit over this process's group and the groups above it.

    Pages of files count as available, as they do in the kernel's own MemAvailable: they are
    given back on demand. Version 1 says "no limit" with a number near 2^63.
    """
    limits: list[int] = []
    rooms: list[int] = []
    for group in _groups("memory", root):
        if (limit := _number(group / "memory.max")) is not None:
            used, prefix = _number(group / "memory.current"), ""
        elif (limit := _number(group / "memory.limit_in_bytes")) is not None:
            used, prefix = _number(group / "memory.usage_in_bytes"), "total_"
        else:
            continue
        statistics = dict(line.split(maxsplit=1) for line in _lines(group / "memory.stat"))
        pages = sum(int(statistics.get(f"{prefix}{k}_file", 0)) for k in ("active", "inactive"))
        limits.append(limit)
        rooms.append(min(limit, max(0, limit - (used or 0) + pages)))
    return MemoryLimit(min(limits), min(rooms)) if limits else None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """How many CPUs' worth of time this process may use, or None where that is not limited."""
    quotas: list[float] = []
    for group in _groups("cpu", root):
        if lines := _lines(group / "cpu.max"):
            quota, period = lines[0].split()
        else:
            quota = "".join(_lines(group / "cpu.cfs_quota_us")) or "max"
            period = "".join(_lines(group / "cpu.cfs_period_us"))
        if quota not in ("max", "-1"):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's groups for `controller`, from its own to the topmost seen."""
    member: dict[str, str] = {}  # version 2 has no controller's name
    for line in _lines(root / "proc/self/cgroup"):
        _, names, group = line.split(":", 2)
        member.update(dict.fromkeys(names.split(","), group))
    for line in _lines(root / "proc/self/mountinfo"):
        place, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        mounted, point = place.split()[3:5]
        key = "" if kind == "cgroup2" else controller
        if kind not in ("cgroup", "cgroup2") or key not in member:
            continue
        if kind == "cgroup" and controller not in options.split(","):
            continue
        top = root / point.lstrip("/")
        path = PurePosixPath(member[key])
        # Inside a container the group's path may be the host's while the mount shows only the
        # container's part of it, or the other way round.
        inside = path.is_relative_to(mounted) and ".." not in path.parts
        own = top / path.relative_to(mounted) if inside else top
        yield own
        yield from (above for above in own.parents if above.is_relative_to(top))


def _lines(path: Path) -> list[str]:
    """The lines of a file, none where it does not exist or may not be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None
