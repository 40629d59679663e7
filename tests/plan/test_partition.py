"""Every unit has one owner, cuts respect the grain, and layer cuts are the best there are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_tp.core import Span
from local_tp.errors import PlanError
from local_tp.plan.partition import apportion, cut, cut_heads, cut_layers

quick = settings(deadline=None, max_examples=80)
weights = st.lists(st.floats(0.01, 1e12), min_size=1, max_size=8)


def assert_covers(spans: Sequence[Span], total: int) -> None:
    owners = [sum(unit in span for span in spans) for unit in range(total)]
    assert owners == [1] * total
    assert sum(span.size for span in spans) == total
    assert [span.start for span in spans] == sorted(span.start for span in spans)


@quick
@given(st.integers(0, 500), weights)
def test_apportion_gives_every_unit_and_each_share_within_one_of_its_quota(
    units: int, shares: list[float]
) -> None:
    counts = apportion(units, shares)
    assert sum(counts) == units
    quotas = [units * share / sum(shares) for share in shares]
    assert all(abs(c - q) < 1 + 1e-6 for c, q in zip(counts, quotas, strict=True))


def test_apportion_breaks_ties_towards_the_lower_index() -> None:
    assert apportion(5, [1, 1]) == [3, 2]
    assert apportion(10, [360e9, 448e9]) == [4, 6]
    assert apportion(1, [1, 1, 1]) == [1, 0, 0]


@pytest.mark.parametrize("shares", [[0.0, 0.0], [2.0, -1.0]])
def test_shares_that_are_no_shares_are_refused(shares: list[float]) -> None:
    with pytest.raises(PlanError, match="positive"):
        apportion(4, shares)


@quick
@given(st.integers(1, 2000), weights, st.sampled_from([1, 2, 32, 64]))
def test_cut_owns_every_unit_once_at_multiples_of_the_grain(
    total: int, shares: list[float], grain: int
) -> None:
    spans = cut(total, shares, grain)
    assert_covers(spans, total)
    boundaries = {edge for span in spans for edge in span if span.size} - {0, total}
    assert all(edge % grain == 0 for edge in boundaries)


def test_the_remainder_goes_to_the_last_owner() -> None:
    assert cut(100, [1, 1], 32) == [Span(0, 64), Span(64, 100)]
    assert cut(100, [1, 1, 1e-9], 32) == [Span(0, 64), Span(64, 100), Span(100, 100)]
    assert cut(40, [1, 1], 64) == [Span(0, 40), Span(40, 40)]


def slowest(spans: Sequence[Span], costs: Sequence[float], speeds: Sequence[float]) -> float:
    return max(
        sum(costs[span.start : span.stop]) / speed
        for span, speed in zip(spans, speeds, strict=True)
    )


@quick
@given(
    st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=8),
    st.lists(st.integers(1, 10).map(float), min_size=1, max_size=4),
)
def test_cut_layers_is_as_good_as_the_best_of_all_cuts(
    costs: list[float], speeds: list[float]
) -> None:
    layers, stages = len(costs), len(speeds)
    if layers < stages:
        with pytest.raises(PlanError, match=f"{stages} stages need"):
            cut_layers(costs, speeds)
        return
    spans = cut_layers(costs, speeds)
    assert_covers(spans, layers)
    assert all(span.size >= 1 for span in spans)
    best = min(
        slowest([Span(a, b) for a, b in zip((0, *at), (*at, layers), strict=True)], costs, speeds)
        for at in combinations(range(1, layers), stages - 1)
    )
    assert slowest(spans, costs, speeds) == pytest.approx(best, rel=1e-9)


def test_a_stage_three_times_as_fast_gets_three_times_the_layers() -> None:
    assert cut_layers([1.0] * 12, [3.0, 1.0]) == [Span(0, 9), Span(9, 12)]


HEAD_COUNTS = [(1, 1), (4, 4), (8, 1), (9, 3), (14, 2), (16, 8), (25, 5), (32, 8), (40, 8)]


@pytest.mark.parametrize(("query", "kv"), HEAD_COUNTS)
@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("uneven", [False, True])
def test_heads_are_cut_in_whole_groups_or_inside_one(
    query: int, kv: int, ranks: int, uneven: bool
) -> None:
    group = query // kv
    cuts = cut_heads(query, kv, [1.0 + 2.0 * i * uneven for i in range(ranks)])
    assert len(cuts) == ranks
    assert_covers([q for q, _ in cuts], query)
    for q, k in cuts:
        if q.size == 0:
            assert k.size == 0
            continue
        assert k == Span(q.start // group, (q.stop - 1) // group + 1)
        assert q.size == k.size * group or k.size == 1
    holders = [sum(head in k for _, k in cuts) for head in range(kv)]
    if ranks <= kv:
        assert holders == [1] * kv
    else:
        assert min(holders) >= 1


def test_three_kv_heads_over_two_ranks() -> None:
    assert cut_heads(9, 3, [1, 1]) == [
        (Span(0, 6), Span(0, 2)),
        (Span(6, 9), Span(2, 3)),
    ]


def test_three_kv_heads_over_four_ranks_replicate_the_first() -> None:
    assert cut_heads(9, 3, [1, 1, 1, 1]) == [
        (Span(0, 2), Span(0, 1)),
        (Span(2, 3), Span(0, 1)),
        (Span(3, 6), Span(1, 2)),
        (Span(6, 9), Span(2, 3)),
    ]


def test_a_rank_may_hold_no_heads() -> None:
    slow = cut_heads(2, 2, [1, 1e-3])
    assert slow == [(Span(0, 2), Span(0, 2)), (Span(2, 2), Span(2, 2))]
    many = cut_heads(2, 2, [1, 1, 1])
    assert [q.size for q, _ in many] == [1, 0, 1]
    assert [k.size for _, k in many] == [1, 0, 1]
