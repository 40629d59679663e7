"""The machine around the cards, on whichever system this is.

Knows nothing of cards. What a system does not tell stays None, and a line of `unknown` says which
kinds of facts that system keeps to itself.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from local_tp import settings
from local_tp.facts import HostFacts
from local_tp.hardware.live import linux_facts, windows_facts
from local_tp.hardware.live.cgroup import cpu_quota, memory_limit
from local_tp.hardware.live.memory_modules import Modules, read_modules
from local_tp.hardware.live.pci_access import redirects_peers

T = TypeVar("T")


def read_host_facts(root: Path, processor: str, unknown: list[str]) -> HostFacts:
    """All that can be read at once; what fails is added to `unknown`."""
    if sys.platform != "linux":
        return _elsewhere(processor, unknown)
    return _on_linux(root, processor, unknown)


def attempt(what: str, read: Callable[[], T], otherwise: T, unknown: list[str]) -> T:
    """What `read` returns; `otherwise`, and a line in `unknown`, where the system refuses."""
    try:
        return read()
    except (OSError, ValueError, MemoryError, RuntimeError, psutil.Error) as error:
        unknown.append(f"{what}: {error}")
        return otherwise


def _on_linux(root: Path, processor: str, unknown: list[str]) -> HostFacts:
    # Below another root what this machine says of itself would be wrong.
    here = root == Path("/")
    modules = read_modules() if here else Modules()
    return HostFacts(
        processor=processor,
        architecture=platform.machine().lower(),
        sockets=linux_facts.sockets(root),
        physical_cores=linux_facts.physical_cores(root)
        or (psutil.cpu_count(logical=False) if here else None),
        logical_cores=linux_facts.logical_cores(root) or (psutil.cpu_count() if here else None),
        efficiency_cores=attempt(
            "efficiency cores", lambda: linux_facts.efficiency_cores(root), None, unknown
        ),
        core_limit=attempt("CPU limit", lambda: cpu_quota(root), None, unknown),
        instructions=linux_facts.instructions(root),
        memory_limit=attempt("memory limit", lambda: _memory_limit(root), None, unknown),
        memory_channels=modules.channels,
        memory_speed=modules.speed,
        swap=attempt("swap", lambda: linux_facts.swap(root), None, unknown),
        numa_nodes=linux_facts.numa_nodes(root),
        iommu=attempt("IOMMU", lambda: linux_facts.iommu(root), None, unknown),
        acs=redirects_peers(root),
        command_line=linux_facts.command_line(root),
        wsl=linux_facts.is_wsl(root),
        container=linux_facts.container(root),
        virtual_machine=linux_facts.virtual_machine(root),
        laptop=linux_facts.is_laptop(root),
        secure_boot=linux_facts.secure_boot(root),
        shared_memory=attempt("shared memory", lambda: _shared_memory(root), None, unknown),
        disk_free=attempt("free disk space", _disk_free, None, unknown),
    )


def _elsewhere(processor: str, unknown: list[str]) -> HostFacts:
    unknown.append("NUMA, IOMMU, memory modules, containers: read only on Linux")
    return HostFacts(
        processor=processor,
        architecture=platform.machine().lower(),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        instructions=windows_facts.instructions(),
        swap=attempt("swap", lambda: int(psutil.swap_memory().total), None, unknown),
        wsl=False,
        virtual_machine=windows_facts.virtual_machine(),
        laptop=windows_facts.is_laptop(),
        secure_boot=windows_facts.secure_boot(),
        disk_free=attempt("free disk space", _disk_free, None, unknown),
    )


def _memory_limit(root: Path) -> int | None:
    """A container's limit in bytes. One as large as the machine, or larger, is none."""
    limit = memory_limit(root)
    return limit.limit if limit and limit.limit < psutil.virtual_memory().total else None


def _shared_memory(root: Path) -> int | None:
    """Bytes that processes may share by name; containers start with 64 MiB."""
    place = root / "dev/shm"
    if sys.platform == "win32" or not place.is_dir():
        return None
    size = os.statvfs(place)
    return size.f_blocks * size.f_frsize


def _disk_free() -> int | None:
    """Free bytes where models are kept, or will be."""
    folder = settings.models()
    existing = next((place for place in (folder, *folder.parents) if place.is_dir()), None)
    return None if existing is None else shutil.disk_usage(existing).free
