"""Every split, in real processes, against transformers reading the same file.

In float32 the greedy tokens must be the same and the logits equal to 1e-4 relative, whatever the
number of workers and however the heads, columns and layers are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest
import torch
from engines import running
from transformers import AutoModelForCausalLM

from local_tp.core import Goal, Row, Sampling, Split, Step

TOKENS = 24
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Il était une fois, dans un petit village,",
)
SPLITS: tuple[tuple[Split, int], ...] = (
    ("single", 1),
    ("layer", 2),
    ("layer", 3),
    ("tensor", 2),
    ("tensor", 3),
    ("tensor", 4),
    ("hybrid", 3),
)


@dataclass(frozen=True)
class Reference:
    """What transformers says to one prompt."""

    prompt: list[int]
    tokens: list[int]
    logits: numpy.ndarray  # of the prompt's last token


@pytest.fixture(scope="module")
def references(starter: Path) -> list[Reference]:
    from local_tp.checkpoint.read import read
    from local_tp.engine.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_spec(read(starter).text)
    model = AutoModelForCausalLM.from_pretrained(
        starter.parent, gguf_file=starter.name, dtype=torch.float32
    )
    found = []
    for text in PROMPTS:
        prompt = tokenizer.encode(text)
        ids = torch.tensor([prompt])
        with torch.no_grad():
            logits = model(ids).logits[0, -1].numpy()
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
        found.append(Reference(prompt, out[0, len(prompt) :].tolist(), logits))
    return found


@pytest.mark.parametrize(("split", "ranks"), SPLITS, ids=lambda v: str(v))
def test_float32_equals_transformers(
    starter: Path, references: list[Reference], split: Split, ranks: int
) -> None:
    goal = Goal(split=split, dtype="float32", context=256, streams=8)
    with running(starter, ranks, goal) as (engine, crew):
        assert len(crew.health()) == ranks
        for reference in references:
            row = Row(0, tuple(reference.prompt), 0, tuple(range(4)), logits=True)
            (result,) = crew.run(Step(0, (row,)))
            logits = numpy.frombuffer(result.logits, "<f4")
            scale = numpy.abs(reference.logits).max()
            assert numpy.abs(logits - reference.logits).max() <= 1e-4 * scale
        generations = [
            engine.submit(reference.prompt, Sampling(), max_tokens=TOKENS)
            for reference in references
        ]
        for reference, generation in zip(references, generations, strict=True):
            assert list(generation.result().tokens) == reference.tokens


def test_gloo_gives_the_same_tokens(starter: Path, references: list[Reference]) -> None:
    """The fallback for machines without ordered shared memory, over two stages and a group."""
    goal = Goal(split="hybrid", dtype="float32", context=256, streams=2)
    with running(starter, 3, goal, transport="gloo") as (engine, _):
        for reference in references:
            generation = engine.submit(reference.prompt, Sampling(), max_tokens=TOKENS)
            assert list(generation.result().tokens) == reference.tokens


@pytest.mark.parametrize(
    ("split", "dtype", "chunk"),
    [
        ("tensor", "auto", 512),
        ("tensor", "float32", 512),
        ("layer", "auto", 16),  # chunks and tokens of several are under way at once
    ],
)
def test_eight_at_once_get_the_text_they_would_have_had_alone(
    starter: Path, split: Split, dtype: str, chunk: int
) -> None:
    goal = Goal(split=split, dtype=dtype, context=512, streams=8, chunk=chunk)
    with running(starter, 2, goal) as (engine, _):
        prompts = [
            engine.chat_prompt([{"role": "user", "content": text}])
            for text in (
                "Name three colours.",
                "Why is the sky blue?",
                "Write a haiku about autumn.",
                "What is 12 + 30?",
                "Translate 'good morning' to Spanish.",
                "Give me a recipe for pancakes, with all the steps in order, please.",
                "Who wrote Hamlet?",
                "List the planets of the solar system.",
            )
        ]
        samplings = [Sampling() if i % 2 else Sampling(temperature=0.8, seed=i) for i in range(8)]
        asked = list(zip(prompts, samplings, strict=True))
        alone = [engine.submit(p, s, max_tokens=20).result().text for p, s in asked]
        together = [engine.submit(p, s, max_tokens=20) for p, s in asked]
        assert [generation.result().text for generation in together] == alone
        assert len(set(alone)) == 8
