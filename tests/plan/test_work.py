"""Work counted by hand for a small model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_specs import small_spec

from local_tp.checkpoint.known_models import known_model
from local_tp.core import EMPTY, Goal, ModelSpec, Placement, Span
from local_tp.plan.work import Part, expert_bytes, work_of

GOAL = Goal(kv_format="float16", dtype="bfloat16")


def whole(spec: ModelSpec) -> Placement:
    d = spec.dimensions
    return Placement(
        0,
        "cpu",
        0,
        Span(0, d.layers),
        Span(0, d.query_heads),
        Span(0, d.kv_heads),
        Span(0, d.ffn),
        Span(0, d.vocab),
        Span(0, d.experts),
    )


def test_the_parts_of_a_dense_model() -> None:
    spec = small_spec()
    mixer, feed, experts, head = work_of(spec, whole(spec), GOAL, "cpu")
    attention = 64 * (6 * 32 + 2 * 2 * 32) + 6 * 32 * 64
    assert (mixer.name, mixer.layers, mixer.weights) == ("mixer", 6, 6 * 2 * attention)
    assert mixer.operations == 6 * 2 * attention
    assert mixer.kv == 6 * 2 * 2 * 32 * 2  # layers, keys and values, heads, size, bytes
    assert mixer.attention == 6 * 4 * 6 * 32
    assert (feed.layers, feed.weights, feed.held) == (6, 6 * 2 * 3 * 64 * 256, "bfloat16")
    assert (experts.layers, experts.weights, experts.launches) == (0, 0, 0)
    assert (head.layers, head.weights, head.operations) == (1, 2 * 512 * 64, 2 * 512 * 64)


def test_what_operations_between_products_pass_over() -> None:
    """Norms four times, queries, keys and values four times, every input and output once."""
    spec = small_spec()
    mixer, feed, experts, head = work_of(spec, whole(spec), GOAL, "cpu")
    qkv, heads = 10 * 32, 6 * 32
    assert mixer.between == 6 * 8 * (4 * 64 + (64 + 4 * qkv) + (heads + 64))
    assert feed.between == 6 * 8 * (4 * 64 + (64 + 2 * 256) + (256 + 64))
    assert (experts.between, head.between) == (0, 0)
    idle = replace(whole(spec), query_heads=EMPTY, kv_heads=EMPTY)
    assert work_of(spec, idle, GOAL, "cpu")[0].between == 0


def test_ranks_of_a_stage_share_everything_and_have_the_same_parts() -> None:
    spec = small_spec()
    rank = whole(spec)
    first = replace(rank, query_heads=Span(0, 3), kv_heads=Span(0, 1), ffn=Span(0, 64), vocab=EMPTY)
    second = replace(
        rank, query_heads=Span(3, 6), kv_heads=Span(1, 2), ffn=Span(64, 256), vocab=Span(0, 512)
    )
    both = [work_of(spec, p, GOAL, "cpu") for p in (first, second)]
    for parts in zip(work_of(spec, rank, GOAL, "cpu"), *both, strict=True):
        assert len({part.name for part in parts}) == 1
        for figure in ("weights", "operations", "kv", "attention"):
            mine = [getattr(part, figure) for part in parts]
            assert mine[1] + mine[2] == mine[0]
        assert parts[1].layers == parts[2].layers == parts[0].layers


def test_only_the_last_stage_has_a_head() -> None:
    spec = small_spec()
    first = replace(whole(spec), layers=Span(0, 2))
    last = replace(whole(spec), layers=Span(2, 6), stage=1)
    assert [part.name for part in work_of(spec, first, GOAL, "cpu")] == ["mixer", "feed", "experts"]
    head = work_of(spec, last, GOAL, "cpu")[-1]
    assert (head.name, head.weights) == ("head", 2 * 512 * 64)


def test_streamed_layers_are_counted_as_copied() -> None:
    spec = small_spec()
    feed = work_of(spec, replace(whole(spec), streamed=Span(1, 3)), GOAL, "cpu")[1]
    assert feed.streamed == feed.weights / 3


def test_routed_experts_are_a_pool_of_which_a_token_reads_a_part() -> None:
    spec = known_model("gpt-oss 20B", "default")
    goal = Goal(dtype="stored", kv_format="float16")
    mixer, feed, experts, _ = work_of(spec, whole(spec), goal, "cuda")
    assert (experts.layers, feed.layers) == (24, 0)
    assert experts.held == "MXFP4"
    assert experts.chosen == pytest.approx(experts.pool * 4 / 32)
    assert experts.operations == pytest.approx(2 * 24 * (4 * 3 * 2880 * 2880 + 32 * 2880), rel=1e-6)
    assert mixer.kv == 12 * 2 * 8 * 64 * 2  # every other layer looks back all the way
    assert mixer.windows == mixer.sliding * 128
    assert mixer.sliding == mixer.kv


def test_recurrent_layers_read_a_state_of_fixed_size() -> None:
    spec = known_model("Qwen3.5 27B", "Q8_0")
    goal = Goal(dtype="stored", kv_format="float16")
    mixer = work_of(spec, whole(spec), goal, "cuda")[0]
    assert mixer.layers == 64
    assert mixer.kv == 16 * 2 * 4 * 256 * 2
    assert mixer.kv_fixed == 48 * 2 * spec.dimensions.state * 4
    assert mixer.context_bytes(0) == mixer.kv_fixed


def test_windows_are_read_until_they_are_full() -> None:
    part = Part("mixer", "bfloat16", kv=10, sliding=4, windows=400, sliding_attention=2)
    assert part.context_bytes(50) == 50 * 14
    assert part.context_bytes(1000) == 10000 + 400
    assert part.context_operations(1000) == 2 * 100


def test_distinct_experts_of_several_tokens() -> None:
    part = Part("experts", "bfloat16", pool=1000.0, chosen=100.0)
    assert expert_bytes(part, 1) == pytest.approx(100.0)
    assert expert_bytes(part, 2) == pytest.approx(190.0)
    assert expert_bytes(part, 1000) == pytest.approx(1000.0)
    assert expert_bytes(Part("feed", "bfloat16"), 5) == 0.0
