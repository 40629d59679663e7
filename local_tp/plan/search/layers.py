"""Which layers each stage holds: the fastest cut that fits, by dynamic programming.

A stage may have several variants (other shares among its ranks); a layer's seconds and bytes in a
variant do not depend on the other layers, so the best cut of the first n layers over the first s
stages is enough to know. Exact for that model of costs; every stage holds at least one layer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from local_tp.core import Span

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Variant:
    """A stage in one form: for each layer of the model its seconds, and its bytes a rank.

    `rooms` are the bytes that each rank has for layers; `fixed` the seconds beside them.
    """

    seconds: tuple[float, ...]
    fixed: float
    weights: tuple[tuple[int, ...], ...]
    rooms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A stage's layers, the variant it is in, and the seconds of all stages together."""

    spans: tuple[Span, ...]
    chosen: tuple[int, ...]
    seconds: float


def best_cut(stages: Sequence[Sequence[Variant]], layers: int) -> Cut | None:
    """The cut of least seconds in which every rank has room, or None where there is none."""
    best = [0.0] + [INFINITE] * layers
    steps: list[tuple[list[int], list[int]]] = []
    for at, variants in enumerate(stages):
        later = len(stages) - 1 - at
        reached = [INFINITE] * (layers + 1)
        start, form = [0] * (layers + 1), [0] * (layers + 1)
        for index, variant in enumerate(variants):
            _extend(best, variant, layers - later, at, index, reached, start, form)
        best = reached
        steps.append((start, form))
    if best[layers] == INFINITE:
        return None
    spans: list[Span] = []
    chosen: list[int] = []
    stop = layers
    for start, form in reversed(steps):
        spans.append(Span(start[stop], stop))
        chosen.append(form[stop])
        stop = start[stop]
    return Cut(tuple(spans[::-1]), tuple(chosen[::-1]), best[layers])


def _extend(
    best: Sequence[float],
    variant: Variant,
    last: int,
    first: int,
    index: int,
    reached: list[float],
    start: list[int],
    form: list[int],
) -> None:
    """Lay a stage behind what came before it, wherever it may begin and end.

    For a stop the starts with room are a window that only moves on: its best is kept at the left
    end of a queue.
    """
    time = [0.0, *accumulate(variant.seconds)]
    fills = [[0, *accumulate(row)] for row in variant.weights]
    window: deque[tuple[float, int]] = deque()
    low = first
    for stop in range(first + 1, last + 1):
        a = stop - 1
        if best[a] < INFINITE:
            value = best[a] - time[a]
            while window and window[-1][0] >= value:
                window.pop()
            window.append((value, a))
        for fill, room in zip(fills, variant.rooms, strict=True):
            while low < stop and fill[stop] - fill[low] > room:
                low += 1
        while window and window[0][1] < low:
            window.popleft()
        if window:
            seconds = window[0][0] + time[stop] + variant.fixed
            if seconds < reached[stop]:
                reached[stop], start[stop], form[stop] = seconds, window[0][1], index


def balanced(stages: Sequence[Variant], cut: Cut) -> Cut:
    """The cut with boundaries moved, where that costs no time, so that the fullest rank has most
    room left."""
    spans = list(cut.spans)
    seconds = cut.seconds
    moved = True
    while moved:
        moved = False
        for at in range(len(spans) - 1):
            for shift in (-1, 1):
                a = Span(spans[at].start, spans[at].stop + shift)
                b = Span(spans[at + 1].start + shift, spans[at + 1].stop)
                if a.size < 1 or b.size < 1:
                    continue
                pair = stages[at], stages[at + 1]
                before, after = (spans[at], spans[at + 1]), (a, b)
                change = _time(pair, after) - _time(pair, before)
                fuller, full = _fullest(pair, after), _fullest(pair, before)
                if change <= seconds * 1e-9 and fuller < full * (1 - 1e-9) and fuller <= 1:
                    spans[at], spans[at + 1] = a, b
                    moved = True
    return Cut(tuple(spans), cut.chosen, seconds)


def _time(stages: Sequence[Variant], spans: Sequence[Span]) -> float:
    pairs = zip(stages, spans, strict=True)
    return sum(sum(v.seconds[s.start : s.stop]) for v, s in pairs)


def _fullest(stages: Sequence[Variant], spans: Sequence[Span]) -> float:
    return max(
        sum(row[span.start : span.stop]) / max(room, 1)
        for variant, span in zip(stages, spans, strict=True)
        for row, room in zip(variant.weights, variant.rooms, strict=True)
    )
