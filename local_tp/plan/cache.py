"""The places that a layer keeps for keys and values, as planner and ranks count them."""

from __future__ import annotations

from local_tp.core import Goal, ModelSpec

PAGE = 32  # tokens that the cache hands out together


def ring_places(spec: ModelSpec, goal: Goal, tokens: int) -> int:
    """Places of each stream in a layer with a window: that and the chunk being read.

    0 where all streams' rings together would not be smaller than `tokens` places on pages.
    """
    window = spec.dimensions.window
    ring = -(-(window + goal.chunk) // PAGE) * PAGE
    return ring if window and ring * max(1, goal.streams) < tokens else 0


def layer_places(spec: ModelSpec, goal: Goal, tokens: int, index: int) -> int:
    """Places that layer `index` keeps for `tokens` places of all streams together."""
    if spec.kind(index).mixer == "sliding" and (ring := ring_places(spec, goal, tokens)):
        return ring * max(1, goal.streams)
    return tokens
