"""What this processor's kernels do, learnt by trying them at load.

Two facts that torch does not tell: how its packed 4-bit layout orders rows (it differs between
instruction sets), and whether large products are faster in 32 or in 16 bits (there are processors
for each answer).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.core import Product

BLOCK_ROWS = 64  # rows of one block of the packed 4-bit form
_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class Processor:
    """`order`: see `packed_order`. `product`: the type in which large products are fastest."""

    order: Tensor | None
    product: torch.dtype

    def unpack(self, packed: Tensor) -> Tensor:
        """(blocks, columns, bytes) packed -> (columns, blocks, rows of a block) codes, uint8."""
        assert self.order is not None
        codes = torch.cat((packed & 15, packed >> 4), dim=-1).transpose(0, 1)
        if torch.equal(self.order, torch.arange(BLOCK_ROWS)):
            return codes
        return codes[..., self.order]


def learn_processor(product: Product | None = None) -> Processor:
    """Try this processor's kernels; takes a few hundredths of a second.

    `product` is what an earlier measurement found fastest, on which a plan's memory stands.
    """
    return Processor(packed_order(), getattr(torch, product) if product else _faster_product())


def packed_order() -> Tensor | None:
    """Where each row of a packed block lies, or `None` if the layout is not of this kind.

    Expected: within a block of 64 rows, column k takes 32 consecutive bytes whose low and then
    high halves are the rows in some order, the same for every column. `nibbles[..., order]` is in
    row order. Learnt by packing blocks whose codes spell their own row and column.
    """
    rows = torch.arange(BLOCK_ROWS, dtype=torch.int32)[:, None].expand(-1, _COLUMNS)
    columns = torch.arange(_COLUMNS, dtype=torch.int32)[None, :].expand(BLOCK_ROWS, -1)
    row_at = _nibbles(rows % 16) + 16 * _nibbles(rows // 16)  # (columns, nibbles)
    column_at = _nibbles(columns % 16) + 16 * _nibbles(columns // 16)
    same_column = torch.equal(column_at, columns.T)
    same_order = torch.equal(row_at, row_at[:1].expand_as(row_at))
    every_row = torch.equal(row_at[0].sort().values, rows[:, 0])
    return torch.argsort(row_at[0]) if same_column and same_order and every_row else None


def _nibbles(codes: Tensor) -> Tensor:
    """Pack (64, 32) codes and read the bytes back as (32, 64) nibbles, low halves first."""
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.contiguous(), 1)
    packed = packed.view(_COLUMNS, BLOCK_ROWS // 2)
    return torch.cat((packed & 15, packed >> 4), dim=-1).to(torch.int32)


def _faster_product() -> torch.dtype:
    """The type that multiplies (256, 512) by (512, 1024) fastest, unpacking not counted."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, w = torch.ones((256, 512), dtype=dtype), torch.ones((512, 1024), dtype=dtype)
        runs = []
        for _ in range(5):
            start = time.perf_counter()
            x @ w
            runs.append(time.perf_counter() - start)
        seconds[dtype] = min(runs)
    return min(seconds, key=lambda dtype: seconds[dtype])
