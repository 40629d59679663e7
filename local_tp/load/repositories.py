"""Rows of a tensor of a quantized repository, as the canonical blocks that a rank holds.

Takes the place of `Mapped` where a tensor has parts. A block of rows is converted at a time, and of
each part only the window that belongs to it is read. Columns whose groups have no order come
sorted by group, in blocks, or as numbers in the order of the file.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

import torch
from torch import Tensor

from local_tp.checkpoint.canonical import CANONICAL
from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Span, TensorInfo
from local_tp.load.layouts import LAYOUTS, Coded, Parts
from local_tp.load.mapped import Mapped, halves
from local_tp.model.dequantize.canonical import blocks_of, nibbles


class Repository:
    """One tensor, its parts mapped read-only for as long as it is needed."""

    def __init__(self, info: TensorInfo, sort: bool = False) -> None:
        assert info.packing is not None
        self._info, self._packing = info, info.packing
        self._order = group_order(info) if sort else None
        self.format = "F32" if info.packing.ordered and not sort else info.format
        self._stack = ExitStack()

    def __enter__(self) -> Repository:
        mapped = {
            name: self._stack.enter_context(Mapped(part)) for name, part in self._info.parts.items()
        }
        self._parts = Parts(self._info, mapped)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def read(self, rows: Span, columns: Span) -> Tensor:
        """(rows, bytes of the columns) uint8 in `format`; `columns` are whole blocks."""
        stored = self._as_stored(rows, columns)
        return halves(stored, self._info) if self._info.paired else stored

    def _as_stored(self, rows: Span, columns: Span) -> Tensor:
        within = Span(columns.start, min(columns.stop, self._info.shape[1]))
        low, high = self._at(rows.start), self._at(rows.stop - 1) + 1
        coded = LAYOUTS[self._packing.layout](self._parts, Span(low, high), within)
        if self._info.run:
            coded = _of_rows(coded, torch.tensor([self._at(row) - low for row in range(*rows)]))
        if self._order is not None:
            coded = Coded(coded.codes[:, self._order], coded.scale, coded.zero)
        elif self._packing.ordered:
            return self._numbers(coded, within)
        return self._blocks(coded, columns)

    def _at(self, row: int) -> int:
        """Where a row lies in the parts."""
        info, first = self._info, self._packing.first
        return first + (row // info.run * info.step + row % info.run if info.run else row)

    def _numbers(self, coded: Coded, columns: Span) -> Tensor:
        """Columns in the order of the file, each with the scale and the zero of its group."""
        assert coded.zero is not None
        group = self._parts.vector("g_idx")[slice(*columns)].long()
        values = (coded.codes.float() - coded.zero[:, group]).mul_(coded.scale[:, group])
        return values.contiguous().view(torch.uint8)

    def _blocks(self, coded: Coded, columns: Span) -> Tensor:
        """Blocks of the tensor's format; what lies behind a row's last column is zero."""
        block = FORMATS[self._info.format].block_elements
        starts = torch.arange(columns.start, columns.stop, block)
        shared = self._packing.block[1]
        at = starts // shared - columns.start // shared
        scale = coded.scale[:, at]
        zero = None if coded.zero is None else coded.zero[:, at]
        missing = columns.size - coded.codes.shape[1]
        codes = torch.nn.functional.pad(coded.codes, (0, missing)).contiguous()
        if self._info.format == "MXFP4":
            grouped = nibbles(codes.view(len(codes), -1, block))
            return torch.cat((scale[..., None], grouped), dim=-1).flatten(1)
        return blocks_of(CANONICAL[self._info.format], codes, scale, zero)


def group_order(info: TensorInfo) -> Tensor:
    """(columns,) int64: the columns of the file, group after group."""
    if info.packing is None or not info.packing.ordered:
        return torch.arange(info.shape[1])
    with Mapped(info.parts["g_idx"]) as mapped:
        index = mapped.read(Span(0, info.shape[1]), Span(0, 1)).view(torch.int32)[:, 0]
    return torch.argsort(index, stable=True)


def _of_rows(coded: Coded, index: Tensor) -> Coded:
    zero = None if coded.zero is None else coded.zero[index]
    return Coded(coded.codes[index], coded.scale[index], zero)
