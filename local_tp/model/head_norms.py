"""Norms of queries and keys, before they are rotated: of each head alone, or of all together.

Both change (tokens, heads, head_dim) in place. Knows nothing of what comes before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.core import Span
from local_tp.model.batch import Batch
from local_tp.model.collectives import Group
from local_tp.model.operations import TorchOperations


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Each head alone, with gains (head_dim,) that all heads share."""

    query: Tensor
    key: Tensor
    operations: TorchOperations
    eps: float

    def __call__(self, queries: Tensor, keys: Tensor) -> None:
        queries.copy_(self.operations.norm(queries, self.query, self.eps))
        keys.copy_(self.operations.norm(keys, self.key, self.eps))


@dataclass(frozen=True, slots=True)
class WideNorms:
    """All heads of the model together, with gains (this rank's heads x head_dim,).

    The means are over the heads of all ranks: `widths` are the model's elements of queries and of
    keys, `counted` the KV heads held here that no earlier rank counts.
    """

    query: Tensor
    key: Tensor
    eps: float
    widths: tuple[int, int]
    counted: Span
    group: Group

    def __call__(self, queries: Tensor, keys: Tensor) -> None:
        mine = (queries, keys[:, self.counted.start : self.counted.stop])
        squares = torch.stack([part.square().sum((1, 2)) for part in mine], 1)  # (tokens, 2)
        means = self.group.all_reduce(squares) / squares.new_tensor(self.widths)
        scales = torch.rsqrt(means + self.eps)[:, :, None, None]
        queries.mul_(scales[:, 0]).mul_(self.query.view(queries.shape[1:]))
        keys.mul_(scales[:, 1]).mul_(self.key.view(keys.shape[1:]))


@dataclass(frozen=True, slots=True)
class Bystander:
    """A rank without query heads, whom the others' `WideNorms` wait for."""

    group: Group

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        self.group.all_reduce(x.new_zeros((len(x), 2)))
        return torch.zeros_like(x)
