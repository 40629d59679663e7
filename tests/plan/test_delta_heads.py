"""Heads of gated delta nets: each value head on one rank, with its key head beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from small_shapes import cases, staged, whole

from local_tp.checkpoint.known_models import known_model
from local_tp.core import EMPTY, ModelSpec, Placement, Span
from local_tp.plan.delta_heads import delta_heads, kernel_of, key_of_values, state_elements

SPEC = known_model("Qwen3.6 27B", "BF16")  # 24 query and 4 KV heads; 48 value and 16 key heads


def halves(spec: ModelSpec, *shares: float) -> tuple[Placement, ...]:
    return staged(spec, [Span(0, spec.dimensions.layers)], [shares])


@settings(deadline=None, max_examples=200)
@given(cases())
def test_value_heads_are_dealt_out_and_have_their_key_heads(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    spec, placements = case
    recurrent = [i for i in range(spec.dimensions.layers) if spec.kind(i).mixer == "recurrent"]
    assume(recurrent)
    for index in recurrent:
        ranks = [p for p in placements if index in p.layers]
        all_of_it = delta_heads(spec, whole(spec), index)
        count, keys = all_of_it.values.size, all_of_it.keys.size
        found: list[int] = []
        for rank in ranks:
            heads = delta_heads(spec, rank, index)
            found += range(*heads.values)
            used = [heads.keys.start + key for key in key_of_values(spec, rank, index)]
            assert all(key in heads.keys for key in used)
            if spec.traits.values_tiled:
                assert used == [value % keys for value in range(*heads.values)]
            else:
                assert used == [value * keys // count for value in range(*heads.values)]
        assert found == list(range(count))
        held = [key for rank in ranks for key in range(*delta_heads(spec, rank, index).keys)]
        assert set(held) == set(range(keys))
        for rank in ranks:
            heads = delta_heads(spec, rank, index)
            assert sum(held.count(key) > 1 for key in range(*heads.keys)) <= heads.copied


def test_heads_go_with_whole_groups() -> None:
    first, second = (delta_heads(SPEC, rank, 0) for rank in halves(SPEC, 3.0, 1.0))
    assert (first.values, first.keys, first.copied) == (Span(0, 36), Span(0, 12), 0)
    assert (second.values, second.keys, second.copied) == (Span(36, 48), Span(12, 16), 0)
    assert first.value_rows == Span(0, 36 * 128)
    assert second.key_rows == Span(12 * 128, 16 * 128)
    assert second.channels == (2 * 4 + 12) * 128


def test_a_part_of_a_group_has_the_keys_of_all_of_it() -> None:
    ranks = halves(SPEC, *[1.0] * 8)
    heads = [delta_heads(SPEC, rank, 0) for rank in ranks]
    assert [h.values for h in heads[:3]] == [Span(0, 6), Span(6, 12), Span(12, 18)]
    assert [h.keys for h in heads[:3]] == [Span(0, 4), Span(0, 4), Span(4, 8)]
    assert {h.copied for h in heads} == {4}
    assert key_of_values(SPEC, ranks[1], 0) == (2, 2, 2, 3, 3, 3)


def test_tiled_value_heads_need_every_key_head() -> None:
    tiled = replace(SPEC, traits=replace(SPEC.traits, values_tiled=True))
    first, second = halves(tiled, 1.0, 1.0)
    heads = delta_heads(tiled, second, 0)
    assert (heads.values, heads.keys, heads.copied) == (Span(24, 48), Span(0, 16), 16)
    assert key_of_values(tiled, second, 0) == (*range(8, 16), *range(16))
    assert key_of_values(tiled, first, 0) == (*range(16), *range(8))
    assert delta_heads(tiled, whole(tiled), 0).copied == 0


def test_a_rank_without_query_heads_keeps_nothing() -> None:
    idle = replace(whole(SPEC), query_heads=EMPTY, kv_heads=EMPTY)
    assert delta_heads(SPEC, idle, 0) == (128, EMPTY, EMPTY, 0)
    assert key_of_values(SPEC, idle, 0) == ()
    assert state_elements(SPEC, idle, 0) == 0


@pytest.mark.parametrize("name", ["Qwen3.6 27B", "Qwen3.5 27B", "Qwen3.6 35B-A3B"])
def test_the_state_of_one_rank_is_that_of_the_model(name: str) -> None:
    spec = known_model(name, "BF16")
    assert kernel_of(spec, 0) == 4
    assert state_elements(spec, whole(spec), 0) == spec.dimensions.state
