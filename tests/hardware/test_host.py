"""The processor and its limits: this machine's real ones, and control groups written to disk."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from local_tp.hardware.live import host as live_host
from local_tp.hardware.live.cgroup import cpu_quota, memory_limit
from local_tp.hardware.live.host import GIB, measure_bandwidth, read_host
from local_tp.hardware.probe import probe

MIB = 1024**2
UNLIMITED_V1 = "9223372036854771712\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_2(root: Path, group: str) -> Path:
    """A machine whose only control group hierarchy is of version 2, and this process's group."""
    return write(
        root,
        {
            "proc/self/cgroup": f"0::{group}\n",
            "proc/self/mountinfo": "29 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
        },
    )


def group_files(prefix: str, limit: str, used: str, pages: str = "") -> dict[str, str]:
    return {f"{prefix}memory.max": limit, f"{prefix}memory.current": used} | {
        f"{prefix}memory.stat": pages
    }


def test_version_2_takes_the_tightest_group_above(tmp_path: Path) -> None:
    write(
        version_2(tmp_path, "/user/app"),
        {
            **group_files("sys/fs/cgroup/user/app/", "max\n", f"{100 * MIB}\n"),
            **group_files(
                "sys/fs/cgroup/user/",
                f"{1024 * MIB}\n",
                f"{300 * MIB}\n",
                f"anon {100 * MIB}\nactive_file {50 * MIB}\ninactive_file {150 * MIB}\n",
            ),
        },
    )
    # 1024 - 300 are free, and 200 of the 300 are pages of files.
    assert memory_limit(tmp_path) == (1024 * MIB, 924 * MIB)


def test_version_2_in_a_container_reads_the_mounts_own_files(tmp_path: Path) -> None:
    write(
        version_2(tmp_path, "/"),
        {
            **group_files("sys/fs/cgroup/", f"{2048 * MIB}\n", f"{2100 * MIB}\n"),
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
        },
    )
    assert memory_limit(tmp_path) == (2048 * MIB, 0)
    assert cpu_quota(tmp_path) == 1.5


def test_version_1_where_the_mount_shows_only_the_containers_part(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n",
            "proc/self/mountinfo": (
                "33 32 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
                "34 32 0:31 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
            ),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{512 * MIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{200 * MIB}\n",
            "sys/fs/cgroup/memory/memory.stat": f"active_file 1\ntotal_active_file {40 * MIB}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert memory_limit(tmp_path) == (512 * MIB, 352 * MIB)
    assert cpu_quota(tmp_path) == 0.5


def test_no_limit_in_either_version(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n1:cpu:/\n0::/\n",
            "proc/self/mountinfo": (
                "33 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "34 32 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "35 32 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            ),
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": UNLIMITED_V1,
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "4096\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cpu_quota(tmp_path) is None
    host = read_host(tmp_path)
    assert host.cpu.total == psutil.virtual_memory().total
    assert memory_limit(tmp_path / "nowhere") is None
    assert cpu_quota(tmp_path / "nowhere") is None


def test_a_limited_host_is_a_smaller_machine(tmp_path: Path) -> None:
    write(
        version_2(tmp_path, "/"),
        {
            **group_files("sys/fs/cgroup/", f"{400 * MIB}\n", f"{300 * MIB}\n"),
            "sys/fs/cgroup/cpu.max": "40000 100000\n",
        },
    )
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: A  Quick   Processor\n"})
    host = read_host(tmp_path)
    assert (host.cpu.total, host.cpu.free) == (400 * MIB, 100 * MIB)
    assert host.cpu.reserve == 40 * MIB
    assert host.cores == 1
    assert host.cpu.name == "A Quick Processor"
    assert host.cpu.bandwidth is None
    assert host.unknown == ("memory bandwidth: too little memory is free to measure it",)


def test_damaged_control_group_files_are_said_and_do_not_stop_the_probe(tmp_path: Path) -> None:
    damaged = group_files("sys/fs/cgroup/", "1\n", "1\n", "active_file many\n")
    write(version_2(tmp_path, "/"), damaged)
    rig = probe(tmp_path)
    assert rig.ram == 0
    assert any(line.startswith("memory: invalid literal") for line in rig.unknown)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity and topology as Linux shows them")
def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    topology = "sys/devices/system/cpu/cpu{}/topology/core_cpus_list"
    allowed = sorted(os.sched_getaffinity(0))
    siblings = f"{allowed[0]}-{allowed[-1]}\n"
    write(tmp_path, {topology.format(n): siblings for n in allowed})
    assert read_host(tmp_path).cores == 1
    write(tmp_path, {topology.format(n): f"{n}\n" for n in allowed})
    assert read_host(tmp_path).cores == len(allowed)


def test_this_machine() -> None:
    children = set(psutil.Process().children())
    seconds = []
    for _ in range(3):  # the best of three: other programs use this machine too
        started = time.perf_counter()
        rig = probe()
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 1.0
    assert set(psutil.Process().children()) <= children
    cpu = rig.devices[-1]
    assert (cpu.id, cpu.kind) == ("cpu", "cpu")
    assert cpu.name
    assert 0 < cpu.free <= cpu.total <= psutil.virtual_memory().total
    assert cpu.reserve == min(GIB, cpu.total // 10)
    assert (rig.ram, rig.available_ram) == (cpu.total, cpu.free)
    assert 1 <= rig.cores <= (psutil.cpu_count() or 1)
    assert rig.os


def test_bandwidth_is_bytes_read_and_written_a_second() -> None:
    # No memory of a PC is slower than 0.5 GB a second, and no core moves a terabyte.
    assert 0.5e9 < measure_bandwidth(32 * MIB) < 1e12


@pytest.mark.parametrize(
    ("limit", "copied"), [(4096, 128), (1024, 128), (1023, 32), (256, 32), (255, None)]
)
def test_the_copy_is_as_large_as_memory_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, copied: int | None
) -> None:
    memory = psutil.virtual_memory()._replace(available=limit * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(live_host, "measure_bandwidth", float)
    bandwidth = read_host(tmp_path).cpu.bandwidth
    assert bandwidth == (copied and copied * MIB)


def test_slow_memory_gets_fewer_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 0.2, 1.0, 1.1])  # two copies, then their 0.3 s are used up
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    assert measure_bandwidth(MIB) == pytest.approx(2 * MIB / 0.1)
