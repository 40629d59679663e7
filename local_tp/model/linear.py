"""Matrices as a rank holds them, each with its multiplication.

Three forms behind one protocol: `y = x W^T` for x (tokens, columns), and the rows of W as numbers.
Knows nothing of models or files; a form fills itself from blocks of rows, so that loading never
holds a whole tensor twice.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from local_tp.model.dequantize import GROUP, codes_of, dequantize
from local_tp.model.processor import BLOCK_ROWS, Processor

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
UNPACK_ROWS = 8192
UNPACK_FROM_TOKENS = 32  # from here unpacking and one large product beat the packed kernels


class Linear(Protocol):
    """A (rows, columns) matrix in some form."""

    def __call__(self, x: Tensor) -> Tensor:
        """(tokens, columns) float32 -> (tokens, rows) in the form's own floating type."""

    def rows(self, index: Tensor) -> Tensor:
        """Rows by index, (n,) -> (n, columns) float32: the embedding look-up."""

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        """Take stored bytes (n, row bytes) of format `name` as rows `at` to `at + n`.

        `column` is where this matrix begins within the stored row.
        """


class Dense:
    """Plain numbers in 16 or 32 bits, on any device."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
        self.weight = torch.empty((rows, columns), dtype=dtype, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x.to(self.weight.dtype), self.weight)

    def rows(self, index: Tensor) -> Tensor:
        return functional.embedding(index, self.weight).float()

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        values = dequantize(stored, name)[:, column : column + self.weight.shape[1]]
        self.weight[at : at + values.shape[0]].copy_(values)


class Int8:
    """8-bit codes with one bfloat16 scale a row, for the CPU.

    Re-quantized from what is stored: the row's largest magnitude becomes 127.
    """

    def __init__(self, rows: int, columns: int, processor: Processor) -> None:
        self.codes = torch.empty((rows, columns), dtype=torch.int8)
        self.scale = torch.empty(rows, dtype=torch.bfloat16)
        self.processor = processor

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] >= UNPACK_FROM_TOKENS:
            return self._unpacked(x.to(self.processor.product))
        return torch._weight_int8pack_mm(x.bfloat16(), self.codes, self.scale)

    def _unpacked(self, x: Tensor) -> Tensor:
        """A block of rows at a time: a head may have a hundred times the rows of a layer."""
        y = x.new_empty((x.shape[0], self.codes.shape[0]))
        for start in range(0, self.codes.shape[0], UNPACK_ROWS):
            stop = start + UNPACK_ROWS
            y[:, start:stop] = x @ self.codes[start:stop].to(x.dtype).T
        return y.mul_(self.scale)

    def rows(self, index: Tensor) -> Tensor:
        return self.codes[index].float() * self.scale[index].float()[:, None]

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        values = dequantize(stored, name)[:, column : column + self.codes.shape[1]]
        scale = (values.abs().amax(1) / 127.0).to(torch.bfloat16)
        inverse = torch.where(scale > 0, 1.0 / scale.float(), 0.0)
        stop = at + values.shape[0]
        self.scale[at:stop] = scale
        self.codes[at:stop] = (values * inverse[:, None]).round_().clamp_(-127, 127)


class Int4:
    """4-bit codes with a bfloat16 scale and zero a group of 32 columns, for the CPU.

    value = (code - 8) * scale + zero. Few tokens go through torch's packed kernel; many are
    multiplied with the unpacked matrix, where the processor's packed order is known.
    """

    def __init__(self, rows: int, columns: int, processor: Processor) -> None:
        self.shape = (rows, columns)
        self.processor = processor
        self.packed = torch.empty((rows, columns // 2), dtype=torch.uint8)
        self.scale_zero = torch.empty((columns // GROUP, rows, 2), dtype=torch.bfloat16)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] >= UNPACK_FROM_TOKENS and self.processor.order is not None:
            return x.to(self.processor.product) @ self.transposed()
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.bfloat16(), self.packed, GROUP, self.scale_zero
        )
        return product

    def rows(self, index: Tensor) -> Tensor:
        raise AssertionError("embedding and head are held in 8 or 16 bits, never in packed 4")

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        assert at % BLOCK_ROWS == 0
        assert stored.shape[0] % BLOCK_ROWS == 0
        codes, scale, zero = codes_of(stored, name)
        codes = codes[:, column : column + self.shape[1]]
        stop = at + codes.shape[0]
        self.packed[at:stop] = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            codes.to(torch.int32), 1
        )
        first, groups = column // GROUP, self.shape[1] // GROUP
        scale, zero = scale[:, first : first + groups], zero[:, first : first + groups]
        self.scale_zero[:, at:stop, 0] = scale.T
        self.scale_zero[:, at:stop, 1] = (zero + 8.0 * scale).T

    def transposed(self) -> Tensor:
        """The matrix as numbers, (columns, rows), in the processor's product type."""
        rows, columns = self.shape
        product = self.processor.product
        codes = self.processor.unpack(self.packed.view(rows // BLOCK_ROWS, columns, -1))
        codes = codes.to(product, memory_format=torch.contiguous_format)
        codes = codes.view(columns // GROUP, GROUP, rows)
        scale, zero = self.scale_zero.to(product).unbind(-1)
        return codes.mul_(scale[:, None]).add_((zero - 8.0 * scale)[:, None]).view(columns, rows)


def make_linear(
    held: str, rows: int, columns: int, device: torch.device, processor: Processor
) -> Linear:
    """An empty matrix in the form that the layout chose."""
    if held == "int8":
        return Int8(rows, columns, processor)
    if held == "int4":
        return Int4(rows, columns, processor)
    return Dense(rows, columns, DTYPES[held], device)
