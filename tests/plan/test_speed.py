"""Predictions follow the arithmetic they state: more bytes are slower, faster memory is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_specs import SMALL, cards, processors, small_spec

from local_tp.core import Goal, Plan
from local_tp.plan.planner import make_plan
from local_tp.plan.speed import (
    OPERATION_SECONDS,
    OPERATIONS_PER_LAYER,
    REDUCTION_SECONDS,
    STEP_SECONDS,
)

BIG = small_spec(replace(SMALL, hidden=1024, ffn=65536), "F16")


def speeds(plan: Plan) -> tuple[float, float]:
    assert plan.decode is not None
    assert plan.prefill is not None
    return plan.decode, plan.prefill


def test_decode_of_one_card_is_its_weights_over_its_bandwidth_and_the_fixed_costs() -> None:
    plan = make_plan(BIG, cards(1e12), Goal())
    launch = SMALL.layers * OPERATIONS_PER_LAYER * OPERATION_SECONDS["cuda"]
    seconds = plan.placements[0].weights / 1e12 + launch + STEP_SECONDS
    assert plan.decode == pytest.approx(1 / seconds)
    assert plan.bound == "memory bandwidth"


def test_a_small_model_is_bound_by_launches() -> None:
    assert make_plan(small_spec(), cards(1e12), Goal()).bound == "operation launches"


def test_twice_the_bandwidth_is_faster_but_not_twice() -> None:
    slow, _ = speeds(make_plan(BIG, cards(1e12), Goal()))
    fast, _ = speeds(make_plan(BIG, cards(2e12), Goal()))
    assert slow < fast < 2 * slow


def test_a_tensor_split_reads_at_once_and_a_layer_split_one_after_another() -> None:
    one, _ = speeds(make_plan(BIG, cards(1e11), Goal()))
    layer, _ = speeds(make_plan(BIG, cards(1e11, 1e11), Goal(split="layer")))
    tensor, _ = speeds(make_plan(BIG, cards(1e11, 1e11), Goal(split="tensor")))
    assert layer == pytest.approx(one, rel=0.05)
    assert tensor > 1.8 * one


def test_ranks_on_one_device_share_its_bandwidth() -> None:
    one, _ = speeds(make_plan(BIG, processors(1), Goal()))
    two, _ = speeds(make_plan(BIG, processors(2), Goal(split="tensor")))
    assert two < 1.05 * one


def test_every_reduction_costs() -> None:
    near = make_plan(BIG, cards(1e12, 1e12), Goal(split="tensor"))
    far = make_plan(BIG, cards(1e12, 1e12, kind="rocm"), Goal(split="tensor"))
    assert (near.transport, far.transport) == ("nccl", "gloo")
    more = 2 * SMALL.layers * (REDUCTION_SECONDS["gloo"] - REDUCTION_SECONDS["nccl"])
    assert 1 / speeds(far)[0] - 1 / speeds(near)[0] == pytest.approx(more)
    assert far.bound == "exchange between ranks"


def test_prefill_follows_the_arithmetic_rate() -> None:
    cards_ = [replace(cards(1e12)[0], flops=flops) for flops in (1e13, 4e13)]
    slow, fast = (speeds(make_plan(BIG, [card], Goal()))[1] for card in cards_)
    assert 2 < fast / slow <= 4
