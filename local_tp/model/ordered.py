"""Blocks whose columns are sorted by the group that they share a scale with.

Quantizers that take the columns of large activations first (act-order) leave the columns of a group
all over the row. Sorted, they lie in blocks, and the inputs are taken in that order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from local_tp.model.blocks import Blocks, Stacked
from local_tp.model.linear import ON_CPU, Allocate, Linear
from local_tp.model.processor import Processor


class Ordered(Blocks):
    """`order` (columns,) are the columns of the matrix as they follow one another in the blocks."""

    def __init__(
        self, name: str, rows: int, columns: int, processor: Processor, allocate: Allocate = ON_CPU
    ) -> None:
        super().__init__(name, rows, columns, processor, allocate)
        self.order = allocate((columns,), torch.int32)

    def multiply(self, x: Tensor, y: Tensor) -> None:
        super().multiply(x.index_select(1, self.order), y)

    def rows(self, index: Tensor) -> Tensor:
        found = super().rows(index)
        return torch.empty_like(found).index_copy_(1, self.order.long(), found)


def ordered_at(linear: Linear | None, row: int) -> Ordered | None:
    """The sorted blocks that row `row` of a matrix lies in, if they are sorted."""
    held = linear.part_at(row) if isinstance(linear, Stacked) else linear
    return held if isinstance(held, Ordered) else None
