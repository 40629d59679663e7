"""One structure solved: which layers each stage holds and which shares its ranks.

A structure is the order of stages and the devices of each; the rest is arithmetic. Where whole
stages have no room, layers may be streamed or experts lie with the processor, if that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from local_tp.core import EMPTY, Span, Transport
from local_tp.plan.costs import Share
from local_tp.plan.search.layers import Cut, Variant, balanced, best_cut
from local_tp.plan.search.machine import Ranks
from local_tp.plan.search.mixes import Mix
from local_tp.plan.search.problem import Edges, Problem
from local_tp.plan.search.tensor import Group, whole_share
from local_tp.plan.time import Rank, Stage
from local_tp.plan.work import Part
from local_tp.rates import Channel

Structure = tuple[Ranks, ...]

FEW = 8  # layers up to which shares are worked out for every number of them
GRID = (0.5, 0.92)  # parts of what the ranks of a stage have room for
STEPS = 8  # in which the part that is streamed, or that lies with the processor, is tried


@dataclass(frozen=True, slots=True)
class Spill:
    """What may leave the cards: layers streamed from the PC's memory, experts with a rank there."""

    stream: bool = False
    experts_on: int | None = None  # the processor's index among the devices


@dataclass(frozen=True, slots=True)
class Solution:
    """Stages with their layers and shares; `seconds` by the objective's loads."""

    structure: Structure
    spans: tuple[Span, ...]
    shares: tuple[tuple[Share, ...], ...]
    streamed: tuple[Span, ...]
    transport: Transport
    seconds: float


@dataclass(frozen=True, slots=True)
class _Form:
    """A stage in one form, before it has layers."""

    ranks: Ranks
    shares: tuple[Share, ...]
    streamed: float
    variant: Variant


def solve(problem: Problem, structure: Structure, spill: Spill = Spill()) -> Solution | None:
    """The fastest way to run the model on these stages, or None where there is no room."""
    if len(structure) > problem.layers:
        return None
    used = [i for ranks in structure for i in ranks]
    if spill.experts_on is not None:
        used.append(spill.experts_on)
    transport = problem.machine.transport(used)
    stages = [
        list(_forms(problem, structure, at, transport, spill)) for at in range(len(structure))
    ]
    cut = best_cut([[form.variant for form in forms] for forms in stages], problem.layers)
    if cut is None:
        return None
    chosen = [forms[index] for forms, index in zip(stages, cut.chosen, strict=True)]
    if len(structure) > 1:
        cut = balanced([form.variant for form in chosen], cut)
        chosen = [
            _refined(problem, structure, at, transport, spill, form, cut)
            for at, form in enumerate(chosen)
        ]
    return _solution(problem, structure, transport, chosen, cut)


def _solution(
    problem: Problem, structure: Structure, transport: Transport, forms: Sequence[_Form], cut: Cut
) -> Solution:
    seconds = sum(
        sum(form.variant.seconds[span.start : span.stop]) + form.variant.fixed
        for form, span in zip(forms, cut.spans, strict=True)
    )
    return Solution(
        structure=tuple(form.ranks for form in forms),
        spans=cut.spans,
        shares=tuple(form.shares for form in forms),
        streamed=tuple(
            _streamed(problem, form, span) if form.streamed else EMPTY
            for form, span in zip(forms, cut.spans, strict=True)
        ),
        transport=transport,
        seconds=seconds,
    )


def _forms(
    problem: Problem, structure: Structure, at: int, transport: Transport, spill: Spill
) -> Iterator[_Form]:
    """A stage in every form worth trying: shares for so many layers, more or less of it spilled."""
    d = problem.tables.spec.dimensions
    ranks, edges = structure[at], _edges(structure, at)
    onward = _onward(problem, structure, at, transport)
    card = problem.machine.kind(ranks[0]) != "cpu"
    spills: list[tuple[float, int]] = [(0.0, d.experts)]
    if spill.stream and card:
        spills += [(step / STEPS, d.experts) for step in range(1, STEPS + 1)]
    if spill.experts_on is not None and card and d.experts:
        spills += [(0.0, d.experts * step // STEPS) for step in range(STEPS)]
    seen: set[tuple[object, ...]] = set()
    for streamed, experts in spills:
        for mix in _mixes(problem, structure, at):
            group = Group(problem, ranks, mix, edges, transport, experts, streamed)
            shares = group.shares()
            if shares is None or (streamed, shares) in seen:
                continue
            seen.add((streamed, shares))
            form = ranks
            if experts < d.experts and spill.experts_on is not None:
                form = (*ranks, spill.experts_on)
                shares = (*shares, Share(experts=d.experts - experts))
            yield _form(problem, form, shares, edges, transport, onward, streamed)


def _mixes(problem: Problem, structure: Structure, at: int) -> list[Mix]:
    """For how many layers shares are worked out: all, or parts of what the ranks have room for."""
    whole, layers, machine = problem.whole, problem.layers, problem.machine
    ranks = structure[at]
    if len(structure) == 1:
        return [whole]
    if len(ranks) == 1:
        return [tuple(0 for _ in whole)]
    if layers <= FEW:
        parts = [n / layers for n in range(1, layers + 1)]
    else:
        share = whole_share(problem, False)
        total = problem.layers_bytes(ranks[0], whole, share)
        rooms = sum(machine.room(i) - machine.context(i) for i in ranks)
        parts = [part * min(1.0, rooms / total) for part in GRID]
    return [tuple(-(-int(n * part * 4096) // 4096) for n in whole) for part in parts]


def _form(
    problem: Problem,
    ranks: Ranks,
    shares: tuple[Share, ...],
    edges: Edges,
    transport: Transport,
    onward: Channel,
    streamed: float,
) -> _Form:
    classes = range(len(problem.tables.models))
    key = ("seconds", ranks, shares, transport, streamed)
    seconds, head = problem.kept(key, lambda: _seconds(problem, ranks, shares, transport, streamed))
    fixed = (head if edges[1] else problem.hand_over(onward)) + problem.outside(edges[0])
    weights = [
        [problem.layer_bytes(i, c, share, streamed) for c in classes]
        for i, share in zip(ranks, shares, strict=True)
    ]
    rooms = [
        problem.machine.room(i)
        - problem.beside(i, share, edges, len(ranks), transport)
        - (problem.buffers(i, share) if streamed else 0)
        for i, share in zip(ranks, shares, strict=True)
    ]
    of_layer = problem.tables.of_layer
    variant = Variant(
        seconds=tuple(seconds[c] for c in of_layer),
        fixed=fixed,
        weights=tuple(tuple(row[c] for c in of_layer) for row in weights),
        rooms=tuple(rooms),
    )
    return _Form(ranks, shares, streamed, variant)


def _seconds(
    problem: Problem,
    ranks: Ranks,
    shares: Sequence[Share],
    transport: Transport,
    streamed: float,
) -> tuple[list[float], float]:
    """Seconds of a stage for one layer of each class, and for the head."""
    machine, tables = problem.machine, problem.tables
    total = machine.total(ranks, transport) if len(ranks) > 1 else Channel()
    speeds = [machine.speed(i, ranks, machine.workers(i)) for i in ranks]
    members = [(machine.kind(i), share) for i, share in zip(ranks, shares, strict=True)]

    def stage(work: Sequence[tuple[Part, ...]]) -> float:
        made = tuple(Rank(w, speed) for w, speed in zip(work, speeds, strict=True))
        return problem.stage_seconds(Stage(made, total, Channel()))

    seconds = [
        stage([_with(tables.layer_parts(kind, c, share), streamed) for kind, share in members])
        for c in range(len(tables.models))
    ]
    return seconds, stage([(tables.head(kind, share.vocab).part,) for kind, share in members])


def _with(parts: tuple[Part, ...], streamed: float) -> tuple[Part, ...]:
    if not streamed:
        return parts
    return tuple(replace(p, streamed=(p.weights + p.pool) * streamed) for p in parts)


def _refined(
    problem: Problem,
    structure: Structure,
    at: int,
    transport: Transport,
    spill: Spill,
    form: _Form,
    cut: Cut,
) -> _Form:
    """The stage with shares worked out for the very layers it got, where that is faster."""
    d = problem.tables.spec.dimensions
    ranks, edges, span = structure[at], _edges(structure, at), cut.spans[at]
    if len(ranks) == 1 or form.ranks != ranks:
        return form
    mix = problem.tables.counts(span)
    shares = Group(problem, ranks, mix, edges, transport, d.experts, form.streamed).shares()
    if shares is None or shares == form.shares:
        return form
    onward = _onward(problem, structure, at, transport)
    other = _form(problem, ranks, shares, edges, transport, onward, form.streamed)
    before, after = (
        sum(f.variant.seconds[span.start : span.stop]) + f.variant.fixed for f in (form, other)
    )
    return other if after < before else form


def _streamed(problem: Problem, form: _Form, span: Span) -> Span:
    """The last layers of a stage, as few as leave room for the others."""
    start = span.stop
    for i, share, room in zip(form.ranks, form.shares, form.variant.rooms, strict=True):
        resident, streamed = (
            [problem.layer_bytes(i, c, share, part) for c in range(len(problem.tables.models))]
            for part in (0.0, 1.0)
        )
        mine = problem.tables.of_layer[span.start : span.stop]
        need = sum(resident[c] for c in mine)
        at = span.stop
        while need > room and at > span.start:
            at -= 1
            c = problem.tables.of_layer[at]
            need += streamed[c] - resident[c]
        start = min(start, at)
    return Span(start, span.stop)


def _edges(structure: Structure, at: int) -> Edges:
    return at == 0, at == len(structure) - 1


def _onward(problem: Problem, structure: Structure, at: int, transport: Transport) -> Channel:
    if at == len(structure) - 1:
        return Channel()
    return problem.machine.onward(structure[at], structure[at + 1], transport)
