"""Layers with a window keep it in rings where that is less than pages for everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_specs import SMALL, small_spec

from local_tp.core import Goal, LayerKind, ModelSpec
from local_tp.plan.cache import PAGE, layer_places, ring_places

GOAL = Goal(streams=2, chunk=100)


def windowed(window: int) -> ModelSpec:
    """Every other layer slides."""
    kinds = (LayerKind("sliding"), LayerKind()) * 3
    return replace(small_spec(), dimensions=replace(SMALL, window=window), kinds=kinds)


def test_a_ring_holds_the_window_and_a_chunk_in_whole_pages() -> None:
    assert ring_places(windowed(28), GOAL, 8192) == 4 * PAGE
    assert ring_places(windowed(29), GOAL, 8192) == 5 * PAGE


@pytest.mark.parametrize(("tokens", "ring"), [(2 * 4 * PAGE, 0), (2 * 4 * PAGE + 1, 4 * PAGE)])
def test_rings_are_taken_only_where_they_are_smaller(tokens: int, ring: int) -> None:
    spec = windowed(28)
    assert ring_places(spec, GOAL, tokens) == ring
    assert layer_places(spec, GOAL, tokens, 0) == (2 * ring or tokens)
    assert layer_places(spec, GOAL, tokens, 1) == tokens


def test_a_model_without_a_window_has_no_rings() -> None:
    assert ring_places(small_spec(), GOAL, 1 << 20) == 0
