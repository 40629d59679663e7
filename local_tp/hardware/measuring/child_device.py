"""Measures one device: its memory, its matrix products, and the way from the host and back.

Run as
`python -m local_tp.hardware.measuring.child_device`; knows nothing of other devices. The processor
is measured by the same code as a card, but for its memory: there it matters how many cores copy.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import torch
from torch import Tensor

from local_tp.hardware.devices import SLICE
from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.child_torch import fastest, find
from local_tp.hardware.measuring.pcie_load import PcieWatch
from local_tp.hardware.measuring.readings import BUSY, NOTE, READY, DeviceRequest, Reading

SMALLEST, LARGEST = 512, 4096  # rows and columns of the matrices
# Seconds that the last product takes: far more than overhead, and more than a thread waits where
# another program has its core. A smaller product may take 10 ms for that reason alone.
ENOUGH = 5e-2
CROWDED = 0.2  # of all cores at work for other programs: figures of the processor are then too low
COPY_SECONDS = 0.15  # a batch of copies: long enough for an idle PCIe link to speed up
COPIES = 5


def measure(request: DeviceRequest) -> Iterator[Reading]:
    """Bandwidth, copies, then one reading or note for each dtype."""
    torch.set_num_threads(request.threads)
    device = find(request.place)
    torch.zeros(1, device=device)  # a card's context is made here, before the time limit counts
    yield Reading(READY)
    if device.type == "cpu":
        others = Others()
        yield Reading("bandwidth", copy_in_threads(request.nbytes, request.threads), "all")
        yield Reading("bandwidth", copy_in_threads(request.nbytes, 1), "one")
    else:
        yield Reading("bandwidth", _within(device, request.nbytes))
        watch = PcieWatch(request.place.id.partition(SLICE)[0])
        with watch.meanwhile():
            yield from _with_host(device, request.nbytes)
        if loaded := watch.fastest:
            yield Reading("pcie", loaded.generation or 0, "generation")
            yield Reading("pcie", loaded.width or 0, "width")
    for dtype in request.dtypes:
        yield _matmul(device, dtype)
    if device.type == "cpu" and (share := others.share()) >= CROWDED:
        yield Reading(BUSY, share)


class Others:
    """How much of the processor other programs used since this was made."""

    def __init__(self) -> None:
        self._started, self._busy, self._own = self._read()

    def share(self) -> float:
        """Of all cores' time, from 0 to 1."""
        now, busy, own = self._read()
        whole = (now - self._started) * (psutil.cpu_count() or 1)
        return min(1.0, max(0.0, (busy - self._busy - (own - self._own)) / whole))

    @staticmethod
    def _read() -> tuple[float, float, float]:
        all_of, mine = psutil.cpu_times(), psutil.Process().cpu_times()
        return time.monotonic(), all_of.user + all_of.system, mine.user + mine.system


def copy_in_threads(nbytes: int, threads: int) -> float:
    """Bytes a second that `threads` cores copy together, each byte counted read and written.

    Every thread copies its own part; the best of five rounds.
    """
    source = torch.ones(nbytes, dtype=torch.uint8)
    target = torch.zeros_like(source)
    parts = list(zip(target.chunk(threads), source.chunk(threads), strict=True))
    gate = threading.Barrier(len(parts) + 1)

    def copy(target: Tensor, source: Tensor) -> None:
        torch.set_num_threads(1)
        for _ in range(COPIES + 1):
            gate.wait()
            target.copy_(source)
            gate.wait()

    started = [threading.Thread(target=copy, args=part, daemon=True) for part in parts]
    for thread in started:
        thread.start()
    seconds = []
    for _ in range(COPIES + 1):
        gate.wait()
        begun = time.perf_counter()
        gate.wait()
        seconds.append(time.perf_counter() - begun)
    for thread in started:
        thread.join()
    return 2 * nbytes / min(seconds[1:])


def _within(device: torch.device, nbytes: int) -> float:
    """Bytes a second of the device's own memory, counted read and written."""
    source = torch.ones(nbytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * nbytes / fastest(lambda: target.copy_(source), device)


def _with_host(device: torch.device, nbytes: int) -> Iterator[Reading]:
    """Bytes a second from pinned host memory to the device, and back."""
    host = torch.ones(nbytes, dtype=torch.uint8, pin_memory=True)
    card = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    for what, target, source in (("copy_to", card, host), ("copy_from", host, card)):
        copy = _copy(target, source)
        yield Reading(what, nbytes / fastest(copy, device, batches=3, lasting=COPY_SECONDS))


def _copy(target: Tensor, source: Tensor) -> Callable[[], object]:
    return lambda: target.copy_(source, non_blocking=True)


def _matmul(device: torch.device, dtype: str) -> Reading:
    """Operations a second of a square product, the best of growing sizes.

    Multiplication and addition count as two.
    """
    size, seconds, best = SMALLEST, 0.0, 0.0
    try:
        while size <= LARGEST and seconds < ENOUGH:
            seconds = fastest(_product(device, dtype, size), device)
            best = max(best, 2 * size**3 / seconds)
            size *= 2
        return Reading("matmul", best, dtype)
    except RuntimeError as error:
        why = str(error).strip().partition("\n")[0]
        return Reading(NOTE, detail=f"{dtype} matrix products: torch says: {why}")


def _product(device: torch.device, dtype: str, size: int) -> Callable[[], object]:
    if dtype == "int8":
        whole = torch.ones((size, size), dtype=torch.int8, device=device)
        return lambda: torch._int_mm(whole, whole)
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    matrix = torch.randn((size, size), device=device).to(kinds[dtype])
    out = torch.empty_like(matrix)
    return lambda: torch.mm(matrix, matrix, out=out)


if __name__ == "__main__":
    sys.exit(serve(DeviceRequest, measure))
