"""A placement that is not a whole model is refused, and the refusal names the rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from small_specs import processors, small_spec

from local_tp.core import EMPTY, Goal, Span, Split
from local_tp.errors import PlanError
from local_tp.plan.check import check_placements
from local_tp.plan.planner import place

SPEC = small_spec()


def refusal(split: Split, ranks: int, changed: int, **changes: Any) -> str:
    """What is said of a good placement once one rank of it is changed."""
    devices = processors(ranks)
    good = place(SPEC, devices, split, Goal())
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
    placements = place(SPEC, devices, "layer", Goal())
    assert placements[1].vocab.size == 0
    check_placements(SPEC, placements, devices)
    assert "stage 2: vocab" in refusal("layer", 3, 2, vocab=EMPTY)


def test_kv_heads_that_the_query_heads_do_not_use() -> None:
    assert refusal("tensor", 2, 0, kv_heads=Span(1, 2)) == (
        "rank 0: query heads 0-3 need KV heads 0-1"
    )


def test_kv_heads_without_query_heads() -> None:
    devices = processors(2)
    everything, nothing = place(SPEC, devices, "tensor", Goal())
    everything = replace(everything, query_heads=Span(0, 6), kv_heads=Span(0, 2))
    nothing = replace(nothing, query_heads=Span(6, 6), kv_heads=Span(2, 2))
    check_placements(SPEC, (everything, nothing), devices)
    with pytest.raises(PlanError, match="rank 1 holds KV heads and no query heads"):
        check_placements(SPEC, (everything, replace(nothing, kv_heads=Span(1, 2))), devices)


def test_a_cut_through_a_group() -> None:
    devices = processors(2)
    first, second = place(SPEC, devices, "tensor", Goal())
    first = replace(first, query_heads=Span(0, 4), kv_heads=Span(0, 2))
    second = replace(second, query_heads=Span(4, 6), kv_heads=Span(1, 2))
    with pytest.raises(PlanError, match="rank 0 cuts through a group of 3 query heads"):
        check_placements(SPEC, (first, second), devices)


def test_a_part_of_one_group_is_allowed() -> None:
    devices = processors(3)
    placements = place(SPEC, devices, "tensor", Goal())
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
    front, back = place(SPEC, devices, "layer", Goal())
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
    placements = place(SPEC, processors(3), "tensor", Goal())[:count]
    with pytest.raises(PlanError, match=f"{count} placements for 2 devices: give one each"):
        check_placements(SPEC, placements, processors(2))
