"""A placement that is not a whole model is refused, and the refusal names the rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from small_shapes import devices_of, spec_like, staged
from small_specs import placed, processors, small_spec

from local_tp.checkpoint.shapes import Shape
from local_tp.core import EMPTY, Device, ModelSpec, Placement, Span, Split
from local_tp.errors import PlanError
from local_tp.plan.check import check_placements

SPEC = small_spec()


def refusal(split: Split, ranks: int, changed: int, **changes: Any) -> str:
    """What is said of a good placement once one rank of it is changed."""
    devices = processors(ranks)
    good = placed(SPEC, devices, split)
    check_placements(SPEC, good, devices)
    bad = [replace(p, **changes) if p.rank == changed else p for p in good]
    with pytest.raises(PlanError) as caught:
        check_placements(SPEC, bad, devices)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_gap_between_columns() -> None:
    assert refusal("tensor", 2, 1, ffn=Span(192, 256)) == (
        "rank 1: ffn must start at 128, it starts at 192"
    )


def test_an_overlap_of_columns() -> None:
    assert refusal("tensor", 2, 1, ffn=Span(64, 256)) == (
        "rank 1: ffn must start at 128, it starts at 64"
    )


def test_columns_of_nobody_at_the_end() -> None:
    assert refusal("tensor", 2, 1, ffn=Span(128, 192)) == (
        "stage 0: ffn is covered up to 192 of 256"
    )


def test_columns_beyond_the_end() -> None:
    assert "covered up to 512 of 256" in refusal("tensor", 2, 1, ffn=Span(128, 512))


def test_a_span_that_runs_backwards() -> None:
    assert "rank 1: ffn must start" in refusal("tensor", 2, 1, ffn=Span(128, 64))


@pytest.mark.parametrize("field", ["query_heads", "vocab"])
def test_heads_and_tokens_are_covered_too(field: str) -> None:
    assert f"rank 0: {field} must start at 0" in refusal("tensor", 2, 0, **{field: Span(1, 3)})


def test_vocabulary_is_asked_only_of_stages_that_speak() -> None:
    devices = processors(3)
    placements = placed(SPEC, devices, "layer")
    assert placements[1].vocab.size == 0
    check_placements(SPEC, placements, devices)
    assert "stage 2: vocab" in refusal("layer", 3, 2, vocab=EMPTY)


def test_kv_heads_that_the_query_heads_do_not_use() -> None:
    assert refusal("tensor", 2, 0, kv_heads=Span(1, 2)) == (
        "rank 0: query heads 0-3 need KV heads 0-1"
    )


def test_kv_heads_without_query_heads() -> None:
    devices = processors(2)
    everything, nothing = placed(SPEC, devices, "tensor")
    everything = replace(everything, query_heads=Span(0, 6), kv_heads=Span(0, 2))
    nothing = replace(nothing, query_heads=Span(6, 6), kv_heads=Span(2, 2))
    check_placements(SPEC, (everything, nothing), devices)
    with pytest.raises(PlanError, match="rank 1 holds KV heads and no query heads"):
        check_placements(SPEC, (everything, replace(nothing, kv_heads=Span(1, 2))), devices)


def test_a_cut_through_a_group() -> None:
    devices = processors(2)
    first, second = placed(SPEC, devices, "tensor")
    first = replace(first, query_heads=Span(0, 4), kv_heads=Span(0, 2))
    second = replace(second, query_heads=Span(4, 6), kv_heads=Span(1, 2))
    with pytest.raises(PlanError, match="rank 0 cuts through a group of 3 query heads"):
        check_placements(SPEC, (first, second), devices)


def test_a_part_of_one_group_is_allowed() -> None:
    devices = processors(3)
    placements = placed(SPEC, devices, "tensor")
    assert [p.query_heads.size for p in placements] == [2, 1, 3]
    check_placements(SPEC, placements, devices)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (Span(2, 6), "stage 1 must hold layers from 3 on"),
        (Span(4, 6), "stage 1 must hold layers from 3 on"),
        (Span(3, 3), "at least one"),
        (Span(3, 5), "the stages hold layers up to 5, the model has 6"),
        (Span(3, 7), "the stages hold layers up to 7, the model has 6"),
    ],
)
def test_layers_that_do_not_follow_one_another(layers: Span, words: str) -> None:
    devices = processors(2)
    front, back = placed(SPEC, devices, "layer")
    front = replace(front, layers=Span(0, 3))
    with pytest.raises(PlanError, match=words):
        check_placements(SPEC, (front, replace(back, layers=layers)), devices)


def test_ranks_of_a_stage_hold_the_same_layers() -> None:
    assert refusal("tensor", 2, 1, layers=Span(0, 5)) == (
        "the ranks of stage 0 must hold the same layers"
    )


def test_an_unknown_device() -> None:
    assert refusal("tensor", 2, 1, device="0000:09:00.0") == (
        "rank 1 is placed on 0000:09:00.0, the device named is cpu"
    )


def test_ranks_and_stages_are_numbered_in_order() -> None:
    assert "numbered rank 0, 1, 2" in refusal("tensor", 2, 1, rank=3)
    assert "numbered 0, 1, 2" in refusal("layer", 2, 1, stage=2)
    assert "ordered by stage" in refusal("layer", 3, 1, stage=2)
    assert "numbered 0, 1, 2" in refusal("single", 1, 0, stage=-1)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_placement_for_each_device(count: int) -> None:
    placements = placed(SPEC, processors(3), "tensor")[:count]
    with pytest.raises(PlanError, match=f"{count} placements for 2 devices: give one each"):
        check_placements(SPEC, placements, processors(2))


def experts_case() -> tuple[ModelSpec, tuple[Placement, ...]]:
    shape = Shape(
        layers=4, hidden=32, heads=4, head_dim=8, kv_heads=2, vocab=64, context=64, feeds="E",
        experts=8, active_experts=2, expert_ffn=16, shared_ffn=64,
    )  # fmt: skip
    spec = spec_like(shape)
    return spec, staged(spec, [Span(0, 4)], [[1.0, 1.0]])


def said(
    spec: ModelSpec,
    placements: Sequence[Placement],
    devices: Sequence[Device],
    copies: Sequence[Sequence[str]] = (),
) -> str:
    with pytest.raises(PlanError) as caught:
        check_placements(spec, placements, devices, copies)
    return str(caught.value)


def test_every_expert_has_one_owner() -> None:
    spec, (first, second) = experts_case()
    devices = devices_of((first, second))
    gap = [first, replace(second, experts=Span(5, 8))]
    assert said(spec, gap, devices) == "rank 1: experts must start at 4, it starts at 5"
    short = [first, replace(second, experts=Span(4, 7))]
    assert said(spec, short, devices) == "stage 0: experts is covered up to 7 of 8"
    check_placements(
        spec, [replace(first, experts=EMPTY), replace(second, experts=Span(0, 8))], devices
    )


def test_a_model_without_experts_has_none_to_place() -> None:
    good = placed(SPEC, processors(1), "single")
    assert said(SPEC, [replace(good[0], experts=Span(0, 4))], processors(1)) == (
        "stage 0: experts is covered up to 4 of 0"
    )


def test_experts_alone_may_run_beside_cards_and_other_shares_may_not() -> None:
    spec, _ = experts_case()
    first, second = staged(spec, [Span(0, 4)], [[1.0, 1e-6]])
    beside = replace(second, device="cpu", experts=Span(4, 8))
    first = replace(first, experts=Span(0, 4))
    devices = [*devices_of((first,)), *processors(1)]
    check_placements(spec, [first, beside], devices)
    halves = experts_case()[1]
    mixed = [halves[0], replace(halves[1], device="cpu")]
    assert "stage 0 mixes cpu and cuda" in said(spec, mixed, devices)


def test_streamed_layers_are_layers_of_the_rank() -> None:
    devices = processors(2)
    first, second = placed(SPEC, devices, "layer")
    check_placements(SPEC, [replace(first, streamed=Span(1, 2)), second], devices)
    assert said(SPEC, [replace(first, streamed=Span(1, 5)), second], devices) == (
        f"rank 0 streams layers 1-5 and holds 0-{first.layers.stop}"
    )


def test_replicas_are_whole_and_share_no_card() -> None:
    spec, ranks = experts_case()
    devices = devices_of(ranks)
    check_placements(spec, ranks, devices, [("card2", "card3"), ("card4", "card5")])
    assert said(spec, ranks, devices, [("card2",)]) == (
        "replica 2 names 1 devices for 2 ranks: give one each"
    )
    assert said(spec, ranks, devices, [("card2", "card3"), ("card3", "card4")]) == (
        "replica 3 uses card3, which another replica has"
    )
    assert said(spec, ranks, devices, [("card2", "card1")]) == (
        "replica 2 uses card1, which another replica has"
    )
