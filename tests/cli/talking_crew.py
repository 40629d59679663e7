"""A crew that says one thing to every prompt, so that commands can be run without workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from local_tp.core import RowResult, Step
from local_tp.errors import WorkerError
from local_tp.runtime.crew import WorkerHealth
from local_tp.runtime.wire import Measured


@dataclass
class TalkingCrew:
    """`answer` ends with a stop token; after it comes more of the same."""

    answer: list[int]
    failure_at: int | None = None
    error: WorkerError | None = None
    measured: dict[int, Measured] = field(default_factory=lambda: {0: Measured(7, 8, 0.5)})
    closed: bool = False
    step: Step = field(default_factory=lambda: Step(0, ()))

    def send(self, step: Step) -> None:
        self.step = step

    def receive(self) -> tuple[RowResult, ...]:
        step = self.step
        if step.number == self.failure_at and self.error is not None:
            raise self.error
        results = []
        for row in step.rows:
            said = row.position + len(row.tokens) - row.prompt_length
            token = self.answer[said % len(self.answer)] if row.sampling else None
            results.append(RowResult(row.request, token))
        return tuple(results)

    def failure(self) -> WorkerError | None:
        return None

    def watch(self, notify: Callable[[], None]) -> None:
        pass

    def health(self) -> tuple[WorkerHealth, ...]:
        return ()

    def close(self) -> None:
        self.closed = True
