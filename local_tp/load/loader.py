"""From a checkpoint's files to the parameters of one rank.

Files are mapped and only the rank's own rows are touched, a block at a time in file order; each
block is given back to the system once it is converted, so the peak is the shard as held plus one
block. Loading yields its progress in bytes and can be stopped between blocks.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import EMPTY, ModelSpec, Shard, Span, TensorInfo
from local_tp.load.streamed import StreamedLayers
from local_tp.model.dequantize import dequantize
from local_tp.model.linear import Linear, make_linear, on
from local_tp.model.processor import BLOCK_ROWS, Processor
from local_tp.model.streaming import LayerStream
from local_tp.plan.layout import Parameter

BLOCK_ELEMENTS = 1 << 20  # 4 MiB of float32, a few of which exist while a block is converted


@dataclass(frozen=True, slots=True)
class Progress:
    """Stored bytes read so far, and in all."""

    done: int
    total: int


@dataclass
class Loading:
    """Parameters as they fill. Iterate to load; all are complete at the end.

    Layers of `streamed`, of a rank that begins with layer `first`, stay in the PC's memory: their
    matrices lie over buffers that `stream` fills, `nbytes` counts what is on the device.
    """

    spec: ModelSpec
    parameters: Sequence[Parameter]
    device: torch.device
    processor: Processor
    streamed: Span = EMPTY
    first: int = 0
    stream: LayerStream = field(init=False)
    nbytes: int = 0
    linears: dict[str, Linear] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Progress]:
        streamed = StreamedLayers(
            self.parameters, self.streamed, self.first, self.device, self.processor
        )
        self.linears |= streamed.linears
        for parameter in self.parameters:
            if parameter.name not in streamed.linears:
                self._make(parameter)
        shards = [shard for parameter in self.parameters for shard in parameter.shards]
        shards.sort(key=lambda shard: (self._info(shard).file, self._info(shard).offset))
        total = sum(stored_bytes(self._info(shard), shard) for shard in shards)
        done = 0
        for shard in shards:
            for nbytes in self._load(shard):
                done += nbytes
                yield Progress(done, total)
        self.vectors = {name: vector.to(self.device) for name, vector in self.vectors.items()}
        self.stream, linears = streamed.on_device()
        self.linears |= linears
        self.nbytes = streamed.buffer_bytes + sum(
            p.nbytes for p in self.parameters if p.name not in streamed.linears
        )

    def _make(self, parameter: Parameter) -> None:
        if parameter.vector:
            self.vectors[parameter.name] = torch.empty(parameter.rows)
        else:
            self.linears[parameter.name] = make_linear(
                parameter.held, parameter.rows, parameter.columns, self.processor, on(self.device)
            )

    def _info(self, shard: Shard) -> TensorInfo:
        return self.spec.tensors[shard.source]

    def _load(self, shard: Shard) -> Iterator[int]:
        """Fill the shard's place in its parameter, a block of rows at a time; yields bytes read."""
        info = self._info(shard)
        head_dim = self.spec.dimensions.head_dim
        columns = whole_blocks(info, shard)
        step = _rows_at_once(columns.size, math.lcm(BLOCK_ROWS, head_dim if info.paired else 1))
        with _Mapped(info) as mapped:
            for start in range(shard.rows.start, shard.rows.stop, step):
                rows = Span(start, min(start + step, shard.rows.stop))
                stored = mapped.read(rows, columns)
                if info.paired:
                    stored = halves(stored, head_dim)
                at = shard.offset + start - shard.rows.start
                self._fill(shard, at, shard.columns.start - columns.start, stored, info.format)
                yield stored.numel()

    def _fill(self, shard: Shard, at: int, column: int, stored: Tensor, name: str) -> None:
        if shard.parameter in self.vectors:
            values = dequantize(stored, name)[:, 0]
            self.vectors[shard.parameter][at : at + len(values)] = values
        else:
            self.linears[shard.parameter].fill(at, column, stored, name)


def whole_blocks(info: TensorInfo, shard: Shard) -> Span:
    """The shard's columns widened to the format's blocks: what must be read of each row."""
    block = FORMATS[info.format].block_elements
    start, stop = shard.columns
    return Span(start // block * block, -(-stop // block) * block)


def stored_bytes(info: TensorInfo, shard: Shard) -> int:
    """Bytes of the file that `shard` reads."""
    return FORMATS[info.format].nbytes(shard.rows.size, whole_blocks(info, shard).size)


def halves(stored: Tensor, head_dim: int) -> Tensor:
    """Rows of rotary pairs (0, 1), (2, 3), … reordered so that a pair lies half a head apart.

    Works on whole heads of stored rows, in any format, since a row stays in one piece.
    """
    heads = stored.view(-1, head_dim // 2, 2, stored.shape[1])
    return heads.transpose(1, 2).reshape(stored.shape)


def _rows_at_once(columns: int, unit: int) -> int:
    """Rows of a block: about BLOCK_ELEMENTS in whole units."""
    return max(1, BLOCK_ELEMENTS // (columns * unit)) * unit


class _Mapped:
    """One stored tensor, mapped read-only for as long as it is needed."""

    def __init__(self, info: TensorInfo) -> None:
        self._info = info
        self._format = FORMATS[info.format]
        self._row_bytes = self._format.nbytes(1, info.shape[1] if len(info.shape) == 2 else 1)
        self._skip = info.offset % mmap.ALLOCATIONGRANULARITY

    def __enter__(self) -> _Mapped:
        info, skip = self._info, self._skip
        with Path(info.file).open("rb") as file:
            self._map = mmap.mmap(
                file.fileno(),
                info.nbytes + skip,
                access=mmap.ACCESS_READ,
                offset=info.offset - skip,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def read(self, rows: Span, columns: Span) -> Tensor:
        """(rows, bytes of the columns) uint8, a copy; the mapped pages are given back."""
        first = self._skip + rows.start * self._row_bytes
        count = rows.size * self._row_bytes
        start = self._format.nbytes(1, columns.start)
        stop = self._format.nbytes(1, columns.stop)
        mapped = numpy.frombuffer(self._map, numpy.uint8, count, first)
        block = mapped.reshape(rows.size, self._row_bytes)[:, start:stop].copy()
        del mapped
        self._release(first, first + count)
        return torch.from_numpy(block)

    def _release(self, start: int, stop: int) -> None:
        """Let go of the pages that bytes [start, stop) touch: they stay in the page cache."""
        if hasattr(mmap, "MADV_DONTNEED"):
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, stop - first)
