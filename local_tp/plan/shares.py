"""Dividing units among unequal ranks so that the slowest is as fast as can be.

Pure integer arithmetic on cost functions that never fall with the count. Knows nothing of what a
unit is. Every answer hands out every unit exactly once and keeps to the caps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

Seconds = tuple[float, ...]  # of one rank for one part, one figure for each load of the objective
Cost = Callable[[int], Seconds]
Counts = tuple[int, ...]

FEW = 24  # units up to which every division is weighed
ALL = 96  # so many ways are all looked at
THRESHOLDS = 3  # values of the first load's time that are tried where there are more
ENOUGH = 1.003  # of what no way can beat: then many units are not divided more finely


def slowest(costs: Sequence[Cost], counts: Sequence[int]) -> float:
    """Seconds of a part: for each load the slowest rank counts; loads add up."""
    times = [cost(count) for cost, count in zip(costs, counts, strict=True)]
    return float(sum(max(load) for load in zip(*times, strict=True)))


def spread(costs: Sequence[Cost], units: int, caps: Sequence[int]) -> Counts | None:
    """The counts of least `slowest`, or None where the caps leave no room for all units.

    Exact for one load: with costs that never fall, moving units away from the slowest rank ends
    at the best. With two loads the slowest ranks may differ; then the first load's time is held
    below each value that matters while the second is made as small as can be.
    """
    if sum(min(cap, units) for cap in caps) < units:
        return None
    loads = len(costs[0](0))
    best = _even(costs, units, caps, 0)
    if loads == 1 or units == 0:
        return best
    candidates = [best, _even(costs, units, caps, 1)]
    low, high = (max(_times(costs, counts, 0)) for counts in candidates)
    floor = low + max(_times(costs, candidates[1], 1))
    near = min(candidates, key=lambda counts: slowest(costs, counts))
    if slowest(costs, near) <= (floor * ENOUGH if units > FEW else floor):
        return near
    for limit in _limits(costs, units, low, high):
        tight = [min(cap, _most(cost, cap, limit)) for cost, cap in zip(costs, caps, strict=True)]
        if sum(tight) >= units:
            candidates.append(_even(costs, units, tight, 1))
    return min(candidates, key=lambda counts: slowest(costs, counts))


def ways(units: int, ranks: int) -> int:
    """In how many ways `units` can be divided among `ranks`."""
    total = 1
    for i in range(1, ranks):
        total = total * (units + i) // i
    return total


def all_ways(units: int, ranks: int) -> Iterator[Counts]:
    """Every way to divide `units` among `ranks`."""
    if ranks == 1:
        yield (units,)
        return
    for mine in range(units + 1):
        for rest in all_ways(units - mine, ranks - 1):
            yield (mine, *rest)


def near(counts: Counts) -> Iterator[Counts]:
    """`counts`, and every way that moves one unit, or all units, from one rank to another."""
    yield counts
    for giver, have in enumerate(counts):
        for taker in range(len(counts)):
            for moved in {1, have} if giver != taker and have else ():
                changed = list(counts)
                changed[giver] -= moved
                changed[taker] += moved
                yield tuple(changed)


def _even(costs: Sequence[Cost], units: int, caps: Sequence[int], load: int) -> Counts:
    """The counts whose slowest rank under one load is as fast as can be."""
    counts = _start(costs, units, caps, load)
    times = _times(costs, counts, load)
    more = [
        cost(count + 1)[load] if count < cap else float("inf")
        for cost, count, cap in zip(costs, counts, caps, strict=True)
    ]
    while True:
        giver = max(range(len(counts)), key=lambda i: (times[i] if counts[i] else -1.0, i))
        taker = min(range(len(counts)), key=lambda i: (more[i], i))
        if giver == taker or not counts[giver] or more[taker] >= times[giver]:
            return tuple(counts)
        counts[giver] -= 1
        counts[taker] += 1
        for i in (giver, taker):
            times[i] = costs[i](counts[i])[load]
            more[i] = costs[i](counts[i] + 1)[load] if counts[i] < caps[i] else float("inf")


def _start(costs: Sequence[Cost], units: int, caps: Sequence[int], load: int) -> list[int]:
    """Counts by speed, under the caps: close to the best."""
    weights = [1.0 / max(cost(units)[load], 1e-30) for cost in costs]
    counts = [0] * len(costs)
    left, total = units, sum(weights)
    for i in sorted(range(len(costs)), key=lambda i: caps[i] / weights[i]):
        counts[i] = min(caps[i], int(left * weights[i] / total + 0.5), left)
        left -= counts[i]
        total = max(total - weights[i], 1e-30)
    for i, cap in enumerate(caps):
        more = min(cap - counts[i], left)
        counts[i] += more
        left -= more
    return counts


def _times(costs: Sequence[Cost], counts: Sequence[int], load: int) -> list[float]:
    return [cost(count)[load] for cost, count in zip(costs, counts, strict=True)]


def _limits(costs: Sequence[Cost], units: int, low: float, high: float) -> list[float]:
    """Times of the first load between its best and what the second load's best makes of it."""
    if high <= low:
        return []
    if units <= FEW:
        found = {cost(count)[0] for cost in costs for count in range(units + 1)}
        return sorted(time for time in found if low <= time <= high)
    step = (high - low) / THRESHOLDS
    return [low + step * i for i in range(1, THRESHOLDS)]


def _most(cost: Cost, cap: int, limit: float) -> int:
    """The largest count up to `cap` that takes no longer than `limit` under the first load."""
    low, high = 0, cap
    while low < high:
        middle = (low + high + 1) // 2
        if cost(middle)[0] <= limit:
            low = middle
        else:
            high = middle - 1
    return low
