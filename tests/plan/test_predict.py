"""From placements to a prediction: shared devices, power limits, replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_specs import cards, processors, small_spec

from local_tp.core import Device, Goal, Plan
from local_tp.facts import CardFacts
from local_tp.hardware.rates import load_rates
from local_tp.plan.place import place
from local_tp.plan.predict import CARD_FLOPS, CPU_FLOPS, stages_of, with_prediction
from local_tp.plan.time import Speed, predict

GOAL = Goal(kv_format="float32", chunk=64)
RATES = load_rates()


def speeds(devices: list[Device], split: str = "tensor") -> list[Speed]:
    spec = small_spec()
    named = "single" if len(devices) == 1 else split
    placements = place(spec, devices, named, GOAL)  # type: ignore[arg-type]
    by = "none" if len(devices) == 1 else "shared-memory"
    stages = stages_of(spec, placements, devices, [], [], by, RATES, GOAL)
    return [rank.speed for stage in stages for rank in stage.ranks]


def test_ranks_of_a_stage_share_the_processor() -> None:
    processor = replace(processors(1)[0], bandwidth=4e10, flops=8e11)
    assert speeds([processor])[0] == Speed("cpu", "cpu", 4e10, 8e11)
    assert speeds([processor] * 2) == [Speed("cpu", "cpu", 2e10, 4e11)] * 2


def test_stages_on_the_processor_have_their_cores_at_all_times_and_most_of_the_memory() -> None:
    processor = replace(processors(1)[0], bandwidth=4e10, flops=8e11)
    for one in speeds([processor] * 2, "layer"):
        assert one.flops == 4e11
        assert one.bandwidth == pytest.approx(4e10 * 0.5**0.45)


def test_the_fastest_measured_product_counts() -> None:
    facts = CardFacts(matmul=(("float32", 3e11), ("bfloat16", 2e11)))
    processor = replace(processors(1)[0], flops=2e11, facts=facts)
    assert speeds([processor])[0].flops == 3e11
    assert speeds(processors(1))[0].flops == CPU_FLOPS


def test_a_power_limit_caps_the_rated_operations_but_no_measured_ones() -> None:
    card = replace(cards(1e12)[0], flops=1.5e14, capability=(8, 6))
    limited = replace(card, facts=CardFacts(power_limit=200.0))
    measured = replace(card, facts=CardFacts(power_limit=200.0, matmul=(("bfloat16", 1.4e14),)))
    assert speeds([card])[0].flops == 1.5e14
    assert speeds([limited])[0].flops == pytest.approx(200 * RATES.joule["8.6"])
    assert speeds([measured])[0].flops == 1.5e14
    assert speeds(cards(1e12))[0].flops == CARD_FLOPS


def test_a_plan_is_predicted_as_its_stages_are() -> None:
    spec, devices = small_spec(), cards(1e12, 1e12)
    placements = place(spec, devices, "tensor", GOAL)
    plan = Plan("small", GOAL, placements, "nccl", 512, 32, 16, split="tensor")
    found = with_prediction(spec, plan, devices, [], RATES).prediction
    stages = stages_of(spec, placements, devices, [], [], "nccl", RATES, GOAL)
    assert found == predict(stages, 64, RATES, 512, 64, GOAL.streams)


def test_replicas_share_the_streams_and_add_up() -> None:
    spec, devices = small_spec(), cards(1e12)
    placements = place(spec, devices, "single", GOAL)
    plan = Plan("small", replace(GOAL, streams=8), placements, "none", 512, 32, 16)
    copied = with_prediction(
        spec, replace(plan, copies=(("b",), ("c",), ("d",))), devices, [], RATES
    )
    alone = with_prediction(spec, replace(plan, goal=replace(GOAL, streams=2)), devices, [], RATES)
    assert copied.prediction is not None
    assert alone.prediction is not None
    assert copied.prediction.aggregate == pytest.approx(4 * alone.prediction.aggregate)
    assert copied.prediction.decode == alone.prediction.decode
