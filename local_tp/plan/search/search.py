"""The search: the fastest way to run a model on some of a machine's devices.

Structures are solved in the order of what they could reach at best, and left as soon as no other
can be faster. Answers with the best of every kind of split, so that a plan can say why it is not
another. Nothing leaves the cards unless nothing fits on them, or a person asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from local_tp.core import Offload, Split
from local_tp.plan.search.lean import leanest_first
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.solve import Solution, Spill, Structure, solve
from local_tp.plan.search.structures import Candidate, bound_of, candidates, split_of

QUICKEST: tuple[Split, ...] = ("single", "layer", "tensor", "hybrid")  # to solve
FEW = 4  # devices up to which every structure that could be the best is solved
MOST = 2  # structures of one split that are solved with more of them


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
        resident = _best_of_each(problem, candidates(problem, cards or tier), split)
        if resident or not cards or offload == "none":
            if not resident:
                return None
            return Found(leanest_first(problem, resident, split) if cards else tuple(resident))
    spilled = list(_spilled(problem, cards, tier, split, offload))
    best: dict[Split, Solution] = {}
    for solution in sorted(spilled, key=lambda s: s.seconds):
        best.setdefault(split_of(solution.structure), solution)
    return Found(tuple(best.values()), True) if best else None


def _best_of_each(
    problem: Problem, named: dict[Split, list[Candidate]], split: Split | None
) -> list[Solution]:
    """The best of each split. One that cannot win any more is solved until one of it fits."""
    winner = float("inf")
    best: dict[Split, Solution] = {}
    for name in (name for name in QUICKEST if name in named and split in (None, name)):
        most = None if len(problem.machine.devices) <= FEW else MOST
        for candidate in named[name][:most]:
            mine = best.get(name)
            if mine and (candidate.bound >= mine.seconds or candidate.bound >= winner):
                break
            solution = solve(problem, candidate.structure)
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
        named = candidates(problem, [*cards, *tier])
        tiered = {
            name: [c for c in found if (tier[0],) in c.structure] for name, found in named.items()
        }
        yield from _best_of_each(problem, {n: f for n, f in tiered.items() if f}, split)
    for structure in roomy(problem, cards):
        if split is not None and split_of(structure) != split:
            continue
        ways = [Spill(stream=True)] if offload in ("auto", "stream") else []
        if tier and offload in ("auto", "cpu") and problem.tables.spec.dimensions.experts:
            ways.append(Spill(experts_on=tier[0]))
        for way in ways:
            if solution := solve(problem, structure, way):
                yield solution


def roomy(problem: Problem, members: Sequence[int]) -> list[Structure]:
    """A few structures, among them those with most room: all in a row, together, each alone."""
    machine = problem.machine
    ordered = sorted(members, key=lambda i: (machine.kind(i) == "cpu", i))
    found: list[Structure] = [((i,),) for i in ordered]
    if len(ordered) > 1:
        found.append(tuple((i,) for i in ordered))
        if len({machine.kind(i) for i in ordered}) == 1:
            found.append((tuple(ordered),))
    return [s for s in found if len(s) <= problem.layers]


def any_fit(problem: Problem, members: Sequence[int], split: Split | None) -> Solution | None:
    """A solution, if one of the roomiest structures has room."""
    structures = [s for s in roomy(problem, members) if split is None or split_of(s) == split]
    found = (solve(problem, structure) for structure in reversed(structures))
    return next((solution for solution in found if solution), None)


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
