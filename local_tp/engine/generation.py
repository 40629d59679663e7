"""A request's answer as it comes: chunks of text from the engine's thread to whoever asked.

Knows nothing of models or workers. A generation ends once, with a finish reason or an error; the
error is raised to the reader, after the chunks that came before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from local_tp.core import FinishReason, TokenLogprob
from local_tp.errors import LocalTpError


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that is now certain, and the tokens that were produced since the last chunk.

    `text` may be empty (half a character, or a possible stop string is held back) and may lag
    behind `tokens`.
    """

    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds since submission; `decode_tps` counts the tokens after the first."""

    prompt_tokens: int
    completion_tokens: int
    first_token: float | None
    total: float

    @property
    def prefill_tps(self) -> float | None:
        return self.prompt_tokens / self.first_token if self.first_token else None

    @property
    def decode_tps(self) -> float | None:
        if self.first_token is None or self.completion_tokens < 2:
            return None
        return (self.completion_tokens - 1) / max(self.total - self.first_token, 1e-9)


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    timings: Timings


@dataclass(slots=True)
class _End:
    reason: FinishReason
    error: LocalTpError | None = None


@dataclass
class Generation:
    """The reader's end. Read it once, by iteration, by `stream()` or by `result()`."""

    id: int
    prompt: tuple[int, ...]
    on_cancel: Callable[[int], None]
    prompt_scores: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    _events: queue.SimpleQueue[Chunk | _End] = field(default_factory=queue.SimpleQueue)
    _wake: Callable[[], None] | None = None
    _started: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _last: float | None = None
    _count: int = 0

    def cancel(self) -> None:
        """Stop producing; the pages are free after the step under way. Safe from any thread."""
        self.on_cancel(self.id)

    @property
    def timings(self) -> Timings:
        end = self._last or time.perf_counter()
        return Timings(
            prompt_tokens=len(self.prompt),
            completion_tokens=self._count,
            first_token=None if self._first is None else self._first - self._started,
            total=end - self._started,
        )

    # The engine's end, called from its thread alone.

    def push(self, chunk: Chunk) -> None:
        now = time.perf_counter()
        if chunk.tokens:
            self._first = self._first or now
            self._last = now
            self._count += len(chunk.tokens)
        self._put(chunk)

    def finish(self, reason: FinishReason, error: LocalTpError | None = None) -> None:
        self._put(_End(reason, error))

    def _put(self, event: Chunk | _End) -> None:
        self._events.put(event)
        wake = self._wake  # the reader may take it away meanwhile
        if wake is not None:
            wake()

    # The reader's end.

    def __iter__(self) -> Iterator[Chunk]:
        """Chunks until the end, blocking.

        Raises the engine's error (`WorkerDied`, `WorkerFault`) if the request ends by one.
        """
        while True:
            event = self._events.get()
            if isinstance(event, _End):
                return self._end(event)
            yield event

    async def stream(self) -> AsyncIterator[Chunk]:
        """The same for an event loop. Leaving it early cancels the request."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # A loop that was closed has no reader left to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.set)

        self._wake = wake
        try:
            while True:
                try:
                    event = self._events.get_nowait()
                except queue.Empty:
                    await arrived.wait()
                    arrived.clear()
                    continue
                if isinstance(event, _End):
                    self._end(event)
                    return
                yield event
        finally:
            self._wake = None
            if self.finish_reason is None:
                self.cancel()

    def result(self) -> Completion:
        """The whole answer, blocking."""
        text: list[str] = []
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        for chunk in self:
            text.append(chunk.text)
            tokens += chunk.tokens
            logprobs += chunk.logprobs
        assert self.finish_reason is not None
        return Completion(
            "".join(text), tuple(tokens), tuple(logprobs), self.finish_reason, self.timings
        )

    def _end(self, end: _End) -> None:
        self.finish_reason = end.reason
        if end.error is not None:
            raise end.error
