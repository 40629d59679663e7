"""The parts an engine needs around a fake crew, and what its answers ought to be."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fake_crew import PAGE_SIZE, FakeCrew, letter, score
from tokenizers import pre_tokenizers

from local_tp.core import Dimensions, Goal, ModelSpec, Placement, Plan, Sampling, Span, TokenLogprob
from local_tp.engine.engine import Engine
from local_tp.engine.generation import Completion, Generation
from local_tp.engine.request import Request
from local_tp.engine.template import ChatTemplate
from local_tp.engine.textstream import TextStream
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import LocalTpError
from local_tp.text import TextSpec
from local_tp.traits import Traits

BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
END = len(BYTES)  # the one token that ends a turn
TOKENIZER = Tokenizer.from_spec(
    TextSpec(
        "gpt2",
        tokens=(*BYTES, "<end>"),
        token_types=(1,) * len(BYTES) + (3,),
        eos=END,
        stop_ids=(END,),
    )
)
VOCAB = 300  # more than the tokenizer has, as in many checkpoints
CONTEXT = 64
Next = Callable[[Sequence[int]], int]


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)


def says(text: str, after: int) -> Next:
    """A model that says `text` and ends its turn, whatever the `after` tokens before it were."""
    answer = [*ids(text), END]
    return lambda sequence: answer[len(sequence) - after]


def alone(prompt: Sequence[int], tokens: int, next_token: Next = letter) -> tuple[int, ...]:
    """The first `tokens` tokens of the answer to `prompt`, without engine, pages or company."""
    sequence = list(prompt)
    for _ in range(tokens):
        sequence.append(next_token(sequence))
    return tuple(sequence[len(prompt) :])


def prompts(count: int, lengths: Sequence[int] = (5, 1, 17, 9, 30, 2, 12, 8)) -> list[list[int]]:
    """`count` different prompts."""
    return [
        [(7 * i + 3 * at) % 256 for at in range(lengths[i % len(lengths)])] for i in range(count)
    ]


@contextmanager
def running(
    *crews: FakeCrew,
    pages: int = 128,
    streams: int = 8,
    chunk: int = 8,
    stages: int = 1,
    held: bool = False,
    told: Callable[[LocalTpError], None] = lambda error: None,
) -> Iterator[Engine]:
    """An engine over `crews`, closed at the end; `held` leaves the crews' gates shut.

    `told` hears of failures.
    """
    whole = Span(0, 1)
    places = [
        Placement(stage, "cpu", stage, whole, whole, whole, whole, Span(0, VOCAB))
        for stage in range(stages)
    ]
    plan = Plan(
        model="tiny",
        goal=Goal(streams=streams, chunk=chunk),
        placements=tuple(places),
        transport="none",
        context=CONTEXT,
        page_size=PAGE_SIZE,
        pages=pages,
    )
    spec = ModelSpec("tiny", "", "llama", Dimensions(1, 1, 1, 1, 1, 1, VOCAB, 64), Traits(), {})
    if not held:
        open_gates(crews)
    template = ChatTemplate("{{ messages }}")
    engine = Engine("tiny", spec, plan, TOKENIZER, template, lambda: crews, told)
    try:
        yield engine
    finally:
        open_gates(crews)
        engine.close()


def open_gates(crews: Sequence[FakeCrew]) -> None:
    for crew in crews:
        crew.gate.set()


def end_of(generation: Generation, within: float = 5.0) -> Completion:
    """The whole answer, or the error it ended by; a reader that hangs fails the test instead."""
    box: queue.SimpleQueue[Completion | Exception] = queue.SimpleQueue()

    def read() -> None:
        try:
            box.put(generation.result())
        except Exception as error:  # noqa: BLE001  it is raised again in the test's own thread
            box.put(error)

    threading.Thread(target=read, daemon=True).start()
    end = box.get(timeout=within)
    if isinstance(end, Exception):
        raise end
    return end


def request(
    number: int,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    scored: int | None = None,
) -> Request:
    """A request as the engine makes it, for tests below the engine."""
    return Request(
        id=number,
        prompt=tuple(prompt),
        sampling=sampling or Sampling(),
        max_tokens=max_tokens,
        generation=Generation(number, tuple(prompt), lambda _: None),
        text=TextStream(TOKENIZER, stop, continues=True),
        stop_ids=TOKENIZER.stop_ids,
        score=scored,
    )


def scores_of(prompt: Sequence[int], rivals: int) -> tuple[TokenLogprob, ...]:
    """What the fake crew says of every prompt token after the first."""
    return tuple(score(prompt[:i], prompt[i], rivals) for i in range(1, len(prompt)))
