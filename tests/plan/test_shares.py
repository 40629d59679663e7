"""Units are divided so that the slowest rank is as fast as can be, under every cap."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_tp.plan.shares import Cost, all_ways, slowest, spread, ways
from local_tp.plan.shares_heads import HeadCost, head_ways

quick = settings(deadline=None, max_examples=80)
figures = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=4
)


def costs_of(ranks: list[tuple[int, int, int]], loads: int) -> list[Cost]:
    """A start and so much a unit, other for each load; nothing costs nothing."""

    def cost(a: int, b: int, start: int) -> Cost:
        return lambda n: (float(start * (n > 0) + a * n), float(b * n))[:loads]

    return [cost(*rank) for rank in ranks]


@quick
@given(figures, st.integers(0, 12), st.sampled_from([1, 2]), st.data())
def test_a_spread_is_as_good_as_the_best_of_all_ways(
    ranks: list[tuple[int, int, int]], units: int, loads: int, data: st.DataObject
) -> None:
    caps = data.draw(st.lists(st.integers(0, 12), min_size=len(ranks), max_size=len(ranks)))
    costs = costs_of(ranks, loads)
    every = [
        way
        for way in product(range(units + 1), repeat=len(ranks))
        if sum(way) == units and all(n <= cap for n, cap in zip(way, caps, strict=True))
    ]
    found = spread(costs, units, caps)
    if not every:
        assert found is None
        return
    assert found in every
    assert slowest(costs, found) == min(slowest(costs, way) for way in every)


def test_many_units_are_divided_by_speed() -> None:
    costs = costs_of([(1, 1, 0), (3, 3, 0)], 2)
    assert spread(costs, 400, [400, 400]) == (300, 100)


def test_what_does_not_fit_goes_to_the_others() -> None:
    costs = costs_of([(1, 1, 0), (3, 3, 0)], 1)
    assert spread(costs, 400, [250, 400]) == (250, 150)
    assert spread(costs, 400, [250, 149]) is None


@pytest.mark.parametrize(("units", "ranks"), [(0, 3), (4, 1), (5, 3), (3, 4)])
def test_every_way_is_named_once(units: int, ranks: int) -> None:
    found = list(all_ways(units, ranks))
    assert len(found) == len(set(found)) == ways(units, ranks)
    assert all(sum(way) == units and len(way) == ranks for way in found)


def by_speed(*speeds: float) -> list[HeadCost]:
    """Query heads cost by the rank's speed; KV heads cost nothing."""

    def cost(speed: float) -> HeadCost:
        return lambda query, kv: (query / speed,)

    return [cost(speed) for speed in speeds]


@pytest.mark.parametrize(
    ("query", "kv", "speeds", "expected"),
    [
        (8, 8, (3.0, 1.0), ((6, 6), (2, 2))),
        (8, 2, (1.0, 1.0, 1.0, 1.0), ((2, 1), (2, 1), (2, 1), (2, 1))),
        (12, 3, (4.0, 1.0, 1.0), ((8, 2), (2, 1), (2, 1))),
        (64, 8, (1.0,) * 5, None),
        (64, 8, (1.0,) * 7, None),
        (32, 1, (1.0, 1.0, 1.0), None),
    ],
)
def test_heads_go_by_speed_in_whole_groups_or_inside_one(
    query: int, kv: int, speeds: tuple[float, ...], expected: tuple[tuple[int, int], ...] | None
) -> None:
    ways_of_heads = head_ways(query, kv, by_speed(*speeds))
    if expected is not None:
        assert ways_of_heads[0] == expected
    group = query // kv
    for way in ways_of_heads:
        assert len(way) == len(speeds)
        assert sum(q for q, _ in way) == query
        for q, k in way:
            assert q == k * group or (k == 1 and 0 < q < group)


def test_a_far_slower_rank_gets_no_heads() -> None:
    assert head_ways(8, 8, by_speed(100.0, 1.0))[0] == ((8, 8), (0, 0))
