"""The search: the fastest way to run a model on some of a machine's devices.

Structures are solved in the order of what they could reach at best, and left as soon as no other
can be faster. Answers with the best of every kind of split, so that a plan can say why it is not
another. Nothing leaves the cards unless nothing fits on them, or a person asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from local_tp.core import Offload, Split
from local_tp.plan.search.bounds import bound_of, promises
from local_tp.plan.search.lean import leanest_first
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.solve import Solution, Spill, Structure, solve
from local_tp.plan.search.structures import Candidates, candidates, split_of

QUICKEST: tuple[Split, ...] = ("single", "layer", "tensor", "hybrid")  # to solve
MOST = 2  # solutions of one split that are compared where not every structure is named
TRIED = 24  # structures of one split that are looked at there
ALL = 48  # solutions of one split at most, where every structure is named


@dataclass(frozen=True, slots=True)
class Found:
    """The best solution of each split; `spilled` if some left the cards.

    The first is preferred: the fastest, or one as good as that with less. The rest go by speed.
    """

    solutions: tuple[Solution, ...]
    spilled: bool = False

    @property
    def best(self) -> Solution:
        return self.solutions[0]


def search(
    problem: Problem, members: Sequence[int], split: Split | None, offload: Offload
) -> Found | None:
    """The best solutions over subsets of `members`, or None where nothing fits.

    The processor among `members` is used as a tier below the cards, or on its own.
    """
    cards = [i for i in members if problem.machine.kind(i) != "cpu"]
    tier = [i for i in members if problem.machine.kind(i) == "cpu"]
    if offload in ("auto", "none") or not cards:
        named = candidates(problem, cards or tier)
        resident = _best_of_each(problem, named, split)
        if resident or not cards or offload == "none":
            if not resident:
                return None
            return Found(leanest_first(named, resident, split) if cards else tuple(resident))
    spilled = list(_spilled(problem, cards, tier, split, offload))
    best: dict[Split, Solution] = {}
    for solution in sorted(spilled, key=lambda s: s.seconds):
        best.setdefault(split_of(solution.structure), solution)
    return Found(tuple(best.values()), True) if best else None


def _best_of_each(problem: Problem, named: Candidates, split: Split | None) -> list[Solution]:
    """The best of each split. One that cannot win any more is solved until one of it fits.

    Where every structure is named, none is left that could be faster than what is found, unless
    that takes more than `ALL` solutions.
    """
    winner = float("inf")
    best: dict[Split, Solution] = {}
    for name in (n for n in QUICKEST if n in named.groups and split in (None, n)):
        solved = 0
        for tried, candidate in enumerate(named.in_turn(name)):
            mine = best.get(name)
            limit = min(mine.seconds, winner) if mine else float("inf")
            if candidate.bound >= limit:
                break
            if solved == (ALL if named.every else MOST) or (tried == TRIED and not named.every):
                break
            if mine and not promises(problem, candidate.structure, limit):
                continue
            solution = solve(problem, candidate.structure)
            solved += solution is not None
            if solution and (mine is None or solution.seconds < mine.seconds):
                best[name] = solution
                winner = min(winner, solution.seconds)
    return sorted(best.values(), key=lambda solution: solution.seconds)


def _spilled(
    problem: Problem,
    cards: Sequence[int],
    tier: Sequence[int],
    split: Split | None,
    offload: Offload,
) -> Iterator[Solution]:
    """Solutions in which some of the model lies in the PC's memory."""
    if tier and offload in ("auto", "cpu"):
        yield from _best_of_each(problem, candidates(problem, cards, tier[0]), split)
    for structure in roomy(problem, cards, split):
        ways = [Spill(stream=True)] if offload in ("auto", "stream") else []
        if tier and offload in ("auto", "cpu") and problem.tables.spec.dimensions.experts:
            ways.append(Spill(experts_on=tier[0]))
        for way in ways:
            if solution := solve(problem, structure, way):
                yield solution


def roomy(problem: Problem, members: Sequence[int], split: Split | None) -> list[Structure]:
    """A few structures, among them those with most room: all in a row, together, each alone.

    Stages of several ranks that follow one another are named only where such a split is asked for.
    """
    machine = problem.machine
    ordered = sorted(members, key=lambda i: (machine.kind(i) == "cpu", i))
    found: list[Structure] = [((i,),) for i in _unlike(problem, ordered)]
    if len(ordered) > 1:
        found.append(tuple((i,) for i in ordered))
        if len({machine.kind(i) for i in ordered}) == 1:
            found.append((tuple(ordered),))
    if split == "hybrid":
        kinds = dict.fromkeys(machine.kind(i) for i in ordered)
        stages = [tuple(i for i in ordered if machine.kind(i) == kind) for kind in kinds]
        found.append(tuple(stages) if len(stages) > 1 else (stages[0][:-1], stages[0][-1:]))
    named = [s for s in found if all(s) and len(s) <= problem.layers]
    return [s for s in named if split in (None, split_of(s))]


def _unlike(problem: Problem, members: Sequence[int]) -> list[int]:
    """The first of devices that are alike, also in their way to the processor."""
    machine, found = problem.machine, dict[object, int]()
    below = [i for i in range(len(machine.devices)) if machine.kind(i) == "cpu"]
    for i in members:
        ways = tuple(machine.total((i, j), machine.transport((i, j))) for j in below)
        found.setdefault((machine.likeness(i), ways), i)
    return list(found.values())


def any_fit(problem: Problem, members: Sequence[int], split: Split | None) -> Solution | None:
    """A solution, if one of the roomiest structures has room; of hybrid splits, if any has."""
    structures = roomy(problem, members, split)
    found = (solve(problem, structure) for structure in reversed(structures))
    first = next((solution for solution in found if solution), None)
    if first is None and split == "hybrid":
        first = next(iter(_best_of_each(problem, candidates(problem, members), split)), None)
    return first


def with_device(problem: Problem, solution: Solution, index: int) -> Solution | None:
    """What comes of adding one more device: as a stage or in one, as looks best."""
    kind = problem.machine.kind(index)
    structure = solution.structure
    tried: list[Structure] = [(*structure, (index,)), ((index,), *structure)]
    tried += [
        (*structure[:at], (*ranks, index), *structure[at + 1 :])
        for at, ranks in enumerate(structure)
        if problem.machine.kind(ranks[0]) == kind
    ]
    bounded = [(bound, s) for s in tried if (bound := bound_of(problem, s)) is not None]
    for _, larger in sorted(bounded)[:2]:
        if found := solve(problem, larger):
            return found
    return None
