"""Cutting layers, heads, columns and rows into spans by weight, at a grain.

Pure integer arithmetic. Every unit is owned exactly once; only KV heads are ever replicated, and
then their query heads are divided. A share may be empty where a weight is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from local_tp.core import Span
from local_tp.errors import PlanError


def apportion(units: int, weights: Sequence[float]) -> list[int]:
    """`units` whole things by weight, by largest remainder; ties go to the lower index."""
    exact = [Fraction(w) for w in weights]
    total = sum(exact)
    if total <= 0 or min(exact) < 0:
        raise PlanError("shares must be positive numbers")
    quotas = [units * w / total for w in exact]
    counts = [int(q) for q in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: (counts[i] - quotas[i], i))
    for i in by_remainder[: units - sum(counts)]:
        counts[i] += 1
    return counts


def cut(total: int, weights: Sequence[float], grain: int = 1) -> list[Span]:
    """Contiguous spans over [0, total) by weight; inner boundaries are multiples of `grain`.

    A remainder smaller than the grain goes to the last rank that owns anything.
    """
    counts = [count * grain for count in apportion(total // grain, weights)]
    owners = [i for i, count in enumerate(counts) if count] or [0]
    counts[owners[-1]] += total % grain
    return _spans(counts)


def grain_of(total: int, grain: int, ranks: int) -> int:
    """The largest halving of `grain` at which every rank can own something."""
    while grain > 1 and grain % 2 == 0 and total // grain < ranks:
        grain //= 2
    return grain


def cut_layers(costs: Sequence[float], speeds: Sequence[float]) -> list[Span]:
    """Contiguous runs of layers, one a stage, that make the slowest stage as fast as can be.

    `costs` is the bytes of each layer, `speeds` the bytes a second of each stage. Exact, by
    dynamic programming over (stages, layers).
    """
    layers, stages = len(costs), len(speeds)
    if layers < stages:
        raise PlanError(f"{stages} stages need at least {stages} layers, the model has {layers}")
    prefix = [0.0]
    for cost in costs:
        prefix.append(prefix[-1] + cost)
    infinite = float("inf")
    best = [0.0] + [infinite] * layers
    choices: list[list[int]] = []
    for speed in speeds:
        reached, choice = [infinite] * (layers + 1), [0] * (layers + 1)
        for stop in range(1, layers + 1):
            for start in range(stop):
                worst = max(best[start], (prefix[stop] - prefix[start]) / speed)
                if worst < reached[stop]:
                    reached[stop], choice[stop] = worst, start
        best = reached
        choices.append(choice)
    spans, stop = [], layers
    for choice in reversed(choices):
        spans.append(Span(choice[stop], stop))
        stop = choice[stop]
    return spans[::-1]


def cut_heads(query_heads: int, kv_heads: int, weights: Sequence[float]) -> list[tuple[Span, Span]]:
    """(query heads, KV heads) of each rank.

    With at least as many KV heads as ranks, ranks own whole groups. With fewer, consecutive ranks
    share one KV head, each holding a copy of it and a part of its query heads.
    """
    group = query_heads // kv_heads
    if len(weights) <= kv_heads:
        return [(Span(kv.start * group, kv.stop * group), kv) for kv in cut(kv_heads, weights)]
    cuts: list[tuple[Span, Span]] = []
    for head, sharers in enumerate(apportion(len(weights), [1.0] * kv_heads)):
        mine = weights[len(cuts) : len(cuts) + sharers]
        for part in cut(group, mine):
            first = head * group + part.start
            kv = Span(head, head + 1) if part.size else Span(head, head)
            cuts.append((Span(first, first + part.size), kv))
    return cuts


def _spans(counts: Sequence[int]) -> list[Span]:
    spans, start = [], 0
    for count in counts:
        spans.append(Span(start, start + count))
        start += count
    return spans
