"""Of plans that are as good as equal, the one with the fewest devices and the simplest split.

Predictions are off by more than `WORTH` (docs/planning.md), and every further card is one more that
draws power, waits and can fail: it has to earn its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from local_tp.core import Split
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.solve import Solution, Structure, solve
from local_tp.plan.search.structures import bound_of, split_of

WORTH = 0.05  # of the time: what a further device or a less simple split must save
SIMPLEST: tuple[Split, ...] = ("single", "layer", "tensor", "hybrid")


def leanest_first(
    problem: Problem, solutions: Sequence[Solution], split: Split | None
) -> tuple[Solution, ...]:
    """The best of each split, fastest first but for the one that is preferred."""
    limit = min(solution.seconds for solution in solutions) * (1 + WORTH)
    close = [solution for solution in solutions if solution.seconds <= limit]
    leaner = [_leaner(problem, solution, limit, split) for solution in close]
    lean = min((*close, *leaner), key=_size)
    name = split_of(lean.structure)
    others = [s for s in solutions if split_of(s.structure) != name or s.seconds < lean.seconds]
    return (lean, *sorted(others, key=lambda solution: solution.seconds))


def _leaner(problem: Problem, solution: Solution, limit: float, split: Split | None) -> Solution:
    """The solution without the devices that it can do without."""
    for index in sorted(i for ranks in solution.structure for i in ranks):
        smaller = _without(solution.structure, index)
        if not smaller or (split is not None and split_of(smaller) != split):
            continue
        bound = bound_of(problem, smaller)
        if bound is None or bound > limit:
            continue
        found = solve(problem, smaller)
        if found is not None and found.seconds <= limit:
            return _leaner(problem, found, limit, split)
    return solution


def _without(structure: Structure, index: int) -> Structure:
    left = (tuple(i for i in ranks if i != index) for ranks in structure)
    return tuple(ranks for ranks in left if ranks)


def _size(solution: Solution) -> tuple[int, int, float]:
    devices = sum(len(ranks) for ranks in solution.structure)
    return devices, SIMPLEST.index(split_of(solution.structure)), solution.seconds
