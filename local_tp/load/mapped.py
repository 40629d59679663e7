"""Rows of a stored tensor, read from its mapped file in the order the model wants them.

Knows nothing of what the numbers mean. Only the pages of the wanted rows are touched, and they are
given back once they are copied.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy
import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Span, TensorInfo


class Mapped:
    """One stored tensor, mapped read-only for as long as it is needed."""

    def __init__(self, info: TensorInfo) -> None:
        self._info, self.format = info, info.format
        self._format = FORMATS[info.format]
        self._row_bytes = self._format.nbytes(1, info.shape[1] if len(info.shape) == 2 else 1)
        self._skip = info.offset % mmap.ALLOCATIONGRANULARITY

    def __enter__(self) -> Mapped:
        info, skip = self._info, self._skip
        rows = self._at(info.shape[0] - 1) + 1
        with Path(info.file).open("rb") as file:
            self._map = mmap.mmap(
                file.fileno(),
                rows * self._row_bytes + skip,
                access=mmap.ACCESS_READ,
                offset=info.offset - skip,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def read(self, rows: Span, columns: Span) -> Tensor:
        """(rows, bytes of the columns) uint8, a copy; paired rows come in halves of their head."""
        low, high = self._at(rows.start), self._at(rows.stop - 1) + 1
        first, count = self._skip + low * self._row_bytes, (high - low) * self._row_bytes
        start = self._format.nbytes(1, columns.start)
        stop = self._format.nbytes(1, columns.stop)
        mapped = numpy.frombuffer(self._map, numpy.uint8, count, first)
        block = mapped.reshape(high - low, self._row_bytes)[:, start:stop]
        if self._info.run:
            wanted = numpy.arange(rows.start, rows.stop)
            run, step = self._info.run, self._info.step
            block = block[wanted // run * step + wanted % run - low]
        else:
            block = block.copy()
        del mapped
        self._release(first, first + count)
        stored = torch.from_numpy(block)
        return halves(stored, self._info) if self._info.paired else stored

    def _at(self, row: int) -> int:
        """Where a row lies, counted in rows from the tensor's offset."""
        info = self._info
        return row // info.run * info.step + row % info.run if info.run else row

    def _release(self, start: int, stop: int) -> None:
        """Let go of the pages that bytes [start, stop) touch: they stay in the page cache."""
        if hasattr(mmap, "MADV_DONTNEED"):
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, stop - first)


def halves(stored: Tensor, info: TensorInfo) -> Tensor:
    """Rows of rotary pairs (0, 1), (2, 3), … reordered so that a pair lies half of them apart.

    Works on whole heads of `info.head` stored rows, in any format, since a row stays in one piece.
    """
    first, last = info.unpaired, info.unpaired + info.paired
    heads = stored.view(-1, info.head, stored.shape[1])
    pairs = heads[:, first:last].view(len(heads), info.paired // 2, 2, stored.shape[1])
    turned = pairs.transpose(1, 2).reshape(len(heads), info.paired, stored.shape[1])
    return torch.cat((heads[:, :first], turned, heads[:, last:]), 1).view(stored.shape)
