"""Which structures are worth solving: devices, order and groups, the most promising first.

A bound says how fast a structure could be at best, from each device's own speed and room; equal
devices with equal links are tried once. Every structure of up to four devices is named; of more,
those that links and speeds suggest. The processor, as a tier below the cards, comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product

from local_tp.core import DeviceKind, Split, Transport
from local_tp.plan.costs import NOTHING
from local_tp.plan.search.machine import Ranks
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.solve import Structure
from local_tp.plan.search.tensor import whole_share
from local_tp.plan.time import Rank, Speed, Stage
from local_tp.rates import Channel

EVERY = 4  # devices up to which every structure is named


@dataclass(frozen=True, slots=True)
class Candidate:
    """A structure, and seconds that it cannot beat."""

    structure: Structure
    bound: float


def split_of(structure: Structure) -> Split:
    """What people call it."""
    if len(structure) == 1:
        return "single" if len(structure[0]) == 1 else "tensor"
    return "layer" if all(len(ranks) == 1 for ranks in structure) else "hybrid"


def candidates(problem: Problem, members: Sequence[int]) -> dict[Split, list[Candidate]]:
    """Structures over subsets of these devices by split, the most promising first."""
    alike: dict[object, Structure] = {}
    for structure in _structures(problem, members):
        alike.setdefault(_signature(problem, structure), structure)
    found: dict[Split, list[Candidate]] = {}
    for structure in alike.values():
        bound = bound_of(problem, structure)
        if bound is not None:
            found.setdefault(split_of(structure), []).append(Candidate(structure, bound))
    for named in found.values():
        named.sort(key=lambda candidate: (candidate.bound, candidate.structure))
    return found


def bound_of(problem: Problem, structure: Structure) -> float | None:
    """Seconds that no cut and no shares of this structure can beat; None where it has no room.

    Ranks of a stage at best add their speeds up, and layers at best go to the fastest stages until
    those are full. Sums and hand-overs take what they take.
    """
    if len(structure) > problem.layers:
        return None
    transport = problem.machine.transport([i for ranks in structure for i in ranks])
    layers = problem.layers
    fixed = problem.outside(True) + (len(structure) - 1) * problem.outside(False)
    stages: list[tuple[float, float]] = []
    if len(structure) == 1:
        return _bound_of_one(problem, structure[0], transport)
    for at, ranks in enumerate(structure):
        time = 1.0 / sum(1.0 / _alone(problem, i) for i in ranks)
        if len(ranks) > 1:
            time += _exchange(problem, problem.machine.total(ranks, transport))
        if at + 1 < len(structure):
            onward = problem.machine.onward(ranks, structure[at + 1], transport)
            fixed += _hand_over(problem, onward)
        room = sum(_layer_room(problem, i, at, len(structure), ranks, transport) for i in ranks)
        stages.append((time, room / _lightest(problem, ranks[0])))
    left, seconds = float(layers - len(stages)), fixed + sum(time for time, _ in stages)
    if any(layers_of < 1 for _, layers_of in stages):
        return None
    for time, layers_of in sorted(stages):
        taken = min(left, layers_of - 1)
        seconds += taken * time
        left -= taken
    return None if left > 1e-9 else seconds * (1 - 1e-9)


def _layer_room(
    problem: Problem, index: int, at: int, stages: int, ranks: Ranks, transport: Transport
) -> int:
    """Bytes that a rank has for layers, at most: one of several may hold next to nothing else."""
    alone, edges = len(ranks) == 1, (at == 0, at == stages - 1)
    share = whole_share(problem, any(edges)) if alone else NOTHING
    key = ("beside", index, edges, alone, transport)

    def ask() -> int:
        return problem.beside(index, share, edges, len(ranks), transport)

    return max(0, problem.machine.room(index) - problem.kept(key, ask))


def _bound_of_one(problem: Problem, ranks: Ranks, transport: Transport) -> float | None:
    """The same for one stage: each rank's part ends where its room or its time does."""
    total = _lightest(problem, ranks[0]) * problem.layers
    speeds = [1.0 / (_alone(problem, i) * problem.layers) for i in ranks]
    caps = [_layer_room(problem, i, 0, 1, ranks, transport) / total for i in ranks]
    if sum(caps) < 1:
        return None
    left, speed, time = 1.0, sum(speeds), 0.0
    for cap, mine in sorted(zip(caps, speeds, strict=True), key=lambda pair: pair[0] / pair[1]):
        time = left / speed
        if cap / mine >= time:
            break
        left -= cap
        speed -= mine
    sums = 0.0
    if len(ranks) > 1:
        sums = problem.layers * _exchange(problem, problem.machine.total(ranks, transport))
    return (time + sums + problem.outside(True)) * (1 - 1e-9)


def _alone(problem: Problem, index: int) -> float:
    """Seconds of a layer, on average, on one device."""

    def ask() -> float:
        kind, tables = problem.machine.kind(index), problem.tables
        share, speed = (
            whole_share(problem, False),
            _own_speed(problem, index),
        )
        return (
            sum(
                count
                * problem.stage_seconds(
                    Stage((Rank(tables.layer_parts(kind, c, share), speed),), Channel(), Channel())
                )
                for c, count in enumerate(problem.whole)
            )
            / problem.layers
        )

    return problem.kept(("alone", index), ask)


def _own_speed(problem: Problem, index: int) -> Speed:
    machine = problem.machine
    return machine.speed(index, (index,), machine.workers(index))


def _lightest(problem: Problem, index: int) -> float:
    """Bytes of a layer, on average, at least: its weights and what it remembers."""

    def ask() -> float:
        share, kind = whole_share(problem, False), problem.machine.kind(index)
        return max(
            1.0,
            sum(
                count
                * (
                    problem.tables.layer_bytes(kind, c, share)
                    + problem.tables.remembered(kind, c, share, problem.tokens)
                )
                for c, count in enumerate(problem.whole)
            )
            / problem.layers,
        )

    return problem.kept(("lightest", problem.machine.kind(index)), ask)


def _exchange(problem: Problem, channel: Channel) -> float:
    """Seconds of the sums of a layer, on average, among ranks that all take part."""

    def ask(between: Channel) -> float:
        tables, whole = problem.tables, problem.whole
        index = next(i for i, _ in enumerate(problem.machine.devices))
        kind, speed = (
            problem.machine.kind(index),
            _own_speed(problem, index),
        )
        share = whole_share(problem, False)
        total = 0.0
        for c, count in enumerate(whole):
            rank = Rank(tables.layer_parts(kind, c, share), speed)
            with_sums, without = (
                problem.stage_seconds(Stage((rank, rank), way, Channel()))
                for way in (between, Channel())
            )
            total += count * (with_sums - without)
        return total / problem.layers

    return problem.kept(("exchange", channel), lambda: ask(channel))


def _hand_over(problem: Problem, channel: Channel) -> float:
    stage = Stage((), Channel(), channel)
    return problem.kept(("onward", channel), lambda: problem.stage_seconds(stage))


# ------------------------------------------------------------------------------ enumeration


def _structures(problem: Problem, members: Sequence[int]) -> Iterator[Structure]:
    cards = [i for i in members if problem.machine.kind(i) != "cpu"]
    tier = [i for i in members if problem.machine.kind(i) == "cpu"]
    if not cards or len(members) <= EVERY:
        pools: Iterable[Structure] = _every(problem, cards or tier)
    else:
        pools = _promising(problem, cards)
    for structure in pools:
        yield structure
        if cards and tier:
            yield (*structure, (tier[0],))
    if cards and tier:
        yield ((tier[0],),)


def _every(problem: Problem, members: Sequence[int]) -> Iterator[Structure]:
    """Every order of every grouping of every subset; a group is of one kind, by speed."""
    for size in range(1, len(members) + 1):
        for subset in combinations(members, size):
            for groups in _partitions(list(subset)):
                if all(len({problem.machine.kind(i) for i in group}) == 1 for group in groups):
                    for stages in permutations(groups):
                        yield from product(*(_led(problem, group) for group in stages))


def _led(problem: Problem, group: Sequence[int]) -> list[Ranks]:
    """A group by speed, and with each of its devices first: that one takes what is handed over.

    Neighbours may share a group of heads, so that with few KV heads every order counts.
    """
    d = problem.tables.spec.dimensions
    if len(group) == 3 and d.kv_heads < d.query_heads and d.kv_heads < 2 * len(group):
        return list(permutations(_by_speed(problem, group)))
    ordered = _by_speed(problem, group)
    return [(first, *(i for i in ordered if i != first)) for first in ordered]


def _partitions(members: list[int]) -> Iterator[list[list[int]]]:
    """Every way to put members into groups."""
    if not members:
        yield []
        return
    first, *others = members
    for rest in _partitions(others):
        yield [[first], *rest]
        for at, group in enumerate(rest):
            yield [*rest[:at], [first, *group], *rest[at + 1 :]]


def _promising(problem: Problem, cards: Sequence[int]) -> Iterator[Structure]:
    """Of many cards: subsets alone, one after another and together, and groups by their links."""
    kinds = {problem.machine.kind(i) for i in cards}
    for size in range(1, len(cards) + 1):
        for subset in combinations(cards, size):
            if size > 1:
                yield from _orders(problem, [(i,) for i in subset])
            if len({problem.machine.kind(i) for i in subset}) == 1:
                yield (_by_speed(problem, subset),)
    for groups in _groupings(problem, cards, kinds):
        for size in range(1, len(groups) + 1):
            for chosen in combinations(groups, size):
                yield from _orders(problem, list(chosen))


def _groupings(
    problem: Problem, cards: Sequence[int], kinds: set[DeviceKind]
) -> Iterator[list[Ranks]]:
    """Ways to group cards: by what lies between them, by what they are, and a head with a tail."""
    machine = problem.machine
    for level in machine.levels(cards):
        yield [_by_speed(problem, group) for group in level]
    by_name: dict[object, list[int]] = {}
    for i in cards:
        by_name.setdefault((machine.kind(i), machine.devices[i].name), []).append(i)
    yield [_by_speed(problem, group) for group in by_name.values()]
    if len(kinds) == 1:
        fastest = _by_speed(problem, cards)
        for head in range(2, len(cards)):
            yield [fastest[:head], *((i,) for i in fastest[head:])]
            yield [fastest[:head], fastest[head:]]


def _orders(problem: Problem, groups: list[Ranks]) -> Iterator[Structure]:
    """A few orders of stages: as the slots are, and with the fastest last, where the head is."""
    if len(groups) < 3:
        yield from permutations(groups)
        return
    fastest = sorted(groups, key=lambda ranks: 1.0 / sum(1.0 / _alone(problem, i) for i in ranks))
    yield tuple(sorted(groups))
    yield tuple(fastest[::-1])


def _by_speed(problem: Problem, group: Sequence[int]) -> Ranks:
    return tuple(sorted(group, key=lambda i: (_alone(problem, i), i)))


def _signature(problem: Problem, structure: Structure) -> object:
    """What makes structures cost the same: their devices' figures and what lies between them."""
    machine = problem.machine
    transport = machine.transport([i for ranks in structure for i in ranks])
    return tuple(
        (
            tuple(machine.likeness(i) for i in ranks),
            machine.total(ranks, transport) if len(ranks) > 1 else None,
            machine.onward(ranks, structure[at + 1], transport)
            if at + 1 < len(structure)
            else None,
        )
        for at, ranks in enumerate(structure)
    )
