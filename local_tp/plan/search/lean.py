"""Of plans that are as good as equal, the one with the fewest devices and the simplest split.

Predictions are off by more than `WORTH` (docs/planning.md), and every further card is one more that
draws power, waits and can fail: it has to earn its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from local_tp.core import Split
from local_tp.plan.search.bounds import promises
from local_tp.plan.search.solve import Solution, solve
from local_tp.plan.search.structures import Candidates, split_of

WORTH = 0.05  # of the time: what a further device or a less simple split must save
SIMPLEST: tuple[Split, ...] = ("single", "layer", "tensor", "hybrid")
TRIED = 8  # structures of one split and so many devices, where not every one is named


def leanest_first(
    named: Candidates, solutions: Sequence[Solution], split: Split | None
) -> tuple[Solution, ...]:
    """The best of each split, fastest first but for the one that is preferred."""
    limit = min(solution.seconds for solution in solutions) * (1 + WORTH)
    close = min((s for s in solutions if s.seconds <= limit), key=_size)
    lean = _leaner(named, close, limit, split) or close
    name = split_of(lean.structure)
    others = [s for s in solutions if split_of(s.structure) != name or s.seconds < lean.seconds]
    return (lean, *sorted(others, key=lambda solution: solution.seconds))


def _leaner(
    named: Candidates, close: Solution, limit: float, split: Split | None
) -> Solution | None:
    """The fastest of the leanest solutions that keep the limit, if they are leaner."""
    most, simplicity, _ = _size(close)
    for devices in range(1, most + 1):
        for at, name in enumerate(SIMPLEST):
            if (devices, at) >= (most, simplicity):
                return None
            if split in (None, name) and (found := _within(named, name, devices, limit)):
                return found
    return None


def _within(named: Candidates, split: Split, devices: int, limit: float) -> Solution | None:
    """The fastest solution of a split and so many devices that keeps the limit."""
    best: Solution | None = None
    in_turn = takewhile(lambda c: c.bound <= limit, named.in_turn(split, devices))
    for candidate in islice(in_turn, None if named.every else TRIED):
        if not promises(named.problem, candidate.structure, limit):
            continue
        found = solve(named.problem, candidate.structure)
        if found is not None and found.seconds <= limit:
            best, limit = found, found.seconds
    return best


def _size(solution: Solution) -> tuple[int, int, float]:
    devices = sum(len(ranks) for ranks in solution.structure)
    return devices, SIMPLEST.index(split_of(solution.structure)), solution.seconds
