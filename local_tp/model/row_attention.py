"""Attention of many query heads over one row a place, whose first elements are the value as well.

The reference in plain torch, for any device. Scores of a whole chunk over a long text would take
more than all else, so tokens are taken a few at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from local_tp.model.batch import Segment
from local_tp.plan.activations import SCORE_ELEMENTS


def row_attention(
    query: Tensor, cache: Tensor, segments: Sequence[Segment], value_size: int
) -> Tensor:
    """Causal attention of each segment's scaled queries over its own places.

    query (tokens, heads, row), cache (1, places, row) -> (tokens, heads, value_size), both in the
    type of the cache.
    """
    out = query.new_empty((*query.shape[:2], value_size))
    for segment in segments:
        rows = segment.places(cache)[0]  # (places, row)
        step = max(1, SCORE_ELEMENTS // (query.shape[1] * segment.length))
        for start in range(segment.start, segment.stop, step):
            stop = min(start + step, segment.stop)
            seen = rows[: segment.length - (segment.stop - stop)]
            out[start:stop] = _attend(query[start:stop], seen, value_size)
    return out


def _attend(query: Tensor, seen: Tensor, value_size: int) -> Tensor:
    """Consecutive tokens, of which the last sees all of `seen` (places, row), its own last."""
    tokens, heads, _ = query.shape
    scores = (query.flatten(0, 1) @ seen.T).view(tokens, heads, -1)
    if tokens > 1:
        later = torch.ones((tokens, tokens), dtype=torch.bool, device=query.device).triu_(1)
        scores[..., -tokens:].masked_fill_(later[:, None], float("-inf"))
    shares = scores.softmax(-1).flatten(0, 1)
    return (shares @ seen[:, :value_size]).view(tokens, heads, value_size)
