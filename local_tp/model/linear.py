"""Matrices as a rank holds them, each with its multiplication.

Three forms behind one protocol: `y = x W^T` for x (tokens, columns), and the rows of W as numbers.
Knows nothing of models or files; a form fills itself from blocks of rows, so that loading never
holds a whole tensor twice. Where its tensors lie, an `Allocate` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from local_tp.model.dequantize import GROUP, codes_of, dequantize
from local_tp.model.processor import BLOCK_ROWS, Processor
from local_tp.plan.activations import UNPACK_ELEMENTS, UNPACK_FROM_TOKENS

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def on(device: torch.device) -> Allocate:
    """Every tensor by itself, on `device`."""
    return lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device)


ON_CPU = on(torch.device("cpu"))


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

    def __init__(
        self, rows: int, columns: int, dtype: torch.dtype, allocate: Allocate = ON_CPU
    ) -> None:
        self.weight = allocate((rows, columns), dtype)

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

    def __init__(
        self, rows: int, columns: int, processor: Processor, allocate: Allocate = ON_CPU
    ) -> None:
        self.codes = allocate((rows, columns), torch.int8)
        self.scale = allocate((rows,), torch.bfloat16)
        self.processor = processor

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] >= UNPACK_FROM_TOKENS:
            return self._unpacked(x.to(self.processor.product))
        return torch._weight_int8pack_mm(x.bfloat16(), self.codes, self.scale)

    def _unpacked(self, x: Tensor) -> Tensor:
        y = x.new_empty((x.shape[0], self.codes.shape[0]))
        for start, stop in _blocks(*self.codes.shape):
            torch.mm(x, self.codes[start:stop].to(x.dtype).T, out=y[:, start:stop])
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

    def __init__(
        self, rows: int, columns: int, processor: Processor, allocate: Allocate = ON_CPU
    ) -> None:
        self.shape = (rows, columns)
        self.processor = processor
        self.packed = allocate((rows, columns // 2), torch.uint8)
        self.scale_zero = allocate((columns // GROUP, rows, 2), torch.bfloat16)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] >= UNPACK_FROM_TOKENS and self.processor.order is not None:
            return self._unpacked(x.to(self.processor.product))
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.bfloat16(), self.packed, GROUP, self.scale_zero
        )
        return product

    def _unpacked(self, x: Tensor) -> Tensor:
        y = x.new_empty((x.shape[0], self.shape[0]))
        for start, stop in _blocks(*self.shape):
            torch.mm(x, self.transposed(start, stop), out=y[:, start:stop])
        return y

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

    def transposed(self, start: int, stop: int) -> Tensor:
        """Rows [start, stop) as numbers, (columns, rows), in the processor's product type."""
        columns = self.shape[1]
        product = self.processor.product
        packed = self.packed[start:stop].view((stop - start) // BLOCK_ROWS, columns, -1)
        codes = self.processor.unpack(packed)
        codes = codes.to(product, memory_format=torch.contiguous_format)
        codes = codes.view(columns // GROUP, GROUP, stop - start)
        scale, zero = self.scale_zero[:, start:stop].to(product).unbind(-1)
        scale = scale.contiguous()  # read 32 times over: a stride of two would cost more than that
        return codes.mul_(scale[:, None]).add_((zero - 8.0 * scale)[:, None]).view(columns, -1)


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Rows of a matrix that are unpacked at once, from and to.

    All of them would take up to ten times what the packed matrix does.
    """
    step = max(1, UNPACK_ELEMENTS // (columns * BLOCK_ROWS)) * BLOCK_ROWS
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def make_linear(
    held: str, rows: int, columns: int, processor: Processor, allocate: Allocate
) -> Linear:
    """An empty matrix in the form that the layout chose."""
    if held == "int8":
        return Int8(rows, columns, processor, allocate)
    if held == "int4":
        return Int4(rows, columns, processor, allocate)
    return Dense(rows, columns, DTYPES[held], allocate)
