"""On small machines the search finds the best of all plans there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from every_plan import Every
from hypothesis import given, settings
from hypothesis import strategies as st
from small_specs import SMALL, cards, small_spec

from local_tp.core import Device, Goal, Link, ModelSpec, Objective, Plan
from local_tp.hardware.rates import load_rates
from local_tp.plan.memory import WORKSPACE
from local_tp.plan.planner import Knowledge, plan_of
from local_tp.plan.search.ask import Ask, answer
from local_tp.plan.search.lean import WORTH
from local_tp.plan.search.objective import seconds
from local_tp.plan.search.plan import prediction_of
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
    devices, links = machine(figures, direct)
    alone = searched(model, devices[:1], (), goal, knowledge)
    assert alone is not None
    devices = tightened(devices, alone.placements[0].memory, parts)
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
