"""Which structures there are: devices, order and groups, the most promising first.

Groups of devices are named first, whatever their order, with what they could reach at best; orders
of those that could still win are named after that. Of few cards, or of many that are alike, every
way to group them is named; of more, those that links and speeds suggest. Devices that are alike,
with equal links, are tried once. The processor, as a tier below the cards, comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import combinations, islice, permutations, product

from local_tp.core import DeviceKind, Split
from local_tp.plan.search.bounds import (
    bound_of,
    bound_of_groups,
    by_speed,
    least_hand_over,
    most_layers,
)
from local_tp.plan.search.machine import Ranks
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.solve import Structure

EVERY = 1000  # ways to group devices, up to which every one is named
TYPES = 6  # of unlike devices, up to which the ways are counted at all
ORDERS = 3  # stages up to which every order is tried, whatever lies between them


@dataclass(frozen=True, slots=True)
class Candidate:
    """A structure, and seconds that it cannot beat."""

    structure: Structure
    bound: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """Groups of devices by split, each with seconds that no order of them can beat.

    `every` says that there are no others; `equal` that it makes no difference which devices talk
    to each other; `below` is the processor, where it is a last stage of each.
    """

    problem: Problem
    equal: bool
    every: bool
    below: int | None
    groups: dict[Split, list[tuple[float, Structure]]] = field(default_factory=dict)

    def in_turn(self, split: Split, devices: int | None = None) -> Iterator[Candidate]:
        """Structures of a split, the most promising first, perhaps only those of so many devices.

        The orders of groups are named when the turn of the groups comes.
        """
        heap = [
            (bound, False, groups)
            for bound, groups in self.groups.get(split, ())
            if devices is None or devices == sum(map(len, groups))
        ]
        heapify(heap)
        seen: set[object] = set()
        while heap:
            bound, ordered, structure = heappop(heap)
            if ordered:
                yield Candidate(structure, bound)
                continue
            for stages in _orders(structure, self):
                whole = stages if self.below is None else (*stages, (self.below,))
                likeness = _signature(self.problem, whole)
                own = None if likeness in seen else bound_of(self.problem, whole)
                seen.add(likeness)
                if own is not None:
                    heappush(heap, (own, True, whole))


def split_of(structure: Structure) -> Split:
    """What people call it."""
    if len(structure) == 1:
        return "single" if len(structure[0]) == 1 else "tensor"
    return "layer" if all(len(ranks) == 1 for ranks in structure) else "hybrid"


def candidates(problem: Problem, members: Sequence[int], below: int | None = None) -> Candidates:
    """Structures over subsets of these devices; `below` is the processor, a last stage of each."""
    machine = problem.machine
    equal = machine.equal_ways(members)
    types = _types(problem, members, equal)
    ways = [] if len(types) > TYPES else list(islice(_groupings(problem, types), EVERY + 1))
    every = 0 < len(ways) <= EVERY
    groupings = ways if every else _unlike(problem, members, _promising(problem, members))
    if below is not None:
        groupings = [(), *groupings]
    everybody = (*members, *(() if below is None else (below,)))
    rooms, onward = most_layers(problem, everybody), least_hand_over(problem, everybody)
    found = Candidates(problem, equal, every, below)
    for groups in groupings:
        whole = groups if below is None else (*groups, (below,))
        if sum(rooms[i] for ranks in whole for i in ranks) < problem.layers:
            continue
        bound = bound_of_groups(problem, whole, onward)
        if bound is not None:
            found.groups.setdefault(split_of(whole), []).append((bound, groups))
    return found


def _unlike(
    problem: Problem, members: Sequence[int], groupings: Iterable[Structure]
) -> list[Structure]:
    """One of those that cost the same in the order in which they are named."""
    named = dict.fromkeys(groupings)
    likenesses = [problem.machine.likeness(i) for i in members]
    if len(set(likenesses)) == len(likenesses):
        return list(named)
    found: dict[object, Structure] = {}
    for groups in named:
        found.setdefault(_signature(problem, groups), groups)
    return list(found.values())


# ----------------------------------------------------------------------------------- groups


def _types(problem: Problem, members: Sequence[int], equal: bool) -> list[list[int]]:
    """Devices that are alike, where nothing between devices sets one of them apart."""
    found: dict[object, list[int]] = {}
    for i in members:
        found.setdefault(problem.machine.likeness(i) if equal else i, []).append(i)
    return list(found.values())


def _groupings(problem: Problem, types: Sequence[Sequence[int]]) -> Iterator[Structure]:
    """Every way to put some of the devices into groups of one kind, each way once."""
    counts = tuple(len(members) for members in types)
    kinds = [problem.machine.kind(members[0]) for members in types]
    parts = [
        part
        for part in product(*(range(count + 1) for count in counts))
        if len({kind for kind, count in zip(kinds, part, strict=True) if count}) == 1
    ]
    for way in _sums(counts, parts):
        left = [list(members) for members in types]
        groups = []
        for part in way:
            group = [left[at].pop(0) for at, count in enumerate(part) for _ in range(count)]
            groups.append(by_speed(problem, group))
        yield tuple(groups)


def _sums(
    counts: tuple[int, ...], parts: Sequence[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every collection of `parts`, some perhaps several times, that needs no more than `counts`."""
    for at, part in enumerate(parts):
        left = tuple(have - need for have, need in zip(counts, part, strict=True))
        if min(left) >= 0:
            yield (part,)
            for others in _sums(left, parts[at:]):
                yield (part, *others)


def _promising(problem: Problem, cards: Sequence[int]) -> Iterator[Structure]:
    """Of many cards: subsets alone, one after another and together, and groups by their links."""
    kinds = {problem.machine.kind(i) for i in cards}
    for size in range(1, len(cards) + 1):
        for subset in combinations(cards, size):
            if size > 1:
                yield tuple((i,) for i in subset)
            if len({problem.machine.kind(i) for i in subset}) == 1:
                yield (by_speed(problem, subset),)
    for groups in _groups_by_ways(problem, cards, kinds):
        for size in range(1, len(groups) + 1):
            yield from combinations(groups, size)


def _groups_by_ways(
    problem: Problem, cards: Sequence[int], kinds: set[DeviceKind]
) -> Iterator[list[Ranks]]:
    """Ways to group cards: by what lies between them, by what they are, and a head with a tail."""
    machine = problem.machine
    for level in machine.levels(cards):
        yield [by_speed(problem, group) for group in level]
    by_name: dict[object, list[int]] = {}
    for i in cards:
        by_name.setdefault((machine.kind(i), machine.devices[i].name), []).append(i)
    yield [by_speed(problem, group) for group in by_name.values()]
    if len(kinds) == 1:
        fastest = by_speed(problem, cards)
        for head in range(2, len(cards)):
            yield [fastest[:head], *((i,) for i in fastest[head:])]
            yield [fastest[:head], fastest[head:]]


# ----------------------------------------------------------------------------------- orders


def _orders(groups: Structure, named: Candidates) -> Iterator[Structure]:
    """Orders of these groups as stages, each group led by each of its devices where that counts."""
    problem, equal, every = named.problem, named.equal, named.every
    if len(groups) <= ORDERS or (every and not (equal and len(problem.whole) == 1)):
        orders = _unlike_orders(groups, _likenesses(problem, groups, named.below))
    else:
        orders = _by_ends(groups)
    for stages in orders:
        yield from product(*(_led(problem, group, equal or not every) for group in stages))


def _likenesses(problem: Problem, groups: Structure, below: int | None) -> list[object]:
    """Equal for groups that may change places in any order of all, at no difference to it."""
    machine, members = problem.machine, [i for ranks in groups for i in ranks]
    last = () if below is None else (below,)
    transport = machine.transport((*members, *last))
    if len({machine.onward((a,), (b,), transport) for a, b in permutations(members, 2)}) > 1:
        return list(groups)
    return [
        (
            tuple(machine.likeness(i) for i in ranks),
            machine.total(ranks, transport) if len(ranks) > 1 else None,
            tuple(machine.onward((i,), last, transport) for i in ranks if last),
        )
        for ranks in groups
    ]


def _unlike_orders(groups: Structure, alike: Sequence[object]) -> Iterator[Structure]:
    """Orders of these groups; of groups that are `alike` those named first come first."""
    if not groups:
        yield ()
    for at in (alike.index(likeness) for likeness in dict.fromkeys(alike)):
        others = (*groups[:at], *groups[at + 1 :])
        for rest in _unlike_orders(others, (*alike[:at], *alike[at + 1 :])):
            yield (groups[at], *rest)


def _by_ends(groups: Structure) -> Iterator[Structure]:
    """Orders that differ in their ends, where embedding and head are."""
    for first, last in permutations(range(len(groups)), 2):
        between = (group for at, group in enumerate(groups) if at not in (first, last))
        yield (groups[first], *between, groups[last])


def _led(problem: Problem, group: Ranks, once: bool) -> list[Ranks]:
    """A group by speed, and with each of its devices first: that one takes what is handed over.

    Neighbours may share a group of heads, so that with few KV heads every order counts.
    """
    d = problem.tables.spec.dimensions
    if len(group) == 3 and d.kv_heads < d.query_heads and d.kv_heads < 2 * len(group):
        return list(permutations(group))
    if once:
        return [group]
    return [(first, *(i for i in group if i != first)) for first in group]


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
