"""A crew without workers: it keeps tokens at (page, place in page), as a real one keeps keys.

What comes next is computed from what is stored where the row's pages say, never from the row's own
request; so a wrong page, position or order gives another text. What each stream was told, as a
layer without pages keeps it, must be the same.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from local_tp.core import Row, RowResult, Step, TokenLogprob
from local_tp.errors import WorkerDied, WorkerError
from local_tp.runtime.crew import WorkerHealth
from local_tp.runtime.wire import Measured

PAGE_SIZE = 4


def letter(sequence: Sequence[int]) -> int:
    """One of 26 tokens, by all that stands before it."""
    return 66 + zlib.crc32(repr(tuple(sequence)).encode()) % 26


def score(sequence: Sequence[int], token: int, rivals: int) -> TokenLogprob:
    """A number that only this token after this sequence has."""
    value = -zlib.crc32(repr((*sequence, token)).encode()) / 2**32
    return TokenLogprob(
        token, value, tuple((letter(sequence) + i, -float(i)) for i in range(rivals))
    )


@dataclass
class FakeCrew:
    """`dies_at` and `breaks_at` are step numbers; `gate` holds every step until it is set."""

    next_token: Callable[[Sequence[int]], int] = letter
    dies_at: int | None = None
    breaks_at: int | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    measured: dict[int, Measured] = field(default_factory=lambda: {0: Measured(1, 2, 3.0)})
    steps: list[Step] = field(default_factory=list)
    most_under_way: int = 0
    began: threading.Event = field(default_factory=threading.Event)
    closed: int = 0
    at_close: Callable[[], None] = lambda: None
    _sent: deque[Step] = field(default_factory=deque)
    _stored: dict[tuple[int, int], int] = field(default_factory=dict)
    _told: dict[int, list[int]] = field(default_factory=dict)
    _failure: WorkerError | None = None
    _notify: Callable[[], None] = lambda: None

    def send(self, step: Step) -> None:
        self._sent.append(step)
        self.most_under_way = max(self.most_under_way, len(self._sent))

    def receive(self) -> tuple[RowResult, ...]:
        """The oldest step, which runs now: whatever was sent after it came too early to help it."""
        return self.run(self._sent.popleft())

    def run(self, step: Step) -> tuple[RowResult, ...]:
        self.began.set()
        assert self.gate.wait(10), "the test never opened the gate"
        if step.number == self.dies_at:
            self._failure = WorkerDied(0, "cpu", -9, "out of memory")
        if self._failure is not None:
            raise self._failure
        if step.number == self.breaks_at:
            raise ZeroDivisionError("a bug of ours\nin two lines")
        self.steps.append(step)
        owners = [page for row in step.rows for page in row.pages]
        assert len(owners) == len(set(owners)), "two rows of a step share a page"
        streams = [row.stream for row in step.rows]
        assert len(streams) == len(set(streams)), "two rows of a step share a stream"
        return tuple(self._result(row) for row in step.rows)

    def die(self) -> None:
        """End while nobody runs a step."""
        self._failure = WorkerDied(0, "cpu", -9, "out of memory")
        self._notify()

    def failure(self) -> WorkerError | None:
        return self._failure

    def watch(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def health(self) -> tuple[WorkerHealth, ...]:
        return (WorkerHealth(0, "cpu", 4711, self._failure is None and not self.closed),)

    def close(self) -> None:
        self.closed += 1
        self.at_close()

    def _result(self, row: Row) -> RowResult:
        stop = row.position + len(row.tokens)
        assert stop <= len(row.pages) * PAGE_SIZE
        places = [(page, offset) for page in row.pages for offset in range(PAGE_SIZE)][:stop]
        self._stored.update(zip(places[row.position :], row.tokens, strict=True))
        sequence = [self._stored[place] for place in places]
        if row.position == 0:
            self._told[row.stream] = []
        self._told[row.stream] += row.tokens
        assert self._told[row.stream] == sequence, "a stream has not the text of its row"
        assert row.history in ((), tuple(sequence))
        scores = tuple(
            score(sequence[: row.position + 1 + i], target, row.score or 0)
            for i, target in enumerate(row.targets)
        )
        if row.sampling is None:
            return RowResult(row.request, scores=scores)
        token, rivals = self.next_token(sequence), row.sampling.logprobs
        logprob = None if rivals is None else score(sequence, token, rivals)
        return RowResult(row.request, token, logprob, scores)
