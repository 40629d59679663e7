"""An engine without a model: it says what it was told to, a byte a token, from its own threads.

It answers with real `Generation`s, so what the API sees of timing, cancelling and failing is what
the real engine shows it.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from local_tp.core import Dimensions, ModelSpec, Sampling, TokenLogprob
from local_tp.engine.generation import Chunk, Generation
from local_tp.errors import LocalTpError, PromptTooLong
from local_tp.traits import Traits

BEGIN, END = 256, 257


class ByteTokenizer:
    """A token is a byte; two more begin and end a text."""

    control_ids = frozenset({BEGIN, END})

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        kept = [t for t in tokens if not (skip_special and t in self.control_ids)]
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return {BEGIN: b"<begin>", END: b"<end>"}.get(token) or bytes([token])

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ScriptedWorker:
    rank: int
    device: str
    pid: int | None
    alive: bool


@dataclass(frozen=True, slots=True)
class ScriptedHealth:
    ok: bool = True
    state: str = "ready"
    detail: str = "2 workers"
    workers: tuple[ScriptedWorker, ...] = (ScriptedWorker(0, "cpu", 4711, True),)
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Submitted:
    """What the API asked of the engine."""

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    score_prompt: int | None
    continues: bool


@dataclass
class ScriptedEngine:
    """Says `answer`, or `answers[i]` to the i-th submission, then fails with `error` if set."""

    model: str = "tiny/bytes-Q4_1.gguf"
    context: int = 64
    answer: str = "Grüße ☕!"
    answers: dict[int, str] = field(default_factory=dict)
    error: LocalTpError | None = None
    pause: float = 0.0
    template_error: LocalTpError | None = None
    state: ScriptedHealth = field(default_factory=ScriptedHealth)
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    submitted: list[Submitted] = field(default_factory=list)
    conversations: list[list[dict[str, Any]]] = field(default_factory=list)
    variables: list[dict[str, Any]] = field(default_factory=list)
    cancelled: dict[int, threading.Event] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    @property
    def spec(self) -> ModelSpec:
        sizes = Dimensions(1, 1, 1, 1, 1, 1, vocab=258, context=self.context)
        return ModelSpec(self.model, "", "llama", sizes, Traits(), {})

    def chat_prompt(self, messages: list[dict[str, Any]], **variables: Any) -> list[int]:
        self.conversations.append(messages)
        self.variables.append(variables)
        if self.template_error is not None:
            raise self.template_error
        return [BEGIN, *"".join(message["content"] for message in messages).encode()]

    def text_prompt(self, text: str) -> list[int]:
        return [BEGIN, *text.encode()]

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        score_prompt: int | None = None,
        continues: bool = False,
    ) -> Generation:
        if len(prompt) >= self.context:
            raise PromptTooLong(len(prompt) + 1, self.context)
        number = len(self.submitted)
        asked = Submitted(tuple(prompt), sampling, max_tokens, tuple(stop), score_prompt, continues)
        self.submitted.append(asked)
        left = self.cancelled[number] = threading.Event()
        generation = Generation(number, asked.prompt, lambda _: left.set())
        if score_prompt is not None:
            generation.prompt_scores = tuple(score(t, score_prompt) for t in prompt[1:])
        thread = threading.Thread(target=self._say, args=(generation, asked, left))
        self.threads.append(thread)
        thread.start()
        return generation

    def health(self) -> ScriptedHealth:
        return self.state

    def close(self) -> None:
        for left in self.cancelled.values():
            left.set()
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()

    def _say(self, generation: Generation, asked: Submitted, left: threading.Event) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        tokens = self.answers.get(generation.id, self.answer).encode()
        text = ""
        for token in tokens[: asked.max_tokens]:
            if left.wait(self.pause) if self.pause else left.is_set():
                return generation.finish("cancelled")
            piece = decoder.decode(bytes([token]))
            text += piece
            scores = (
                () if asked.sampling.logprobs is None else score(token, asked.sampling.logprobs)
            )
            generation.push(Chunk(piece, (token,), (scores,) if scores else ()))
            if any(text.endswith(ending) for ending in asked.stop):
                return generation.finish("stop")
        if self.error is not None:
            return generation.finish("error", self.error)
        limit = len(tokens) if asked.max_tokens is None else asked.max_tokens
        return generation.finish("length" if limit < len(tokens) else "stop")


def score(token: int, alternatives: int) -> TokenLogprob:
    """A token's log probability is a hundredth of its number, below zero; rivals follow it."""
    rivals = tuple((token + i, -(token + i) / 100) for i in range(alternatives))
    return TokenLogprob(token, -token / 100, rivals)
