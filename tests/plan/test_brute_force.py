"""On small machines the search finds the best of all plans there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from every_plan import Every, every_structure
from hypothesis import given, settings
from hypothesis import strategies as st
from small_specs import SMALL, cards, small_spec

from local_tp.core import Device, Goal, Link, ModelSpec, Objective, Plan
from local_tp.hardware.rates import load_rates
from local_tp.plan.memory import WORKSPACE
from local_tp.plan.planner import Knowledge, plan_of
from local_tp.plan.search.ask import Ask, answer
from local_tp.plan.search.bounds import bound_of
from local_tp.plan.search.lean import WORTH
from local_tp.plan.search.objective import seconds
from local_tp.plan.search.plan import prediction_of
from local_tp.plan.search.search import search
from local_tp.plan.search.solve import solve
from local_tp.prediction import Memory
from local_tp.rates import Wire

RATES = load_rates()
LATENCIES = (1e-6, 3e-5, 4e-4)  # seconds of a sum or a hand-over


def knowing(latency: float) -> Knowledge:
    return Knowledge(replace(RATES, wires={"gloo host": Wire(latency), "gloo nvlink": Wire(1e-6)}))


WIDE = replace(SMALL, hidden=256, kv_heads=2, vocab=128)
MODELS = [
    small_spec(
        replace(
            SMALL, layers=layers, hidden=256, query_heads=query, kv_heads=2, ffn=ffn, vocab=256
        ),
        "F16",
        tied=tied,
    )
    for layers, query, ffn, tied in ((3, 2, 128, True), (4, 4, 192, False), (2, 2, 192, False))
]


def machine(
    figures: list[tuple[int, int]], direct: bool
) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """Cards of so many 1e9 bytes and 1e10 operations a second, so slow that shares count.

    The first two may have a better link.
    """
    made = tuple(
        replace(card, flops=flops * 1e10, free=1 << 40, context=1000)
        for card, (_, flops) in zip(
            cards(*(bandwidth * 1e9 for bandwidth, _ in figures), kind="rocm"), figures, strict=True
        )
    )
    first, second = made[0].id, made[1].id
    return made, (Link(first, second, "nvlink", 1e11, verified=True),) if direct else ()


def tightened(devices: tuple[Device, ...], memory: Memory, parts: list[int]) -> tuple[Device, ...]:
    """Devices with so many hundredths of what the model takes beside a card's fixed part."""
    fixed = WORKSPACE + memory.context
    return tuple(
        replace(device, free=fixed + (memory.total - fixed) * part // 100)
        for device, part in zip(devices, parts, strict=False)
    )


def on_every_device(plan: Plan, devices: tuple[Device, ...]) -> None:
    for device in devices:
        mine = sum(p.memory.total for p in plan.placements if p.device == device.id)
        assert mine <= device.free - device.reserve


@settings(deadline=None, max_examples=8)
@given(
    st.sampled_from(MODELS),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=2, max_size=3),
    st.lists(st.integers(30, 120), min_size=3, max_size=3),
    st.booleans(),
    st.sampled_from(LATENCIES),
    st.sampled_from(["chat", "serve"]),
)
def test_the_search_finds_the_best_of_all_plans(
    model: ModelSpec,
    figures: list[tuple[int, int]],
    parts: list[int],
    direct: bool,
    latency: float,
    objective: Objective,
) -> None:
    check(model, figures, parts, direct, latency, objective)


def check(
    model: ModelSpec,
    figures: list[tuple[int, int]],
    parts: list[int],
    direct: bool,
    latency: float,
    objective: Objective,
) -> Plan | None:
    """Compare the search with every plan; what it found, if there is anything to find."""
    knowledge = knowing(latency)
    goal = Goal(
        kv_format="bfloat16", context=64, chunk=32, streams=2, objective=objective, offload="none"
    )
    devices, links = roomy_to(model, figures, parts, direct, goal, knowledge)
    best = Every(model, goal, knowledge, 64, links).best(devices)
    ask = Ask(model, devices, goal, knowledge, 64, links)
    found = answer(ask)
    plan = None if found.short else plan_of(ask, found.placements, ())
    if plan is None:
        assert best is None
        return None
    on_every_device(plan, devices)
    assert plan.prediction is not None
    assert best is not None
    if not plan.copies:
        fastest = min(
            seconds(prediction_of(found.problem, solution, 64, 2), objective)
            for solution in found.found.solutions
        )
        assert fastest == pytest.approx(best, rel=1e-9)
        assert best * (1 - 1e-9) <= seconds(plan.prediction, objective) <= best * (1 + WORTH)
    return plan


SEVEN = small_spec(
    replace(SMALL, layers=7, hidden=256, query_heads=2, kv_heads=2, ffn=128, vocab=256), "F16"
)
FIGURES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=6, max_size=6)
PARTS = st.lists(st.integers(30, 120), min_size=6, max_size=6)


@settings(deadline=None, max_examples=3)
@given(
    FIGURES,
    st.lists(st.integers(20, 90), min_size=6, max_size=6),
    st.integers(5, 6),
    st.booleans(),
    st.sampled_from(["chat", "serve"]),
)
def test_no_order_of_five_or_six_cards_is_faster(
    figures: list[tuple[int, int]],
    parts: list[int],
    count: int,
    direct: bool,
    objective: Objective,
) -> None:
    """Cards alone and one after another, each with its own room, in every order and cut."""
    knowledge = knowing(LATENCIES[1])
    goal = Goal(kv_format="bfloat16", context=64, chunk=32, streams=2, objective=objective)
    goal = replace(goal, offload="none")
    devices, links = roomy_to(SEVEN, figures[:count], parts, direct, goal, knowledge)
    expected = Every(SEVEN, goal, knowledge, 64, links).best(devices, largest=1)
    problem = Ask(SEVEN, devices, goal, knowledge, 64, links).problem()
    found = [
        solution.seconds
        for split in ("single", "layer")
        if (best := search(problem, range(count), split, "none")) is not None
        for solution in best.solutions
    ]
    if found and expected is not None:
        assert min(found) == pytest.approx(expected, rel=1e-9)
    else:
        assert not found
        assert expected is None


@settings(deadline=None, max_examples=4)
@given(
    st.sampled_from(MODELS),
    FIGURES,
    PARTS,
    st.booleans(),
    st.sampled_from(LATENCIES),
    st.sampled_from(["chat", "serve"]),
)
def test_bounds_leave_out_no_structure_of_four_cards_that_is_faster(
    model: ModelSpec,
    figures: list[tuple[int, int]],
    parts: list[int],
    direct: bool,
    latency: float,
    objective: Objective,
) -> None:
    knowledge, members = knowing(latency), range(4)
    goal = Goal(kv_format="bfloat16", context=64, chunk=32, streams=2, objective=objective)
    devices, links = roomy_to(model, figures[:4], parts, direct, goal, knowledge)
    problem = Ask(model, devices, goal, knowledge, 64, links).problem()
    best = float("inf")
    for groups in every_structure(devices, model.dimensions.layers):
        structure = tuple(tuple(devices.index(device) for device in group) for group in groups)
        solution = solve(problem, structure)
        if solution is None:
            continue
        bounds = [bound_of(problem, structure, sharp) for sharp in (False, True)]
        assert all(bound is not None and bound <= solution.seconds for bound in bounds), structure
        best = min(best, solution.seconds)
    found = search(problem, members, None, "none")
    assert (found is None) == (best == float("inf"))
    if found is not None:
        fastest = min(solution.seconds for solution in found.solutions)
        assert fastest == pytest.approx(best, rel=1e-9)


def roomy_to(
    model: ModelSpec,
    figures: list[tuple[int, int]],
    parts: list[int],
    direct: bool,
    goal: Goal,
    knowledge: Knowledge,
) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """Cards with room for so many hundredths of the model each."""
    devices, links = machine(figures, direct)
    alone = searched(model, devices[:1], (), goal, knowledge)
    assert alone is not None
    return tightened(devices, alone.placements[0].memory, parts), links


def searched(
    model: ModelSpec,
    devices: tuple[Device, ...],
    links: tuple[Link, ...],
    goal: Goal,
    knowledge: Knowledge,
) -> Plan | None:
    """The search over named cards, since no default takes those of this kind."""
    ask = Ask(model, devices, goal, knowledge, 64, links)
    given = answer(ask)
    return None if given.short else plan_of(ask, given.placements, ())
