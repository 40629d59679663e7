"""Ways to hand out attention heads: whole groups, or one group among several ranks.

Pure integer arithmetic on cost functions, as `shares`. A rank holds whole groups of query heads
with their KV heads, or, with its neighbours, a part of one group and a copy of its KV head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from local_tp.plan.shares import ALL, Seconds, all_ways, near, spread, ways

Heads = tuple[int, int]  # query heads and KV heads of a rank
HeadCost = Callable[[int, int], Seconds]

FEW = 16  # query heads up to which, for three ranks, every way is looked at


def head_ways(query: int, kv: int, costs: Sequence[HeadCost]) -> list[tuple[Heads, ...]]:
    """Ways to hand out all heads, the fastest first: all where there are few.

    Otherwise those near the one that speeds suggest.
    """
    group, ranks = query // kv, len(costs)
    found = set(_whole_ways(group, kv, costs))
    if group > 1 and ranks > 1:
        few = ranks <= 3 and query <= FEW
        if few:
            found.update(_every_way(group, kv, ranks))
        elif ranks > kv or (kv < 2 * ranks and _unequal(group, kv, costs)):
            found.add(_shared_way(group, kv, costs))
    return sorted(found, key=lambda way: (_seconds(costs, way), way))


def _seconds(costs: Sequence[HeadCost], way: Sequence[Heads]) -> float:
    times = [cost(*heads) for cost, heads in zip(costs, way, strict=True)]
    return float(sum(max(load) for load in zip(*times, strict=True)))


def _unequal(group: int, kv: int, costs: Sequence[HeadCost]) -> bool:
    return len({cost(group * kv, kv) for cost in costs}) > 1


def _whole_ways(group: int, kv: int, costs: Sequence[HeadCost]) -> Iterator[tuple[Heads, ...]]:
    ranks = len(costs)
    if ways(kv, ranks) <= ALL:
        counts: Iterator[tuple[int, ...]] = all_ways(kv, ranks)
    else:
        best = spread([_whole(group, cost) for cost in costs], kv, [kv] * ranks)
        assert best is not None
        counts = near(best)
    for way in counts:
        yield tuple((n * group, n) for n in way)


def _whole(group: int, cost: HeadCost) -> Callable[[int], Seconds]:
    return lambda n: cost(n * group, n)


def _every_way(group: int, kv: int, ranks: int) -> Iterator[tuple[Heads, ...]]:
    """Runs of ranks from the first: one with whole groups, or several that share a group."""
    if ranks == 0:
        if kv == 0:
            yield ()
        return
    for whole in range(kv + 1):
        for rest in _every_way(group, kv - whole, ranks - 1):
            yield ((whole * group, whole), *rest)
    for sharers in range(2, min(ranks, group) + 1) if kv else ():
        for parts in all_ways(group, sharers):
            if all(parts):
                for rest in _every_way(group, kv - 1, ranks - sharers):
                    yield (*((n, 1) for n in parts), *rest)


def _shared_way(group: int, kv: int, costs: Sequence[HeadCost]) -> tuple[Heads, ...]:
    """The way whose slowest rank is as fast as can be under the first load.

    Exact but for how a shared group is divided; dynamic programming over (ranks, KV heads).
    """
    ranks = len(costs)
    most = min(group, max(2, -(-ranks // kv) + 1))
    best: dict[tuple[int, int], tuple[float, tuple[Heads, ...]]] = {(0, 0): (0.0, ())}
    for used in range(ranks):
        runs = [
            (sharers, way, max(costs[used + i](*way[i])[0] for i in range(sharers)))
            for sharers in range(2, min(most, ranks - used) + 1)
            for way in [_parts(group, costs[used : used + sharers])]
        ]
        for given in range(kv + 1):
            if (used, given) not in best:
                continue
            time, heads = best[used, given]
            options: list[tuple[tuple[int, int], float, tuple[Heads, ...]]] = [
                ((used + 1, given + n), costs[used](n * group, n)[0], ((n * group, n),))
                for n in range(kv - given + 1)
            ]
            if given < kv:
                options += [((used + size, given + 1), slow, way) for size, way, slow in runs]
            for place, slow, way in options:
                reached = max(time, slow)
                if place not in best or reached < best[place][0]:
                    best[place] = (reached, heads + way)
    return best[ranks, kv][1]


def _parts(group: int, costs: Sequence[HeadCost]) -> tuple[Heads, ...]:
    """One group divided among neighbours, head by head to whom it takes least."""
    counts = [0] * len(costs)
    for _ in range(group):
        i = min(range(len(costs)), key=lambda i: (costs[i](counts[i] + 1, 1)[0], i))
        counts[i] += 1
    return tuple((n, min(n, 1)) for n in counts)
