"""Copies between two devices and looks at what arrived, before it says how fast that was.

Run as
`python -m local_tp.hardware.measuring.child_pair`. A driver's word that one card can reach another
is reported but proves nothing: the destination is poisoned first, then compared on the destination
itself and again after its way back through the host. Knows nothing of verdicts.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.child_torch import fastest, find, finish
from local_tp.hardware.measuring.readings import READY, PairRequest, Reading

Copy = Callable[[Tensor, Tensor], None]  # (destination, source)

ROUNDS = 3
SMALL = 64 * 1024  # bytes; some faults show only in small copies, some only in large ones
POISON = -0x5A5A5A5A5A5A5A5B
WORD = 8  # bytes of an element
LATENCY_COPIES = 50


def plain_copy(destination: Tensor, source: Tensor) -> None:
    """The copy that a model would do."""
    destination.copy_(source, non_blocking=True)


def measure(request: PairRequest, copy: Copy = plain_copy) -> Iterator[Reading]:
    """The driver's word, then for each direction what arrived wrong, or how fast it was.

    `copy` is what is put to the test; tests give one that fails.
    """
    torch.set_num_threads(1)  # a copy between processors is one rank's work
    a, b = find(request.a), find(request.b)
    torch.zeros(1, device=a)
    torch.zeros(1, device=b)
    finish(a, b)
    yield Reading(READY)
    yield Reading("peer", float(_claims_peer(a, b)))
    sound = True
    for salt, (direction, source, destination) in enumerate((("forth", a, b), ("back", b, a))):
        for nbytes in (SMALL, request.nbytes):
            wrong = count_wrong(source, destination, nbytes, salt, copy)
            yield Reading("wrong", wrong, direction, nbytes, correct=wrong == 0)
            sound = sound and wrong == 0
        yield Reading(direction, _rate(source, destination, request.nbytes, copy))
    if sound:
        yield Reading("latency", _latency(a, b, copy))
    if request.both:
        yield Reading("both", _rate_both(a, b, request.nbytes, copy))


def pattern(nbytes: int, turn: int, device: torch.device) -> Tensor:
    """Words that depend on their position and on the turn; they wrap around alike everywhere."""
    places = torch.arange(nbytes // WORD, dtype=torch.int64, device=device)
    return places * 6364136223846793005 + (turn + 1) * 1442695040888963407


def count_wrong(
    source: torch.device, destination: torch.device, nbytes: int, salt: int, copy: Copy
) -> int:
    """How many words of all rounds did not arrive: as the destination sees it, and as the host."""
    wrong = 0
    for turn in range(ROUNDS):
        number = 2 * turn + salt
        sent = pattern(nbytes, number, source)
        received = torch.full((nbytes // WORD,), POISON, dtype=torch.int64, device=destination)
        finish(source, destination)
        copy(received, sent)
        finish(source, destination)
        there = int((received != pattern(nbytes, number, destination)).sum())
        here = int((received.cpu() != pattern(nbytes, number, torch.device("cpu"))).sum())
        wrong += max(there, here)
    return wrong


def _claims_peer(a: torch.device, b: torch.device) -> bool:
    """Whether the driver says that each can reach the other's memory."""
    if a.type != "cuda" or b.type != "cuda" or a == b:
        return a.type == b.type == "cpu"
    return torch.cuda.can_device_access_peer(a, b) and torch.cuda.can_device_access_peer(b, a)


def _buffers(source: torch.device, destination: torch.device, nbytes: int) -> tuple[Tensor, Tensor]:
    sent = torch.ones(nbytes, dtype=torch.uint8, device=source)
    return torch.zeros(nbytes, dtype=torch.uint8, device=destination), sent


def _rate(source: torch.device, destination: torch.device, nbytes: int, copy: Copy) -> float:
    """Bytes a second one way."""
    received, sent = _buffers(source, destination, nbytes)
    seconds = fastest(lambda: copy(received, sent), source, destination)
    return nbytes / seconds


def _latency(a: torch.device, b: torch.device, copy: Copy) -> float:
    """Seconds of a copy of one word, to its end; the median."""
    received, sent = _buffers(a, b, WORD)
    seconds = []
    for _ in range(LATENCY_COPIES):
        started = time.perf_counter()
        copy(received, sent)
        finish(a, b)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _rate_both(a: torch.device, b: torch.device, nbytes: int, copy: Copy) -> float:
    """Bytes a second of both directions together, each driven by a thread of its own."""
    ways = [_buffers(a, b, nbytes), _buffers(b, a, nbytes)]

    def both() -> None:
        threads = [threading.Thread(target=copy, args=way) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2 * nbytes / fastest(both, a, b, batches=3)


if __name__ == "__main__":
    sys.exit(serve(PairRequest, measure))
