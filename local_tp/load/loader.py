"""From a checkpoint's files to the parameters of one rank.

Files are mapped and only the rank's own rows are touched, a block at a time in file order; each
block is given back to the system once it is converted, so the peak is the shard as held plus one
block. Loading yields its progress in bytes and can be stopped between blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import EMPTY, ModelSpec, Shard, Span, TensorInfo
from local_tp.load.repositories import group_order
from local_tp.load.stored import Stored, opened
from local_tp.load.streamed import StreamedLayers
from local_tp.model.dequantize import dequantize
from local_tp.model.held import linear_of
from local_tp.model.linear import Linear, on
from local_tp.model.ordered import ordered_at
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
            self.linears[parameter.name] = linear_of(parameter, self.processor, on(self.device))

    def _info(self, shard: Shard) -> TensorInfo:
        return self.spec.tensors[shard.source]

    def _load(self, shard: Shard) -> Iterator[int]:
        """Fill the shard's place in its parameter, a block of rows at a time; yields bytes read."""
        info = self._info(shard)
        columns = whole_blocks(info, shard)
        step = _rows_at_once(columns.size, math.lcm(BLOCK_ROWS, info.head or 1))
        with self._opened(info, shard) as tensor:
            for start in range(shard.rows.start, shard.rows.stop, step):
                rows = Span(start, min(start + step, shard.rows.stop))
                stored = tensor.read(rows, columns)
                at = shard.offset + start - shard.rows.start
                self._fill(shard, at, shard.columns.start - columns.start, stored, tensor.format)
                yield FORMATS[info.format].nbytes(rows.size, columns.size)

    def _opened(self, info: TensorInfo, shard: Shard) -> AbstractContextManager[Stored]:
        """What reads the tensor; where columns are held sorted, their order is learnt here."""
        held = ordered_at(self.linears.get(shard.parameter), shard.offset)
        if held is not None:
            held.order.copy_(group_order(info))
        return opened(info, sort=held is not None)

    def _fill(self, shard: Shard, at: int, column: int, stored: Tensor, name: str) -> None:
        if shard.parameter in self.vectors:
            values = dequantize(stored, name)[:, 0]
            if self._info(shard).shifted:
                values = values + 1.0
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


def _rows_at_once(columns: int, unit: int) -> int:
    """Rows of a block: about BLOCK_ELEMENTS in whole units."""
    return max(1, BLOCK_ELEMENTS // (columns * unit)) * unit
