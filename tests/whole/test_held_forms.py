"""Forms of weights and of keys and values that a person may choose, on the processor.

Each against float32 throughout: the logits differ by what the form rounds, and not by more.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from engines import running

from local_tp.core import Dtype, Goal, KvFormat, Row, Split, Step

PROMPT = tuple(range(1000, 1070))


def logits(
    starter: Path, split: Split, ranks: int, dtype: Dtype, kv_format: KvFormat
) -> numpy.ndarray:
    """(positions, vocab): of a prompt in two chunks, and of single tokens after it."""
    goal = Goal(split=split, dtype=dtype, kv_format=kv_format, context=128, streams=1)
    found, at = [], 0
    with running(starter, ranks, goal) as (_, crew):
        for tokens in (PROMPT[:40], PROMPT[40:60], *((token,) for token in PROMPT[60:])):
            row = Row(0, tokens, at, (2, 0, 1), logits=True)  # pages are gathered
            (result,) = crew.run(Step(at, (row,)))
            found.append(numpy.frombuffer(result.logits, "<f4"))
            at += len(tokens)
    return numpy.stack(found)


def divergence(p: numpy.ndarray, q: numpy.ndarray) -> float:
    """The largest Kullback-Leibler divergence of any position."""
    p, q = (x - x.max(1, keepdims=True) for x in (p.astype(float), q.astype(float)))
    p, q = (x - numpy.log(numpy.exp(x).sum(1, keepdims=True)) for x in (p, q))
    return float((numpy.exp(p) * (p - q)).sum(1).max())


@pytest.fixture(scope="module")
def exact(starter: Path) -> numpy.ndarray:
    return logits(starter, "single", 1, "float32", "float32")


@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("tensor", 2)])
@pytest.mark.parametrize(
    ("dtype", "kv_format", "least", "most"),
    [
        ("float32", "bfloat16", 1e-7, 2e-3),
        ("float32", "float16", 1e-9, 1e-4),
        ("bfloat16", "float32", 1e-6, 5e-3),
        ("float16", "float32", 1e-9, 1e-3),
        ("int8", "float32", 1e-5, 3e-2),
        ("int8", "float16", 1e-5, 3e-2),
        ("auto", "bfloat16", 1e-5, 3e-2),
    ],
)
def test_a_form_rounds_as_much_as_it_must(
    starter: Path,
    exact: numpy.ndarray,
    split: Split,
    ranks: int,
    dtype: Dtype,
    kv_format: KvFormat,
    least: float,
    most: float,
) -> None:
    found = logits(starter, split, ranks, dtype, kv_format)
    assert least < divergence(exact, found) < most
