"""Predicted bytes: known values, and what a person expects to grow with what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from small_specs import SMALL, cards, processors, small_spec

from local_tp.checkpoint.read import read
from local_tp.core import Goal
from local_tp.plan.layout import weight_bytes
from local_tp.plan.memory import SCORED_ROWS, kv_bytes, with_memory, workspace_bytes
from local_tp.plan.planner import place

SPEC = small_spec()
(WHOLE,) = place(SPEC, processors(1), "single", Goal())


def test_keys_and_values_of_the_starter(starter: Path) -> None:
    """A token's keys and values: 30 layers, 3 heads of 64, twice, in 4 bytes."""
    spec = read(starter).spec
    (whole,) = place(spec, processors(1), "single", Goal())
    assert kv_bytes(spec, whole, "float32", 1) == 30 * 2 * 3 * 64 * 4 == 46_080
    assert kv_bytes(spec, whole, "bfloat16", 4096) == 4096 * 46_080 // 2
    two = place(spec, processors(2), "tensor", Goal())
    assert [kv_bytes(spec, p, "float32", 1) for p in two] == [30_720, 15_360]
    four = place(spec, processors(4), "tensor", Goal())
    assert [kv_bytes(spec, p, "float32", 1) for p in four] == [
        15_360
    ] * 4  # the first KV head twice


def test_a_rank_without_heads_keeps_no_keys() -> None:
    idle = place(SPEC, cards(1e12, 1e6), "tensor", Goal())[1]
    assert idle.kv_heads.size == 0
    assert kv_bytes(SPEC, idle, "float32", 4096) == 0


def test_with_memory_fills_in_all_three() -> None:
    goal = Goal(kv_format="float16", chunk=64, streams=2)
    filled = with_memory(SPEC, WHOLE, goal, 1000, "cpu")
    assert filled.weights == weight_bytes(SPEC, WHOLE, "auto", "cpu")
    assert filled.kv == 1000 * SMALL.layers * 2 * SMALL.kv_heads * SMALL.head_dim * 2
    assert filled.workspace == workspace_bytes(SPEC, WHOLE, 64, 2)
    assert replace(filled, weights=0, kv=0, workspace=0) == WHOLE


def test_the_workspace_holds_what_one_step_has_alive_at_once() -> None:
    """Residual, normed and projected chunk, gate-up twice over, one unpacked matrix, logits."""
    chunk, streams, d = 64, 2, SMALL
    alive = (
        chunk * (3 * d.hidden + 3 * d.ffn) * 4 + 2 * d.ffn * d.hidden * 2 + streams * d.vocab * 4
    )
    assert workspace_bytes(SPEC, WHOLE, chunk, streams) >= alive


def test_the_workspace_of_a_share_keeps_what_every_rank_keeps_whole() -> None:
    first, second = place(SPEC, processors(2), "layer", Goal())
    residual = 512 * SMALL.hidden * 4
    logits = SCORED_ROWS * SMALL.vocab * 4
    assert workspace_bytes(SPEC, first, 512, 4) > residual
    both = workspace_bytes(SPEC, second, 512, 4)
    assert both - workspace_bytes(SPEC, first, 512, 4) == 2 * logits
    halves = place(SPEC, processors(2), "tensor", Goal())
    assert all(
        workspace_bytes(SPEC, p, 512, 4) > workspace_bytes(SPEC, WHOLE, 512, 4) / 2 for p in halves
    )
