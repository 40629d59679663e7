"""Attention of one rank: its query heads over the keys and values it keeps.

Knows nothing of residual streams or of other layers. What it gives is a part of a sum over ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.model.batch import Batch
from local_tp.model.linear import Linear
from local_tp.model.operations import Scoring, TorchOperations


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """What a layer may have: the rest is as in the first attention of all."""

    qkv: Linear
    o: Linear
    bias: Tensor | None = None  # of q, k and v
    norms: Callable[[Tensor, Tensor], None] | None = None  # of queries and keys, in place


@dataclass(frozen=True, slots=True)
class Attention:
    """(tokens, hidden) normed -> (tokens, hidden), this rank's part.

    `cache` is (2 kv_heads, places, head_dim), keys first. `rope` is the place of the rotary
    embedding among those of the batch, below 0 for none; `sliding` layers see a window.
    `query_gate`: rows of the query projection are, head by head, a query and a gate.
    """

    weights: AttentionWeights
    cache: Tensor
    heads: int
    scoring: Scoring
    operations: TorchOperations
    rope: int = 0
    sliding: bool = False
    query_gate: bool = False

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        weights, operations = self.weights, self.operations
        kv_heads, head_dim = self.cache.shape[0] // 2, self.cache.shape[2]
        heads = self.heads
        qkv = weights.qkv(x).float()
        if weights.bias is not None:
            qkv = qkv + weights.bias
        gate = None
        if self.query_gate:
            both, kv = qkv.tensor_split([2 * heads * head_dim], -1)
            query, gate = both.view(len(x), heads, 2 * head_dim).chunk(2, -1)
            qkv = torch.cat((query.flatten(1), kv), -1)
        qkv = qkv.view(len(x), heads + 2 * kv_heads, head_dim)
        if weights.norms is not None:
            weights.norms(qkv[:, :heads], qkv[:, heads : heads + kv_heads])
        if self.rope >= 0:
            operations.rope_(qkv[:, : heads + kv_heads], *batch.rotations[self.rope])
        if batch.growth is not None:
            qkv[:, :heads] *= batch.growth
        view = batch.sliding if self.sliding else batch.full
        operations.write_kv(self.cache, qkv[:, heads:], view.slots)
        out = operations.attention(qkv[:, :heads], self.cache, view.segments, self.scoring)
        if gate is not None:
            out = out.float() * torch.sigmoid(gate.flatten(1))
        return weights.o(out)
