"""From a solution of the search to placements, and to the prediction of a runner-up.

Spans are laid end to end in rank order, so that every unit has one owner. Knows nothing of how a
solution was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import EMPTY, Placement, Span
from local_tp.plan.costs import Share
from local_tp.plan.predict import long_prompt
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.solve import Solution
from local_tp.plan.time import Rank, Stage, predict
from local_tp.plan.work import Work
from local_tp.prediction import Prediction
from local_tp.rates import Channel


def placements_of(problem: Problem, solution: Solution) -> tuple[Placement, ...]:
    """The ranks of a solution, without their memory."""
    d = problem.tables.spec.dimensions
    devices = problem.machine.devices
    placed: list[Placement] = []
    for stage, ranks in enumerate(solution.structure):
        layers, streamed = solution.spans[stage], solution.streamed[stage]
        shares = solution.shares[stage]
        query = _spans([share.query for share in shares])
        ffn = _spans([share.ffn for share in shares])
        experts = _spans([share.experts for share in shares])
        speaks = layers.start == 0 or layers.stop == d.layers
        vocab = _spans([share.vocab for share in shares])
        for at, index in enumerate(ranks):
            placed.append(
                Placement(
                    rank=len(placed),
                    device=devices[index].id,
                    stage=stage,
                    layers=layers,
                    query_heads=query[at],
                    kv_heads=_kv_heads(query[at], d.query_heads // d.kv_heads),
                    ffn=ffn[at],
                    vocab=vocab[at] if speaks else EMPTY,
                    experts=experts[at] if d.experts else EMPTY,
                    streamed=streamed,
                )
            )
    return tuple(placed)


def prediction_of(problem: Problem, solution: Solution, context: int, streams: int) -> Prediction:
    """Speeds of a solution, from the tables: what `plan.predict` says of its placements."""
    spec, machine = problem.tables.spec, problem.machine
    stages = [
        Stage(
            ranks=tuple(
                Rank(
                    _work(problem, i, layers, share, solution.streamed[at]),
                    machine.speed(i, ranks, machine.workers(i)),
                )
                for i, share in zip(ranks, shares, strict=True)
            ),
            total=machine.total(ranks, solution.transport) if len(ranks) > 1 else Channel(),
            onward=machine.onward(ranks, solution.structure[at + 1], solution.transport)
            if at + 1 < len(solution.structure)
            else Channel(),
        )
        for at, (ranks, layers, shares) in enumerate(
            zip(solution.structure, solution.spans, solution.shares, strict=True)
        )
    ]
    chunk = min(problem.tables.goal.chunk, context)
    hidden, prompt = spec.dimensions.hidden, long_prompt(context, chunk)
    return predict(stages, hidden, problem.rates, context, chunk, streams, prompt)


def _work(problem: Problem, index: int, layers: Span, share: Share, streamed: Span) -> Work:
    """A rank's work; of streamed layers the weights are copied for every step."""
    tables, kind = problem.tables, problem.machine.kind(index)
    work = tables.work(kind, layers, share)
    if not streamed.size:
        return work
    copied = tables.work(kind, streamed, share)
    return tuple(
        replace(part, streamed=more.weights + more.pool) if part.name != "head" else part
        for part, more in zip(work, copied, strict=False)
    )


def _spans(counts: Sequence[int]) -> list[Span]:
    spans, start = [], 0
    for count in counts:
        spans.append(Span(start, start + count))
        start += count
    return spans


def _kv_heads(query: Span, group: int) -> Span:
    first = query.start // group
    return Span(first, -(-query.stop // group)) if query.size else Span(first, first)
