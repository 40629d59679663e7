"""The engine: text and requests in, text out, over one or several replicas of the model.

Torch-free and ignorant of HTTP and pages of chat. A `Crew` for each replica is its only way to a
model. A request goes to the replica with most room and stays there; may be called from any thread.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_tp.core import ModelSpec, Plan, Sampling
from local_tp.engine.generation import Generation
from local_tp.engine.replica import Replica
from local_tp.engine.request import Request
from local_tp.engine.template import ChatTemplate, encode_chat
from local_tp.engine.textstream import TextStream
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import InputError, LocalTpError, PromptTooLong
from local_tp.runtime.crew import Crew, WorkerHealth
from local_tp.runtime.wire import Measured


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` is whether all of it works; `detail` says what is wrong.

    `state` is ready, failed or closed, or degraded where some replicas have failed and the others
    go on serving.
    """

    ok: bool
    state: str
    detail: str
    workers: tuple[WorkerHealth, ...]
    running: int
    waiting: int


class Engine:
    """One loaded model.

    `start_crews` makes the workers, a crew for each replica: a restart will be a second call.
    `on_failure` is told, on a replica's thread, what ended its workers.
    """

    def __init__(
        self,
        model: str,
        spec: ModelSpec,
        plan: Plan,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        start_crews: Callable[[], Sequence[Crew]],
        on_failure: Callable[[LocalTpError], None] = lambda error: None,
    ) -> None:
        self.model, self.spec, self.plan = model, spec, plan
        self.tokenizer, self.template = tokenizer, template
        self._replicas = [Replica(plan, crew, on_failure) for crew in start_crews()]
        self._ids = itertools.count(1)
        self._choice = threading.Lock()  # who chooses counts what was chosen before

    @property
    def context(self) -> int:
        """Tokens that one request may have in all."""
        return self.plan.context

    @property
    def measured(self) -> dict[int, Measured]:
        """What each rank really took, all replicas one after another."""
        return {rank: m for replica in self._replicas for rank, m in replica.measured.items()}

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
        the failure if no replica is left.
        """
        self._able()
        self._check(prompt, max_tokens)
        room = self.context - len(prompt)
        id = next(self._ids)
        generation = Generation(id, tuple(prompt), self._cancel)
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
        with self._choice:
            min(self._able(), key=lambda replica: replica.waiting_tokens).submit(request)
        return generation

    def health(self) -> Health:
        """The state now. A dead worker shows here at once, whether or not a request runs."""
        replicas = self._replicas
        failures = [replica.failure for replica in replicas if replica.failure is not None]
        closed = any(replica.closed for replica in replicas)
        state, detail = "ready", ""
        if failures:
            state, detail = "failed", str(failures[0])
            if len(failures) < len(replicas):
                count = f"{len(failures)} of {len(replicas)} replicas failed"
                state, detail = "degraded", f"{count}, the others go on: {detail}"
        return Health(
            ok=not failures and not closed,
            state="closed" if closed else state,
            detail=detail,
            workers=tuple(worker for replica in replicas for worker in replica.workers()),
            running=sum(replica.running for replica in replicas),
            waiting=sum(replica.waiting for replica in replicas),
        )

    def stop(self) -> None:
        """Begin to close, without waiting: safe in a signal handler."""
        for replica in self._replicas:
            replica.stop()

    def close(self) -> None:
        """End every request as cancelled and every worker; returns when they are gone."""
        self.stop()
        for replica in self._replicas:
            replica.join()

    def _cancel(self, request: int) -> None:
        for replica in self._replicas:
            replica.cancel(request)

    def _able(self) -> list[Replica]:
        """The replicas that have not failed. Raises the first failure if there are none."""
        failures = [replica.failure for replica in self._replicas]
        able = [r for r, failure in zip(self._replicas, failures, strict=True) if failure is None]
        if not able and failures[0] is not None:
            # One error for many callers: each would leave its frames, and its prompt, on it.
            raise failures[0].with_traceback(None)
        return able

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
