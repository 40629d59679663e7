"""Layers that stay in the PC's memory give the very logits of layers that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from engines import planned

from local_tp.checkpoint.read import read
from local_tp.core import Goal, Placement, Plan, Row, Sampling, Span, Split, Step
from local_tp.runtime.crew import start_crew

PROMPT = tuple(range(1000, 1048))


def streaming(plan: Plan, count: int) -> Plan:
    """The last `count` layers of every stage streamed."""

    def change(p: Placement) -> Placement:
        return replace(p, streamed=Span(p.layers.stop - count, p.layers.stop))

    return replace(plan, placements=tuple(map(change, plan.placements)))


def logits(starter: Path, goal: Goal, ranks: int, count: int) -> list[bytes]:
    """Raw logits of a prompt in two chunks and of four tokens after it."""
    checkpoint = read(starter)
    plan, devices = planned(checkpoint, ranks, goal)
    plan = streaming(plan, count)
    crew = start_crew(checkpoint.spec, plan, devices, 1, lambda done, total: None)
    found: list[bytes] = []
    try:
        for measured, placement in zip(crew.measured.values(), plan.placements, strict=True):
            assert measured.weights > 0
            assert placement.streamed.size == count
        at = 0
        for tokens in (PROMPT[:40], PROMPT[40:], (11,), (12,), (13,), (14,)):
            row = Row(0, tokens, at, tuple(range(4)), Sampling(), logits=True)
            (result,) = crew.run(Step(at, (row,)))
            assert result.logits is not None
            found.append(result.logits)
            at += len(tokens)
    finally:
        crew.close()
    return found


@pytest.mark.parametrize(
    ("split", "ranks", "dtype", "count"),
    [
        ("single", 1, "auto", 5),
        ("single", 1, "float32", 30),
        ("layer", 2, "auto", 4),
        ("tensor", 2, "auto", 30),
    ],
)
def test_streamed_layers_change_no_logit(
    starter: Path, split: Split, ranks: int, dtype: str, count: int
) -> None:
    goal = Goal(split=split, dtype=dtype, context=128, streams=1)
    streamed, resident = (logits(starter, goal, ranks, n) for n in (count, 0))
    assert streamed == resident
    assert numpy.frombuffer(resident[0], "<f4").std() > 0.1


def test_the_device_holds_two_layers_of_those_that_are_streamed(starter: Path) -> None:
    checkpoint = read(starter)
    goal = Goal(split="single", dtype="bfloat16", context=64, streams=1)
    plan, devices = planned(checkpoint, 1, goal)
    weights = []
    for count in (0, 2, 20):
        crew = start_crew(
            checkpoint.spec, streaming(plan, count), devices, 1, lambda done, total: None
        )
        weights.append(crew.measured[0].weights)
        crew.close()
    layer = 2 * sum(
        t.shape[0] * t.shape[1]
        for name, t in checkpoint.spec.tensors.items()
        if name.startswith("layers.3.") and len(t.shape) == 2
    )
    assert weights[1] == weights[0], "two layers take two buffers"
    assert weights[2] == weights[0] - 18 * layer
