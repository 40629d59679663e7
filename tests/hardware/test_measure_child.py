"""The child's side: its protocol, its end with its parent, and what it measures with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from local_tp import codec
from local_tp.errors import DeviceError
from local_tp.hardware.measuring import child_device
from local_tp.hardware.measuring.child_collective import part
from local_tp.hardware.measuring.child_device import Others, copy_in_threads, measure
from local_tp.hardware.measuring.child_torch import find
from local_tp.hardware.measuring.readings import (
    BUSY,
    NOTE,
    READY,
    DeviceRequest,
    DiskRequest,
    Place,
    Reading,
)

ROOT = Path(__file__).parents[2]
SERVE = """
import sys, time
from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.readings import DiskRequest, Reading
def work(request):
    print("a library's chatter")
    yield Reading("disk_read", request.nbytes)
    {then}
sys.exit(serve(DiskRequest, work))
"""


def child(then: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(codec.encode(DiskRequest("x", 7))) + "\n")
    process.stdin.flush()
    return process


def answered(process: subprocess.Popen[str]) -> Reading:
    assert process.stdout is not None
    return codec.decode(Reading, json.loads(process.stdout.readline()))


def test_answers_are_kept_apart_from_chatter_and_faults_end_with_their_line() -> None:
    process = child("raise ValueError('no such luck\\nand more')")
    assert answered(process) == Reading("disk_read", 7.0)
    process.wait(20)  # its input stays open till then, as with a parent that lives
    rest, problems = process.communicate()
    assert (process.returncode, rest) == (1, "")
    assert "a library's chatter" in problems
    assert problems.splitlines()[-1] == "ValueError: no such luck"


def test_a_child_leaves_with_its_parent() -> None:
    process = child("time.sleep(600)")
    assert answered(process).what == "disk_read"
    process.communicate(timeout=20)  # closes its input, as the end of the parent does
    assert process.returncode == 3


def test_a_file_is_read_past_the_cache_or_it_is_said_why_not(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(os.urandom(1024**2) * 16)
    done = subprocess.run(
        [sys.executable, "-m", "local_tp.hardware.measuring.child_disk"],
        input=json.dumps(codec.encode(DiskRequest(str(file), 8 * 1024**2))) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=30,
        check=False,
    )
    # The input ends at once here, as if the parent had gone: whichever is first wins.
    assert done.returncode in (0, 3), done.stderr
    found = [codec.decode(Reading, json.loads(line)) for line in done.stdout.splitlines()]
    assert [r.what for r in found] in ([READY, "disk_read"], [READY, NOTE], [READY], [])
    assert all(r.value > 1e5 for r in found if r.what == "disk_read")


def test_a_card_that_torch_does_not_see_is_named() -> None:
    with pytest.raises(DeviceError, match="sees no card at 0000:fe:1f"):
        find(Place("0000:fe:1f.0", "cuda", "GPU-none"))


def test_a_dtype_that_torch_cannot_multiply_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("not implemented for this card\nwith a long explanation")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    here = Place("cpu", "cpu")
    readings = list(measure(DeviceRequest(here, 1024**2, torch.get_num_threads(), ("int8",))))
    refused = "int8 matrix products: torch says: not implemented for this card"
    assert Reading(NOTE, detail=refused) in readings


def test_products_that_stall_do_not_make_a_fast_processor_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10 ms of waiting in each call, as where another program has a thread's core."""
    rate, stall = 200e9, 1e-2
    sizes: list[int] = []

    def product(device: torch.device, dtype: str, size: int) -> int:
        sizes.append(size)
        return size

    monkeypatch.setattr(child_device, "_product", product)
    monkeypatch.setattr(child_device, "fastest", lambda size, _: 2 * size**3 / rate + stall)
    here = Place("cpu", "cpu")
    readings = list(measure(DeviceRequest(here, 1024**2, 1, ("float32",))))
    (found,) = [r.value for r in readings if r.what == "matmul"]
    assert sizes == [512, 1024, 2048]
    assert 0.85 * rate < found < rate


def test_what_others_take_of_the_processor_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_device.Others, "share", lambda self: 0.5)
    here = Place("cpu", "cpu")
    assert list(measure(DeviceRequest(here, 1024**2, 1, ())))[-1] == Reading(BUSY, 0.5)
    monkeypatch.setattr(child_device.Others, "share", lambda self: 0.1)
    assert list(measure(DeviceRequest(here, 1024**2, 1, ())))[-1].what == "bandwidth"


def test_a_program_of_its_own_is_not_another() -> None:
    others = Others()
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    assert 0 <= others.share() <= 1


def test_threads_copy_a_whole_buffer_that_does_not_divide() -> None:
    before = torch.get_num_threads()
    assert copy_in_threads(1024**2 + 7, 3) > 1e6
    assert torch.get_num_threads() == before


def test_the_parts_of_a_sum_are_whole_numbers_that_differ_by_rank_and_turn() -> None:
    here = torch.device("cpu")
    first = part(0, 0, 8192, here)
    assert torch.equal(first, first.round())
    assert float(first.max()) * 8 < 2**24  # sums over eight ranks are exact in float32
    assert not torch.equal(first, part(1, 0, 8192, here))
    assert not torch.equal(first, part(0, 1, 8192, here))
