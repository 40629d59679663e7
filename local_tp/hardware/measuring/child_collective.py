"""One rank of an all-reduce whose sums are checked before they are timed.

Run as
`python -m local_tp.hardware.measuring.child_collective`, once a rank. The groups are those that a
model uses, so what is found here holds for them; this module knows nothing of any model.
"""

from __future__ import annotations

import mmap
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as distributed
from torch import Tensor

from local_tp.errors import InputError
from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.child_torch import find, finish
from local_tp.hardware.measuring.readings import READY, CollectiveRequest, Reading
from local_tp.model.collectives import Group, TorchGroup, join
from local_tp.model.region import FLOAT_BYTES, Region
from local_tp.model.shared_memory import SharedGroup

CHECKS, BATCHES, TURNS = 3, 5, 10
SPINS = 4000  # as a worker's: turns of a waiting loop before it yields


def measure(request: CollectiveRequest) -> Iterator[Reading]:
    """For each transport and size one reading: median seconds, and whether all sums were right."""
    device = find(request.place)
    torch.set_num_threads(1)
    torch.zeros(1, device=device)
    yield Reading(READY)
    for transport in request.transports:
        group = _group(transport, request, device)
        for nbytes in request.sizes:
            correct = all(_right(group, nbytes, turn, device) for turn in range(CHECKS))
            seconds = _seconds(group, nbytes, device)
            correct = _right(group, nbytes, CHECKS, device) and correct
            yield Reading("all_reduce", seconds, transport, nbytes, correct)
        if isinstance(group, TorchGroup):
            distributed.destroy_process_group()


def part(rank: int, turn: int, nbytes: int, device: torch.device) -> Tensor:
    """What a rank brings: whole numbers, by position, turn and rank, whose sums are exact."""
    places = torch.arange(nbytes // FLOAT_BYTES, device=device)
    return ((places * 7 + turn * 131 + rank * 1009) % 8191).to(torch.float32)


def _right(group: Group, nbytes: int, turn: int, device: torch.device) -> bool:
    """Whether the sum is what this rank computes alone, on its device and on the host."""
    got = group.all_reduce(part(group.index, turn, nbytes, device))
    finish(device)
    for where in {device, torch.device("cpu")}:
        wanted = sum(part(rank, turn, nbytes, where) for rank in range(group.size))
        if not torch.equal(got.to(where), torch.as_tensor(wanted)):
            return False
    return True


def _seconds(group: Group, nbytes: int, device: torch.device) -> float:
    """The median batch's time for one all-reduce. Zeros stay zeros however often they are added."""
    x = torch.zeros(nbytes // FLOAT_BYTES, device=device)
    batches = []
    for _ in range(BATCHES):
        started = time.perf_counter()
        for _ in range(TURNS):
            x = group.all_reduce(x)
        finish(device)
        batches.append((time.perf_counter() - started) / TURNS)
    return statistics.median(batches)


def _group(transport: str, request: CollectiveRequest, device: torch.device) -> Group:
    rank, ranks = request.rank, request.ranks
    if transport == "shared-memory":
        region = Region(0, ranks, ranks, max(request.sizes) // FLOAT_BYTES)
        spins = 1 if ranks > (os.cpu_count() or 1) else SPINS
        memory = _map(Path(request.folder) / "memory", region.stop)
        return SharedGroup(memory, region, rank, [1] * ranks, spins, request.timeout)
    if transport not in ("gloo", "nccl"):
        raise InputError(f"no transport is named {transport!r}")
    join(transport, str(Path(request.folder) / transport), rank, ranks, request.timeout)
    members = distributed.new_group(list(range(ranks)))
    staged = transport == "gloo" and device.type != "cpu"
    return TorchGroup(members, rank, [1] * ranks, staged)


def _map(file: Path, nbytes: int) -> memoryview:
    """The file's memory. Whoever comes first makes it; growing it leaves what is there."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size < nbytes:
            os.ftruncate(handle, nbytes)
        return memoryview(mmap.mmap(handle, nbytes))
    finally:
        os.close(handle)


if __name__ == "__main__":
    sys.exit(serve(CollectiveRequest, measure))
