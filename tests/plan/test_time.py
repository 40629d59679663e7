"""Seconds worked out by hand from round figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from local_tp.plan.time import (
    Load,
    Rank,
    Speed,
    Stage,
    part_seconds,
    predict,
    prompt_seconds,
    step_seconds,
    step_terms,
)
from local_tp.plan.work import Part
from local_tp.rates import Attending, Channel, Efficiency, Rates

RATES = Rates(
    engine="test",
    efficiency={
        "cuda other": Efficiency(memory=0.5, compute=0.5),
        "cpu other": Efficiency(memory=0.5, compute=0.5, few=0.1, unpack=0.25),
    },
    launch={"cuda": 1e-6, "rocm": 1e-6, "xpu": 1e-6, "cpu": 1e-5},
    step=1e-3,
    many=32,
    element=4,
)
CARD = Speed("a", "cuda", bandwidth=1e12, flops=1e14, copy=1e10)
CPU = Speed("cpu", "cpu", bandwidth=1e10, flops=1e12)
FEED = Part("feed", "bfloat16", layers=10, launches=50, weights=1e9, operations=1e9)
NOTHING = Channel()
HEAD = Part("head", "bfloat16", layers=1, weights=1e8, operations=1e8)


def stage(*speeds: Speed, total: Channel = NOTHING, onward: Channel = NOTHING) -> Stage:
    return Stage(tuple(Rank((FEED,), speed) for speed in speeds), total, onward)


def test_a_token_reads_all_weights_at_the_bandwidth_that_kernels_reach() -> None:
    assert part_seconds(FEED, CARD, RATES, Load()) == pytest.approx(
        {"memory bandwidth": 1e9 / 5e11, "operation launches": 5e-5}
    )


def test_a_prompt_computes_longer_than_it_reads() -> None:
    seconds = part_seconds(FEED, CARD, RATES, Load(tokens=1000))
    assert seconds["arithmetic"] == pytest.approx(1000 * 1e9 / 5e13)
    assert "memory bandwidth" not in seconds


def test_keys_and_values_are_read_for_every_user() -> None:
    part = replace(FEED, kv=1e5, kv_fixed=1e6, weights=0.0, operations=0.0, launches=0)
    seconds = part_seconds(part, CARD, RATES, Load(rows=3, context=100))
    assert seconds["memory bandwidth"] == pytest.approx(3 * (1e7 + 1e6) / 5e11)


def test_attention_grows_with_the_context() -> None:
    part = replace(FEED, attention=1e6)
    near, far = (
        part_seconds(part, CARD, RATES, Load(tokens=1000, context=c))["arithmetic"]
        for c in (0, 1000)
    )
    assert far - near == pytest.approx(1000 * 1e6 * 1000 / 5e13)


def test_scores_that_are_written_and_read_take_their_time() -> None:
    part, rates = replace(FEED, attention=1e6), replace(RATES, scores=0.1)
    load = Load(tokens=1000, context=1000)
    plain = part_seconds(part, CARD, RATES, load)["arithmetic"]
    scored = part_seconds(part, CARD, rates, load)["arithmetic"]
    assert scored - plain == pytest.approx(1e12 * 0.1 / 1e12)


def test_few_tokens_have_kernels_of_their_own_and_many_unpack_first() -> None:
    few = part_seconds(FEED, CPU, RATES, Load(rows=31, sampled=31))
    assert few["arithmetic"] == pytest.approx(31e9 / 1e11)
    many = part_seconds(FEED, CPU, RATES, Load(tokens=32))
    assert many["memory bandwidth"] == pytest.approx(1e9 / 5e9)
    assert many["unpacking weights"] == pytest.approx(1e9 / 2.5e11)


def test_of_few_tokens_four_share_a_conversion_of_the_weights() -> None:
    efficiency = Efficiency(memory=0.5, compute=0.5, few=0.01, first=3.0)
    rates = replace(RATES, efficiency={"cpu other": efficiency})
    one, four, five = (
        part_seconds(FEED, CPU, rates, Load(rows=rows, sampled=rows))["arithmetic"]
        for rows in (1, 4, 5)
    )
    assert (one, four, five) == pytest.approx((4e9 / 1e10, 7e9 / 1e10, 11e9 / 1e10))


def test_each_type_of_numbers_is_multiplied_at_its_own_rate() -> None:
    """Packed weights are unpacked to the fastest; few tokens are computed in 32 bits."""
    typed = replace(CPU, flops=4e12, float32=1e12, bfloat16=2e12)
    many = Load(tokens=1000)
    for held, rate in (("int4", 4e12), ("bfloat16", 2e12), ("float32", 1e12)):
        part = replace(FEED, held=held)
        found = part_seconds(part, typed, RATES, many)["arithmetic"]
        assert found == pytest.approx(1000 * 1e9 / (rate * 0.5))
        few = part_seconds(part, typed, RATES, Load(rows=31, sampled=31))["arithmetic"]
        assert few == pytest.approx(31e9 / 1e11)
    assert replace(typed, float32=0.0).vector == 4e12


def test_attention_of_a_processor_reads_and_computes_at_its_own_rate() -> None:
    """Beside the products, which take 0.2 s to read; a chunk computes what the mask hides too."""
    rates = replace(RATES, attention={"cpu": Attending(memory=0.25, compute=0.2)})
    part = replace(FEED, kv=1e5, attention=1e6)
    one = part_seconds(part, CPU, rates, Load(context=1000))
    assert one["memory bandwidth"] == pytest.approx(0.2 + 1e8 / 2.5e9)
    chunk = part_seconds(part, CPU, rates, Load(tokens=101, context=1000))
    assert chunk["arithmetic"] == pytest.approx(101e9 / 5e11 + 101 * 1e6 * 1050 / 2e11)
    on_card = Load(tokens=101, context=1000)
    assert part_seconds(part, CARD, rates, on_card) == part_seconds(part, CARD, RATES, on_card)


def test_operations_between_products_pass_over_memory_unless_they_are_fused() -> None:
    part = replace(FEED, between=1e6)
    chunk = Load(tokens=1000)
    fused = part_seconds(part, CARD, RATES, chunk)
    apart = part_seconds(part, CARD, replace(RATES, fused=False), chunk)
    assert "memory bandwidth" not in fused
    assert apart["memory bandwidth"] == pytest.approx(1e9 / 1e12)
    assert apart["arithmetic"] == fused["arithmetic"]


def test_a_short_product_takes_as_long_as_a_longer_one() -> None:
    rates = replace(RATES, ramp=64)
    seconds = part_seconds(FEED, CARD, rates, Load(tokens=256))["arithmetic"]
    assert seconds == pytest.approx((256 + 64) * 1e9 / 5e13)


def test_each_chosen_expert_has_a_short_product_of_its_own() -> None:
    part = replace(FEED, name="experts", weights=0.0, pool=1e9, chosen=1e8)
    rates = replace(RATES, ramp=64)
    seconds = part_seconds(part, CARD, rates, Load(tokens=4096))["arithmetic"]
    assert seconds == pytest.approx((4096 + 64 * 10) * 1e9 / 5e13)


def test_streamed_weights_are_copied_while_the_rest_runs() -> None:
    part = replace(FEED, streamed=1e9)
    seconds = part_seconds(part, CARD, RATES, Load())
    assert sum(seconds.values()) == pytest.approx(1e9 / 1e10)
    long = part_seconds(part, CARD, RATES, Load(tokens=10_000))
    assert long["copying weights"] == 0.0


def test_a_stage_waits_for_its_slowest_rank_part_by_part() -> None:
    slow = replace(CARD, device="b", bandwidth=5e11)
    terms = step_terms([stage(CARD, slow, total=Channel(1e-5, 1e9))], 100, RATES, Load())[0]
    assert {(term.name, term.device) for term in terms if term.device} == {
        ("memory bandwidth", "b"),
        ("operation launches", "b"),
    }
    exchange = next(term for term in terms if term.name == "exchange between ranks")
    assert exchange.seconds == pytest.approx(10 * (1e-5 + 400 / 1e9))


def test_the_head_is_computed_for_sampled_rows_and_is_no_exchange() -> None:
    head = Stage((Rank((FEED, HEAD), CARD), Rank((FEED, HEAD), CARD)), Channel(1.0), Channel())
    terms = step_terms([head], 100, RATES, Load(tokens=1000))[0]
    assert next(t for t in terms if t.name == "exchange between ranks").seconds == 10.0
    assert next(t for t in terms if t.name == "memory bandwidth").seconds == 1e8 / 5e11


def test_prediction_adds_stages_up_and_names_what_binds() -> None:
    stages = [stage(CARD, onward=Channel(1e-4)), stage(CARD)]
    found = predict(stages, 100, replace(RATES, stage=5e-4), context=0, chunk=100, streams=4)
    token = 2 * (2e-3 + 5e-5) + 1e-4 + 1e-3 + 5e-4
    assert found.decode == pytest.approx(1 / token)
    assert found.aggregate == pytest.approx(4 / token)
    assert found.bound == "memory bandwidth on a"
    chunk = 2 * (2e-3 + 5e-5) + 1e-4 + 1.5e-3
    assert found.first_token == pytest.approx(chunk)
    assert found.prefill == pytest.approx(100 / chunk)


def test_chunks_follow_each_other_through_the_stages() -> None:
    stages, rates = [stage(CARD), stage(CARD)], replace(RATES, step=0.0, pipelined=4)
    one = 1000 * 1e9 / 5e13 + 5e-5
    assert prompt_seconds(stages, 100, rates, 1000, 1000) == pytest.approx(2 * one)
    assert prompt_seconds(stages, 100, rates, 4000, 1000) == pytest.approx(5 * one)
    assert prompt_seconds(stages, 100, rates, 8000, 1000) == pytest.approx(10 * one)
    in_turn = replace(rates, pipelined=1)
    assert prompt_seconds(stages, 100, in_turn, 4000, 1000) == pytest.approx(8 * one)


def test_chunks_of_a_model_with_experts_go_one_by_one() -> None:
    experts = replace(FEED, name="experts", pool=1e9, chosen=1e9, weights=0.0)
    stages = [Stage((Rank((experts,), CARD),), Channel(), Channel())] * 2
    rates = replace(RATES, pipelined=4)
    one_by_one = prompt_seconds(stages, 100, replace(rates, pipelined=1), 4000, 1000)
    assert prompt_seconds(stages, 100, rates, 4000, 1000) == pytest.approx(one_by_one)


def test_what_stands_before_a_prompt_counts() -> None:
    part = replace(FEED, attention=1e6)
    stages = [Stage((Rank((part,), CARD),), Channel(), Channel())]
    near = prompt_seconds(stages, 100, RATES, 1000, 1000)
    far = prompt_seconds(stages, 100, RATES, 1000, 1000, behind=1000)
    assert far - near == pytest.approx(1000 * 1e6 * 1000 / 5e13)


def test_a_step_is_its_terms_and_what_is_outside_them() -> None:
    stages = [stage(CARD)]
    terms = step_terms(stages, 100, RATES, Load())
    total = sum(term.seconds for one in terms for term in one) + 1e-3
    assert step_seconds(stages, 100, RATES, Load()) == pytest.approx(total)
