"""A small engine for the page's tests: real generations, scripted text, no model.

Its words are pushed by a thread, as the real engine does; `hold` keeps an answer from going on
after its first word until it is cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local_tp.core import Goal, Placement, Plan, Sampling, Span
from local_tp.engine.generation import Chunk, Generation
from local_tp.errors import LocalTpError, PromptTooLong
from local_tp.prediction import Memory, Prediction

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FakeWorker:
    rank: int
    device: str
    pid: int | None
    alive: bool


@dataclass(frozen=True, slots=True)
class FakeHealth:
    ok: bool
    state: str
    detail: str
    workers: tuple[FakeWorker, ...]
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class FakeMeasured:
    weights: int
    resident: int
    load_seconds: float


def placement(rank: int, device: str = "cpu", stage: int = 0) -> Placement:
    return Placement(
        rank=rank,
        device=device,
        stage=stage,
        layers=Span(0, 30),
        query_heads=Span(3 * rank, 3 * rank + 3),
        kv_heads=Span(rank, rank + 1),
        ffn=Span(512 * rank, 512 * rank + 512),
        vocab=Span(1024 * rank, 1024 * rank + 1024),
        memory=Memory(
            weights=(40 + rank) * MIB,
            kv=20 * MIB,
            activations=6 * MIB,
            logits=3 * MIB,
            exchange=MIB,
        ),
    )


def plan(*placements: Placement, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "model": "small",
        "goal": Goal(),
        "placements": placements,
        "transport": "shared-memory",
        "context": 100,
        "page_size": 16,
        "pages": 64,
        "split": "tensor",
        "prediction": Prediction(912.0, 58.31, 0.5614, 160.0, "memory bandwidth on cpu"),
    }
    return Plan(**(values | changes))


@dataclass
class FakeEngine:
    words: tuple[str, ...] = ("One ", "two ", "three.")
    failure: LocalTpError | None = None  # ends the answer after its words
    refusal: LocalTpError | None = None  # raised by the chat template
    hold: bool = False
    model: str = "small"
    context: int = 100
    plan: Plan = field(default_factory=lambda: plan(placement(0), placement(1)))
    measured: Mapping[int, FakeMeasured] = field(default_factory=dict)
    asked: list[list[dict[str, Any]]] = field(default_factory=list)
    samplings: list[tuple[Sampling, int | None]] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def chat_prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        if self.refusal:
            raise self.refusal
        self.asked.append(messages)
        return [token for m in messages for token in m["content"].encode()]

    def submit(
        self, prompt: list[int], sampling: Sampling, *, max_tokens: int | None = None
    ) -> Generation:
        if len(prompt) > self.context:
            raise PromptTooLong(len(prompt), self.context)
        self.samplings.append((sampling, max_tokens))
        generation = Generation(0, tuple(prompt), lambda _: self.cancelled.set())
        self.generations.append(generation)
        threading.Thread(target=self._produce, args=(generation,), daemon=True).start()
        return generation

    def health(self) -> FakeHealth:
        workers = tuple(
            FakeWorker(p.rank, p.device, 100 + p.rank, True) for p in self.plan.placements
        )
        return FakeHealth(True, "ready", "", workers)

    def _produce(self, generation: Generation) -> None:
        for number, word in enumerate(self.words):
            if number and self.hold and self.cancelled.wait(10):
                generation.finish("cancelled")
                return
            generation.push(Chunk(word, (number,)))
        generation.finish("error" if self.failure else "stop", self.failure)
