"""What the search need not look at twice, and that leaving it out changes no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from small_specs import SMALL, cards, small_spec

from local_tp.checkpoint.known_models import known_model
from local_tp.core import Goal
from local_tp.hardware.rates import load_rates
from local_tp.plan.costs import tables_of
from local_tp.plan.costs_lines import MANY
from local_tp.plan.costs_models import fewest_columns
from local_tp.plan.search.ask import Ask, Knowledge
from local_tp.plan.search.choices import longest_context
from local_tp.plan.search.search import roomy
from local_tp.plan.search.structures import _unlike_orders

KNOWLEDGE = Knowledge(load_rates())
STORED = Goal(dtype="stored")


def asked(count: int, ratios: dict[str, float] | None = None) -> Ask:
    devices = tuple(cards(*[1e12] * count, kind="cuda"))
    knowledge = replace(KNOWLEDGE, ratios=ratios or {})
    return Ask(small_spec(SMALL, "F16"), devices, STORED, knowledge, 256)


def test_experts_lighter_than_their_router_are_on_a_line_from_many_on() -> None:
    tables = tables_of(known_model("Qwen3 Next 80B-A3B", "default"), STORED)
    line = tables.line("experts", "cuda", 0)
    assert line is not None
    assert line.first == MANY
    assert not line.holds(MANY - 1)
    for count in (MANY, 100, 511):
        assert line.piece("experts", count) == tables._piece("experts", "cuda", 0, count)
    assert tables.experts("cuda", 0, 1).part.held == "float32"


def test_columns_that_give_as_many_of_shared_experts_are_counted_once() -> None:
    spec = known_model("GLM 4.5 Air", "default")  # 10944 dense columns, 1408 of shared experts
    tables = tables_of(spec, STORED)
    shared = next(m for m in tables.middles if "layers.1.shared_gate" in m.tensors)
    dense = next(m for m in tables.middles if "layers.1.shared_gate" not in m.tensors)
    counts = range(0, 10944 + 1, 64)
    least = {count: fewest_columns(shared, count, 64) for count in counts}
    assert len(set(least.values())) == 1408 // 64 + 1
    position = tables.middles.index(shared)
    for count in counts[::10]:
        assert tables._piece("feed", "cuda", position, count) == tables._piece(
            "feed", "cuda", position, least[count]
        )
    assert [fewest_columns(dense, count, 64) for count in counts] == list(counts)


@pytest.mark.parametrize("alike", ["", "a", "aab", "abab", "abc", "aaabb"])
def test_orders_are_named_once_and_as_all_orders_would_be(alike: Sequence[str]) -> None:
    groups = tuple((i,) for i in range(len(alike)))
    first: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}
    for order in permutations(groups):
        first.setdefault(tuple(alike[i] for (i,) in order), order)
    assert list(_unlike_orders(groups, alike)) == list(first.values())


def test_a_context_below_the_least_is_not_looked_for() -> None:
    tried: list[int] = []

    def fits(context: int) -> bool:
        tried.append(context)
        return context <= 700

    assert longest_context(fits, 4096) == 672
    tried.clear()
    assert longest_context(fits, 4096, 1024) < 1024
    assert tried == [4096, 2048, 1024]
    assert longest_context(fits, 4096, 512) == 672


def test_questions_share_tables_where_those_say_the_same() -> None:
    ask = asked(2)
    assert replace(ask, context=64).tables is ask.tables
    assert replace(ask, goal=replace(STORED, offload="cpu", split="layer")).tables is ask.tables
    for other in (replace(STORED, streams=1), replace(STORED, chunk=64), Goal(dtype="float16")):
        tables = replace(ask, goal=other).tables
        assert tables is not ask.tables
        assert tables.goal == replace(other, offload="none")


def test_cards_that_were_measured_to_take_unlike_memory_are_not_alike() -> None:
    machine = asked(2).problem().machine
    assert machine.likeness(0) == machine.likeness(1)
    machine = asked(2, {asked(2).devices[1].id: 1.5}).problem().machine
    assert machine.likeness(0) != machine.likeness(1)


def test_of_cards_that_are_alike_one_is_tried_alone() -> None:
    problem = asked(4).problem()
    assert [s for s in roomy(problem, range(4), None) if len(s) == len(s[0]) == 1] == [((0,),)]
    problem = problem.with_rooms((1, 2, 2, 3))
    alone = [s for s in roomy(problem, range(4), None) if len(s) == len(s[0]) == 1]
    assert alone == [((0,),), ((1,),), ((3,),)]
