"""A stored tensor opened for reading, however the file keeps it.

Every form gives rows in the order that the model wants; only what is asked for is read. Knows
nothing of ranks and parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import numpy
import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Span, TensorInfo
from local_tp.load.mapped import Mapped
from local_tp.load.repositories import Repository
from local_tp.model.dequantize import dequantize


class Stored(Protocol):
    """Rows of one tensor, in the form `format`."""

    format: str

    def read(self, rows: Span, columns: Span) -> Tensor:
        """(rows, bytes of the columns) uint8, a copy; `columns` are whole blocks."""


def opened(info: TensorInfo, sort: bool = False) -> AbstractContextManager[Stored]:
    """The tensor, mapped read-only for as long as it is needed. `OSError` passes through.

    With `sort`, columns without an order come group after group.
    """
    if info.stack:
        return _stack(info)
    if info.packing is not None:
        return Repository(info, sort)
    return Mapped(info) if info.columns_of is None else _transposed(info, info.columns_of)


class Stack:
    """Tensors of equal height one above the other, of which those are opened that are asked for.

    All come as numbers where the columns of any have no order.
    """

    def __init__(self, info: TensorInfo) -> None:
        self._members, self._height = info.stack, info.shape[0] // len(info.stack)
        self.format = "F32" if info.ordered else info.format

    def read(self, rows: Span, columns: Span) -> Tensor:
        found = []
        for index in range(rows.start // self._height, -(-rows.stop // self._height)):
            above = index * self._height
            wanted = Span(max(rows.start - above, 0), min(rows.stop - above, self._height))
            with opened(self._members[index]) as member:
                stored = member.read(wanted, columns)
                if member.format != self.format:
                    stored = dequantize(stored, member.format).view(torch.uint8)
                found.append(stored)
        return found[0] if len(found) == 1 else torch.cat(found)


class Transposed:
    """Rows that are stored as columns of `matrices`; of blocks they are made numbers."""

    def __init__(self, info: TensorInfo, matrices: TensorInfo, mapped: Stored) -> None:
        self._height, self._width, self._mapped = info.shape[1], matrices.shape[1], mapped
        self._stored = FORMATS[info.format]
        self.format = "F32" if self._stored.quantized else info.format
        self._size = FORMATS[self.format].block_bytes
        self._first = (info.offset - matrices.offset) // self._size
        self._run, self._step = info.run or 1, info.step or 1

    def read(self, rows: Span, columns: Span) -> Tensor:
        columns = Span(columns.start, min(columns.stop, self._height))
        wanted = numpy.arange(*rows)
        at = self._first + wanted // self._run * self._step + wanted % self._run
        found = []
        for matrix in range(at[0] // self._width, at[-1] // self._width + 1):
            mine = at[at // self._width == matrix] - matrix * self._width
            across = Span(int(mine[0]), int(mine[-1]) + 1)
            top = int(matrix) * self._height
            numbers = self._numbers(Span(top + columns.start, top + columns.stop), across)
            found.append(numbers[:, mine - across.start].transpose(0, 1).flatten(1))
        return torch.cat(found)

    def _numbers(self, rows: Span, columns: Span) -> Tensor:
        """(rows, columns, bytes of a number) of the stored matrices."""
        if not self._stored.quantized:
            return self._mapped.read(rows, columns).view(rows.size, columns.size, self._size)
        grain = self._stored.block_elements
        first = columns.start // grain * grain
        blocks = self._mapped.read(rows, Span(first, -(-columns.stop // grain) * grain))
        values = dequantize(blocks, self._stored.name)[:, columns.start - first :]
        bits = values[:, : columns.size].contiguous().view(torch.uint8)
        return bits.view(rows.size, columns.size, self._size)


@contextmanager
def _stack(info: TensorInfo) -> Iterator[Stored]:
    yield Stack(info)


@contextmanager
def _transposed(info: TensorInfo, matrices: TensorInfo) -> Iterator[Stored]:
    with Mapped(matrices) as mapped:
        yield Transposed(info, matrices, mapped)
