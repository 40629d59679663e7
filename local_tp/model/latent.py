"""Multi-head latent attention of one rank: its query heads over compressed keys and values.

A token leaves one row for all heads, (compressed | rotated), which every rank that has heads here
keeps whole. Queries are taken into the compressed space, so that keys and values of heads are never
made (arXiv 2405.04434, 2.1.2). What it gives is a part of a sum over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from local_tp.model.batch import Batch
from local_tp.model.linear import Linear
from local_tp.model.operations import TorchOperations

EPS = 1e-6  # of the norms of what is compressed, whatever the model's other norms have


@dataclass(frozen=True, slots=True)
class LatentWeights:
    """The ways down, which all heads share, and those up, of this rank's heads.

    Where queries are not compressed, `q` takes the hidden row itself and there is no `q_down`.
    """

    q: Linear  # (heads * (plain + rotated), query rank or hidden)
    kv_down: Linear  # (rank + rotated, hidden)
    kv_norm: Tensor  # (rank,)
    k_up: Tensor  # (heads, plain, rank)
    v_up: Tensor  # (heads, value, rank)
    o: Linear
    q_down: Linear | None = None
    q_norm: Tensor | None = None  # (query rank,)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """(tokens, hidden) normed -> (tokens, hidden), this rank's part.

    `cache` is (1, places, rank + rotated). `scale` multiplies scores; `rope` is the place of the
    rotary embedding among those of the batch.
    """

    weights: LatentWeights
    cache: Tensor
    scale: float
    operations: TorchOperations
    rope: int = 0

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        weights, operations = self.weights, self.operations
        rank, rotation = weights.kv_norm.shape[0], batch.rotations[self.rope]
        row = weights.kv_down(x).float()
        row[:, :rank] = operations.norm(row[:, :rank], weights.kv_norm, EPS)
        operations.rope_(row[:, None, rank:], *rotation)
        operations.write_kv(self.cache, row[:, None], batch.full.slots)
        query = self._compressed(self._queries(x), batch)
        out = operations.row_attention(query, self.cache, batch.full.segments, rank)
        values = out.transpose(0, 1).to(weights.v_up.dtype) @ weights.v_up.transpose(1, 2)
        return weights.o(values.transpose(0, 1).flatten(1))

    def _queries(self, x: Tensor) -> Tensor:
        """(tokens, heads, plain + rotated)"""
        weights = self.weights
        if weights.q_down is not None:
            assert weights.q_norm is not None
            x = self.operations.norm(weights.q_down(x).float(), weights.q_norm, EPS)
        return weights.q(x).float().view(len(x), len(weights.k_up), -1)

    def _compressed(self, query: Tensor, batch: Batch) -> Tensor:
        """Scaled queries, laid out as rows of the cache, (tokens, heads, rank + rotated)."""
        k_up = self.weights.k_up
        plain, rotated = query.tensor_split([k_up.shape[1]], -1)
        self.operations.rope_(rotated, *batch.rotations[self.rope])
        found = self.cache.new_empty((*query.shape[:2], self.cache.shape[2]))
        taken = plain.mul_(self.scale).transpose(0, 1).to(k_up.dtype) @ k_up
        found[..., : k_up.shape[2]] = taken.transpose(0, 1)
        found[..., k_up.shape[2] :] = rotated.mul_(self.scale)
        return found
