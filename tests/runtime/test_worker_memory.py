"""What a process really holds: known sizes, in a process of its own so that its peak is its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20

CPU = """
import json, mmap, sys
import torch
from local_tp.core import Device
from local_tp.runtime.worker_memory import Meter, give_back
meter = Meter(Device("cpu", "cpu", "c", 1 << 40, 1 << 40), True)
readings = [meter.read()]
lasting = torch.ones(48 << 18)
passing = torch.ones(80 << 18)
del passing
readings.append(meter.read())
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[i] for i in range(0, len(mapped), 4096))
    readings.append(meter.read())
small = [bytes(30_000) for _ in range(2000)]
del small[1::2], small[:-1]
give_back()
readings.append(meter.read())
print(json.dumps([[r.now, r.peak, r.host, r.host_peak, r.baseline] for r in readings]))
"""

CUDA = """
import json
import torch
from local_tp.core import Device
from local_tp.runtime.worker_memory import Meter
free, total = torch.cuda.mem_get_info()
meter = Meter(Device("0000:01:00.0", "cuda", "c", total, free), True)
lasting = torch.ones(48 << 18, device="cuda")
passing = torch.ones(80 << 18, device="cuda")
del passing
reading = meter.read()
print(json.dumps([reading.now, reading.peak, reading.allocated, reading.free]))
"""


def said(program: str, *arguments: str) -> list:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's counters")
def test_own_memory_counts_and_mapped_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 * MIB))
    first, second, third, last = said(CPU, str(tmp_path / "file"))
    near = pytest.approx
    assert second[0] - first[0] == near(48 * MIB, abs=4 * MIB)
    assert second[1] - first[0] == near(128 * MIB, abs=4 * MIB)
    assert third[0] - second[0] == near(0, abs=2 * MIB)
    assert third[1] - second[1] == near(0, abs=4 * MIB)
    assert last[0] - third[0] == near(0, abs=4 * MIB)
    assert [reading[0] for reading in (first, second)] == [
        reading[2] for reading in (first, second)
    ]
    assert first[4] == near(first[0], abs=4 * MIB)
    assert second[4] == first[4]


@pytest.mark.gpu
def test_a_card_s_memory_as_its_driver_and_the_allocator_say() -> None:
    now, peak, allocated, free = said(CUDA)
    assert 128 * MIB <= allocated < 160 * MIB
    assert peak >= now >= 128 * MIB
    assert free > 0
