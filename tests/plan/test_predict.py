"""From placements to a prediction: shared devices, power limits, replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_specs import cards, processors, small_spec

from local_tp.core import Device, Goal, Plan
from local_tp.facts import CardFacts
from local_tp.hardware.rates import load_rates
from local_tp.plan.place import place
from local_tp.plan.planner import Knowledge, make_plan
from local_tp.plan.predict import (
    CARD_FLOPS,
    CORES_EXPONENT,
    CPU_FLOPS,
    stages_of,
    with_prediction,
    worker_threads,
)
from local_tp.plan.settle import measured_product
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


def test_the_fastest_measured_product_counts_but_never_one_of_integers() -> None:
    """Packed weights are unpacked to 32 or 16 bits, whichever multiplies faster."""
    facts = CardFacts(matmul=(("float32", 3e11), ("bfloat16", 2e11), ("int8", 9e11)))
    processor = replace(processors(1)[0], flops=2e11, facts=facts)
    (found,) = speeds([processor])
    assert (found.flops, found.float32, found.bfloat16) == (3e11, 3e11, 2e11)
    assert speeds(processors(1))[0].flops == CPU_FLOPS


def of_cores(cores: int, one: float | None, bandwidth: float = 4e10) -> Device:
    facts = CardFacts(cores=cores, core_bandwidth=one)
    return replace(processors(1)[0], bandwidth=bandwidth, flops=8e11, facts=facts)


def test_a_rank_has_its_threads_and_what_they_draw_of_the_memory() -> None:
    two = of_cores(2, 2.5e10)
    assert speeds([two])[0] == Speed("cpu", "cpu", 4e10, 8e11)
    assert speeds([two] * 2) == [Speed("cpu", "cpu", 2e10, 4e11)] * 2
    for stage in speeds([two] * 2, "layer"):  # one thread, which has the memory for itself
        assert (stage.flops, stage.bandwidth) == pytest.approx((4e11, 2.5e10))
    eight = of_cores(8, 1e10)  # of which one is left free
    assert speeds([eight])[0].flops == pytest.approx(7e11)
    assert speeds([eight] * 2)[0].flops == pytest.approx(3e11)


def test_more_ranks_than_cores_have_a_core_each_while_their_stage_has() -> None:
    two = of_cores(2, 2.5e10)
    for stage in speeds([two] * 3, "layer"):
        assert (stage.flops, stage.bandwidth) == pytest.approx((4e11, 2.5e10))
    for rank in speeds([two] * 3):
        assert rank.flops == pytest.approx(8e11 / 3)


def test_what_one_core_draws_tells_little_of_all() -> None:
    unmeasured = of_cores(4, 1e10, bandwidth=1e10)
    whole = 1e10 * 4**CORES_EXPONENT
    assert speeds([unmeasured])[0].bandwidth == pytest.approx(whole * 0.75**CORES_EXPONENT)


def test_sums_of_more_ranks_than_cores_wait_for_sleepers() -> None:
    spec = small_spec()
    for cores, longer in ((3, 0.0), (2, RATES.asleep)):
        devices = [of_cores(cores, 2.5e10)] * 3
        placements = place(spec, devices, "tensor", GOAL)
        (stage,) = stages_of(spec, placements, devices, [], [], "shared-memory", RATES, GOAL)
        wire = RATES.wire("shared-memory", "host")
        assert stage.total.latency == pytest.approx(wire.latency + wire.rank + longer)
    assert RATES.asleep > 0


@pytest.mark.parametrize(
    ("cores", "ranks", "threads"), [(1, 1, 1), (2, 1, 2), (8, 2, 3), (2, 3, 1)]
)
def test_threads_of_a_worker(cores: int, ranks: int, threads: int) -> None:
    assert worker_threads(cores, ranks) == threads


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
    assert found == predict(stages, 64, RATES, 512, 64, GOAL.streams, prompt=512)


def test_a_long_prompt_goes_through_all_stages_at_once() -> None:
    """Eight chunks through two equal stages take as long as nine halves of one after another."""
    spec, devices = small_spec(), cards(1e12, 1e12)
    placements = place(spec, devices, "layer", GOAL)
    plan = Plan("small", GOAL, placements, "nccl", 8192, 32, 256, split="layer")
    rates = replace(RATES, step=0.0, stage=0.0)
    found = with_prediction(spec, plan, devices, [], rates).prediction
    in_turn = with_prediction(spec, plan, devices, [], replace(rates, pipelined=1)).prediction
    assert found is not None
    assert in_turn is not None
    assert 1.5 < found.prefill / in_turn.prefill < 16 / 9
    assert found.first_token == in_turn.first_token


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


def test_streams_that_cannot_be_divided_evenly_are_counted_as_they_run() -> None:
    spec, devices = small_spec(), cards(1e12)
    placements = place(spec, devices, "single", GOAL)
    plan = Plan("small", GOAL, placements, "none", 512, 32, 16)

    def aggregate(streams: int, *copies: tuple[str, ...]) -> float:
        asked = replace(plan, goal=replace(GOAL, streams=streams), copies=copies)
        found = with_prediction(spec, asked, devices, [], RATES).prediction
        assert found is not None
        return found.aggregate

    three = (("b",), ("c",))
    expected = aggregate(2) + 2 * aggregate(1)
    assert aggregate(4, *three) == pytest.approx(expected)
    assert aggregate(2, *three) == pytest.approx(2 * aggregate(1))


def test_a_copy_on_the_same_processor_shares_its_cores() -> None:
    spec, devices = small_spec(), processors(1)
    placements = place(spec, devices, "single", GOAL)
    plan = Plan("small", GOAL, placements, "none", 512, 32, 16)
    alone = with_prediction(spec, plan, devices, [], RATES).prediction
    beside = with_prediction(spec, replace(plan, copies=(("cpu",),)), devices, [], RATES).prediction
    other = with_prediction(spec, replace(plan, copies=(("b",),)), devices, [], RATES).prediction
    assert alone is not None
    assert beside is not None
    assert other is not None
    assert beside.prefill < alone.prefill
    assert other.prefill == alone.prefill


@pytest.mark.parametrize(
    ("matmul", "product"),
    [
        ((("float32", 2e11), ("bfloat16", 4e11), ("int8", 9e11)), "bfloat16"),
        ((("float32", 4e11), ("bfloat16", 2e11)), "float32"),
        ((("float32", 4e11),), None),
        ((), None),
    ],
)
def test_a_plan_says_in_which_type_the_processor_multiplies(
    matmul: tuple[tuple[str, float], ...], product: str | None
) -> None:
    processor = replace(processors(1)[0], facts=CardFacts(matmul=matmul))
    plan = make_plan(small_spec(), [processor], replace(GOAL, streams=1), Knowledge(RATES))
    assert plan.goal.product == product
    assert measured_product(cards(1e12)) is None
