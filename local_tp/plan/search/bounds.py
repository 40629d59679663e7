"""Seconds that no solution of a structure can beat, from each device's own speed and room.

Every part of a layer is taken as if it could be cut anywhere: its operations are started once, and
what is left is shared out by speed. Layers go to the fastest stages until those are full. Layers of
several classes count as the average of all. Sums and hand-overs take what they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from local_tp.core import Transport
from local_tp.plan.costs import NOTHING, PARTS, Share
from local_tp.plan.search.machine import Ranks
from local_tp.plan.search.problem import Edges, Problem
from local_tp.plan.search.solve import Structure
from local_tp.plan.search.tensor import Group, whole_share
from local_tp.plan.time import Rank, Speed, Stage, part_seconds
from local_tp.plan.work import Part, PartName
from local_tp.rates import Channel

BELOW = 1 - 1e-9  # so that rounding makes no bound larger than what it bounds


@dataclass(frozen=True, slots=True)
class _Pace:
    """A device's seconds for one part of all layers: to start it, and to do all of it."""

    start: float
    work: float


@dataclass(frozen=True, slots=True)
class _Reach:
    """What a stage could do at best: seconds of a layer and of the head, layers it can hold."""

    layer: float
    head: float
    layers: float


def bound_of(problem: Problem, structure: Structure, sharp: bool = False) -> float | None:
    """Seconds that no cut and no shares of this structure can beat; None where it has no room.

    A `sharp` one knows that heads, columns and experts are whole; it takes much longer to find.
    """
    machine, stages = problem.machine, len(structure)
    transport = machine.transport([i for ranks in structure for i in ranks])
    if stages == 1:
        bound = _bound_of_one(problem, structure[0], transport)
        if bound is None or not sharp:
            return bound
        reach = _sharp(problem, structure[0], (True, True), transport)
        if reach is None:
            return None
        whole = problem.layers * reach.layer + reach.head + problem.outside(True)
        return max(bound, whole * BELOW)
    find = _sharp if sharp else _reach
    reaches: list[_Reach] = []
    for at, ranks in enumerate(structure):
        found = find(problem, ranks, (at == 0, at == stages - 1), transport)
        if found is None:
            return None
        reaches.append(found)
    between = sum(
        problem.hand_over(machine.onward(ranks, structure[at + 1], transport))
        for at, ranks in enumerate(structure[:-1])
    )
    return _filled(problem, reaches, between + reaches[-1].head)


def promises(problem: Problem, structure: Structure, limit: float) -> bool:
    """Whether a structure could take less than `limit` seconds, as far as its units say."""
    if all(len(ranks) == 1 for ranks in structure):
        return True
    bound = bound_of(problem, structure, sharp=True)
    return bound is not None and bound < limit


def bound_of_groups(problem: Problem, groups: Sequence[Ranks], onward: float) -> float | None:
    """The same for groups in whatever order; `onward` is the least that a hand-over takes."""
    transport = problem.machine.transport([i for ranks in groups for i in ranks])
    if len(groups) == 1:
        return _bound_of_one(problem, groups[0], transport)
    reaches = [_reach(problem, ranks, (False, False), transport) for ranks in groups]
    head = min(reach.head for reach in reaches)
    return _filled(problem, reaches, (len(groups) - 1) * onward + head)


def least_hand_over(problem: Problem, members: Sequence[int]) -> float:
    """Seconds of a hand-over between the two of these devices that have the best way."""
    machine = problem.machine
    return min(
        (
            problem.hand_over(machine.onward((a,), (b,), machine.transport((a, b))))
            for a in members
            for b in members
            if a != b
        ),
        default=0.0,
    )


def by_speed(problem: Problem, group: Iterable[int]) -> Ranks:
    """Devices, the one that is fastest on its own first."""
    return tuple(sorted(group, key=_places(problem).__getitem__))


def most_layers(problem: Problem, members: Iterable[int]) -> dict[int, float]:
    """For how many layers each device has room, if it holds nothing else."""
    return {i: problem.machine.room(i) / _lightest(problem, i) for i in members}


def _places(problem: Problem) -> list[int]:
    """Of each device its place among all by speed."""

    def alone(index: int) -> float:
        paces = (_pace(problem, index, name) for name in PARTS)
        return sum(pace.start + pace.work for pace in paces)

    def ask() -> list[int]:
        devices = range(len(problem.machine.devices))
        ordered = sorted(devices, key=lambda i: (alone(i), i))
        return [ordered.index(i) for i in devices]

    return problem.kept(("places",), ask)


def _filled(problem: Problem, reaches: Sequence[_Reach], fixed: float) -> float | None:
    """Seconds of stages with a layer each, and the other layers where they take least."""
    left = float(problem.layers - len(reaches))
    if left < 0 or any(reach.layers < 1 for reach in reaches):
        return None
    seconds = fixed + problem.outside(True) + (len(reaches) - 1) * problem.outside(False)
    seconds += sum(reach.layer for reach in reaches)
    for reach in sorted(reaches, key=lambda reach: reach.layer):
        taken = min(left, reach.layers - 1)
        seconds += taken * reach.layer
        left -= taken
    return None if left > 1e-9 else seconds * BELOW


def _reach(problem: Problem, ranks: Ranks, edges: Edges, transport: Transport) -> _Reach:
    """A stage of several; its ranks have their rooms together."""

    def ask() -> _Reach:
        layer = sum(_together(problem, ranks, name) for name in PARTS) / problem.layers
        if len(ranks) > 1:
            layer += _exchange(problem, ranks[0], problem.machine.total(ranks, transport))
        room = sum(_layer_room(problem, i, edges, ranks, transport) for i in ranks)
        layers = room / _lightest(problem, ranks[0])
        if len(problem.whole) == 1:
            layers = float(int(layers))
        return _Reach(layer, _together(problem, ranks, "head"), layers)

    return problem.kept(("reach", ranks, edges, transport, _rooms(problem, ranks)), ask)


def _sharp(problem: Problem, ranks: Ranks, edges: Edges, transport: Transport) -> _Reach | None:
    """The same with shares in whole units; None where those have no room."""
    reach = _reach(problem, ranks, edges, transport)
    if len(ranks) == 1:
        return reach

    def ask() -> _Reach | None:
        experts = problem.tables.spec.dimensions.experts
        group = Group(problem, ranks, problem.whole, edges, transport, experts)
        floor = group.floor()
        if floor is None:
            return None
        layer = floor[0] / problem.layers
        layer += _exchange(problem, ranks[0], problem.machine.total(ranks, transport))
        return replace(reach, layer=max(reach.layer, layer), head=max(reach.head, floor[1]))

    return problem.kept(("sharp", ranks, edges, transport, _rooms(problem, ranks)), ask)


def _bound_of_one(problem: Problem, ranks: Ranks, transport: Transport) -> float | None:
    """A stage that has all layers: of no part can a rank do more than it has room for."""
    rooms = [_layer_room(problem, i, (True, True), ranks, transport) for i in ranks]
    if sum(rooms) < _lightest(problem, ranks[0]) * problem.layers:
        return None
    seconds = _together(problem, ranks, "head")
    for name in PARTS:
        nbytes = _part_bytes(problem, ranks[0], name)
        caps = [room / nbytes if nbytes else 1.0 for room in rooms]
        seconds += _together(problem, ranks, name, caps)
    if len(ranks) > 1:
        channel = problem.machine.total(ranks, transport)
        seconds += problem.layers * _exchange(problem, ranks[0], channel)
    return (seconds + problem.outside(True)) * BELOW


def _together(problem: Problem, ranks: Ranks, name: PartName, caps: Sequence[float] = ()) -> float:
    """Seconds of ranks that share a part of all layers by speed, none more of it than its cap."""
    paces = [_pace(problem, i, name) for i in ranks]
    start = min(pace.start for pace in paces)
    if any(pace.work <= 0 for pace in paces):
        return start
    speeds = [1.0 / pace.work for pace in paces]
    speed, left, time = sum(speeds), 1.0, 0.0
    limits = caps or [1.0] * len(speeds)
    for cap, mine in sorted(zip(limits, speeds, strict=True), key=lambda pair: pair[0] / pair[1]):
        time = left / speed
        if cap / mine >= time:
            break
        left -= cap
        speed -= mine
    return start + time


def _pace(problem: Problem, index: int, name: PartName) -> _Pace:
    def ask() -> _Pace:
        kind, tables = problem.machine.kind(index), problem.tables
        share = whole_share(problem, name == "head")
        if name == "head":
            parts = [(1, tables.head(kind, share.vocab).part)]
        else:
            parts = [
                (count, tables.layer_part(name, kind, position, share))
                for position, count in enumerate(problem.whole)
            ]
        start = seconds = 0.0
        for count, part in parts:
            begun = Part(name, part.held, part.layers, part.launches)
            start += count * _seconds(problem, index, begun)
            seconds += count * _seconds(problem, index, part)
        return _Pace(start, seconds - start)

    return problem.kept(("pace", index, name), ask)


def _seconds(problem: Problem, index: int, part: Part) -> float:
    """Seconds of one device for a part, under all loads."""
    speed = _own_speed(problem, index)
    return sum(
        times * sum(part_seconds(part, speed, problem.rates, load).values())
        for times, load in problem.loads
    )


def _layer_room(
    problem: Problem, index: int, edges: Edges, ranks: Ranks, transport: Transport
) -> int:
    """Bytes that a rank has for layers, at most: one of several may hold next to nothing else."""
    alone = len(ranks) == 1
    share = whole_share(problem, any(edges)) if alone else NOTHING
    key = ("beside", index, edges, alone, transport)

    def ask() -> int:
        return problem.beside(index, share, edges, len(ranks), transport)

    return max(0, problem.machine.room(index) - problem.kept(key, ask))


def _rooms(problem: Problem, ranks: Ranks) -> tuple[int, ...]:
    return tuple(problem.machine.room(i) for i in ranks)


def _lightest(problem: Problem, index: int) -> float:
    """Bytes of a layer, on average, at least: its weights and what it remembers."""
    return max(1.0, _layers_bytes(problem, index, whole_share(problem, False)) / problem.layers)


def _part_bytes(problem: Problem, index: int, name: PartName) -> float:
    """Bytes of one part of all layers."""
    whole = whole_share(problem, False)
    shares = {
        "mixer": NOTHING._replace(query=whole.query, kv=whole.kv),
        "feed": NOTHING._replace(ffn=whole.ffn),
        "experts": NOTHING._replace(experts=whole.experts),
    }
    return _layers_bytes(problem, index, shares[name])


def _layers_bytes(problem: Problem, index: int, share: Share) -> float:
    """Bytes of a share of all layers: weights and what they remember."""
    kind, tables = problem.machine.kind(index), problem.tables

    def ask() -> float:
        return float(
            sum(
                count
                * (
                    tables.layer_bytes(kind, position, share)
                    + tables.remembered(kind, position, share, problem.tokens)
                )
                for position, count in enumerate(problem.whole)
            )
        )

    return problem.kept(("bytes", kind, share), ask)


def _exchange(problem: Problem, index: int, channel: Channel) -> float:
    """Seconds of the sums of a layer, on average, among ranks that all take part."""

    def ask() -> float:
        kind, share = problem.machine.kind(index), whole_share(problem, False)
        speed, total = _own_speed(problem, index), 0.0
        for position, count in enumerate(problem.whole):
            parts = problem.tables.layer_parts(kind, position, share)
            idle = Rank(tuple(Part(part.name, part.held, part.layers) for part in parts), speed)
            total += count * problem.stage_seconds(Stage((idle, idle), channel, Channel()))
        return total / problem.layers

    return problem.kept(("exchange", channel), ask)


def _own_speed(problem: Problem, index: int) -> Speed:
    machine = problem.machine
    return machine.speed(index, (index,), machine.workers(index))
