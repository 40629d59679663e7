"""The engine: requests in, text out, one thread that schedules, runs and accounts.

Torch-free and ignorant of HTTP and pages of chat. `Crew` is its only way to a model. Requests are
submitted and cancelled from any thread; everything else happens on the engine's own.
"""

from __future__ import annotations

import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_tp.core import FinishReason, ModelSpec, Plan, Sampling
from local_tp.engine.generation import Generation
from local_tp.engine.pages import PagePool
from local_tp.engine.request import Request
from local_tp.engine.scheduler import Scheduler
from local_tp.engine.template import ChatTemplate, encode_chat
from local_tp.engine.textstream import TextStream
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import InputError, LocalTpError, PromptTooLong
from local_tp.runtime.crew import Crew, WorkerHealth
from local_tp.runtime.wire import Measured


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` is whether a request would be served now; `detail` says what is wrong."""

    ok: bool
    state: str
    detail: str
    workers: tuple[WorkerHealth, ...]
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class _Cancel:
    request: int


@dataclass(frozen=True, slots=True)
class _Wake:
    pass


@dataclass(frozen=True, slots=True)
class _Close:
    pass


class Engine:
    """One loaded model.

    `start_crew` makes its workers: a restart will be a second call. `on_failure` is told, on the
    engine's thread, what ended them.
    """

    def __init__(
        self,
        model: str,
        spec: ModelSpec,
        plan: Plan,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        start_crew: Callable[[], Crew],
        on_failure: Callable[[LocalTpError], None] = lambda error: None,
    ) -> None:
        self.model, self.spec, self.plan = model, spec, plan
        self.tokenizer, self.template = tokenizer, template
        self._crew = start_crew()
        self._scheduler = Scheduler(
            PagePool(plan.pages, plan.page_size), plan.goal.streams, plan.goal.chunk
        )
        self._requests: dict[int, Request] = {}
        self._ids = itertools.count(1)
        self._inbox: queue.SimpleQueue[Request | _Cancel | _Wake | _Close] = queue.SimpleQueue()
        self._failure: LocalTpError | None = None
        self._on_failure = on_failure
        self._closed = False
        self._door = threading.Lock()  # what was let in before closing is in the inbox by then
        self._crew.watch(lambda: self._inbox.put(_Wake()))
        self._inbox.put(_Wake())  # a worker may have died before anybody watched
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def context(self) -> int:
        """Tokens that one request may have in all."""
        return self.plan.context

    @property
    def measured(self) -> dict[int, Measured]:
        """What each rank really took."""
        return self._crew.measured

    def text_prompt(self, text: str) -> list[int]:
        """Token ids of a raw prompt."""
        return self.tokenizer.encode(text)

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Token ids of a conversation, up to where the answer begins. Raises `TemplateError`."""
        text = self.template.render(messages, tools=tools, **variables)
        return encode_chat(self.tokenizer, text)

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        score_prompt: int | None = None,
        continues: bool = False,
    ) -> Generation:
        """Queue a request. `max_tokens` defaults to what the context leaves.

        The answer of a raw prompt `continues` its text, that of a conversation begins anew.
        `score_prompt` asks for the log probability, and that many rivals, of every prompt token
        after the first. Raises `PromptTooLong`, `InputError` for an empty or foreign prompt, and
        the crew's failure if there is one.
        """
        if self._failure is not None:
            # One error for many callers: each would leave its frames, and its prompt, on it.
            raise self._failure.with_traceback(None)
        self._check(prompt, max_tokens)
        room = self.context - len(prompt)
        id = next(self._ids)
        generation = Generation(id, tuple(prompt), lambda id: self._inbox.put(_Cancel(id)))
        request = Request(
            id=id,
            prompt=tuple(prompt),
            sampling=sampling,
            max_tokens=room if max_tokens is None else min(max_tokens, room),
            generation=generation,
            text=TextStream(self.tokenizer, stop, continues=continues),
            stop_ids=frozenset() if ignore_eos else self.tokenizer.stop_ids,
            score=score_prompt,
        )
        with self._door:
            if self._closed:
                raise LocalTpError("the engine is closed: start local-tp again")
            self._inbox.put(request)
        return generation

    def health(self) -> Health:
        """The state now. A dead worker shows here at once, whether or not a request runs."""
        failure = self._failure or self._crew.failure()
        return Health(
            ok=failure is None and not self._closed,
            state="closed" if self._closed else "ready" if failure is None else "failed",
            detail="" if failure is None else str(failure),
            workers=self._crew.health(),
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
        )

    def stop(self) -> None:
        """Begin to close, without waiting: safe in a signal handler."""
        self._inbox.put(_Close())

    def close(self) -> None:
        """End every request as cancelled and every worker; returns when they are gone."""
        self.stop()
        self._thread.join()

    def _check(self, prompt: Sequence[int], max_tokens: int | None) -> None:
        if not prompt:
            raise InputError("the prompt is empty: give at least one token")
        if len(prompt) >= self.context:
            raise PromptTooLong(
                len(prompt) + 1,
                self.context,
                "prompt with one token of answer",
                self.spec.dimensions.context,
            )
        if max_tokens is not None and max_tokens < 0:
            raise InputError(f"max_tokens {max_tokens} is negative: give 0 or more")
        vocab = self.spec.dimensions.vocab
        foreign = next((token for token in prompt if not 0 <= token < vocab), None)
        if foreign is not None:
            raise InputError(f"token {foreign} is not in the vocabulary of {vocab:,}")

    def _work(self) -> None:
        while not self._closed:
            try:
                self._receive(block=not self._busy)
                if not self._closed:
                    self._step()
            except LocalTpError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001  a fault of ours must not leave readers waiting
                traceback.print_exc()
                self._fail(LocalTpError(f"the engine failed ({error!r}): start local-tp again"))
        self._crew.close()
        self._receive(block=False)

    @property
    def _busy(self) -> bool:
        return bool(self._requests) and self._failure is None

    def _receive(self, block: bool) -> None:
        """Take in what was submitted, cancelled or reported since the last step."""
        while True:
            try:
                item = self._inbox.get(block)
            except queue.Empty:
                return
            block = False
            if isinstance(item, Request):
                self._accept(item)
            elif isinstance(item, _Cancel) and item.request in self._requests:
                self._finish(self._requests[item.request], "cancelled")
            elif isinstance(item, _Close):
                with self._door:
                    self._closed = True
                for request in list(self._requests.values()):
                    self._finish(request, "cancelled")
            elif isinstance(item, _Wake) and self._failure is None and not self._closed:
                self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._crew.failure()
        if failure is not None:
            raise failure

    def _accept(self, request: Request) -> None:
        if self._failure is not None:
            request.generation.finish("error", self._failure)
            return
        if self._closed:
            request.generation.finish("cancelled")
            return
        self._requests[request.id] = request
        self._scheduler.add(request)

    def _step(self) -> None:
        step = self._scheduler.next()
        if step is None:
            return
        for row, result in zip(step.rows, self._crew.run(step), strict=True):
            request = self._requests[row.request]
            ended = request.take(row, result)
            if ended is not None:
                self._finish(request, ended)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        self._scheduler.remove(request)
        del self._requests[request.id]
        request.generation.finish(reason)

    def _fail(self, error: LocalTpError) -> None:
        """End every request by `error`; the crew is gone and its memory free."""
        self._failure = error
        self._on_failure(error)
        self._crew.close()
        for request in list(self._requests.values()):
            self._scheduler.remove(request)
            del self._requests[request.id]
            request.generation.finish("error", error)
