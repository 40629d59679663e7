"""The matrices of streamed layers: over the PC's memory to be filled, over buffers to compute with.

A layer is one flat piece of memory, so that one copy brings all of it. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from local_tp.core import Span
from local_tp.model.held import linear_of
from local_tp.model.linear import Allocate, Linear
from local_tp.model.processor import Processor
from local_tp.model.streaming import BUFFERS, LayerStream, Pieces, copies_into, host_memory
from local_tp.plan.layout import Parameter


class StreamedLayers:
    """The layers `span` of a rank that begins with layer `first`; `linears` are to be filled."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        span: Span,
        first: int,
        device: torch.device,
        processor: Processor,
    ) -> None:
        self._first, self._device, self._processor = span.start - first, device, processor
        self._layers = [
            [p for p in parameters if not p.vector and layer_of(p.name) == index]
            for index in range(*span)
        ]
        self._memory: list[Tensor] = []
        self.linears: dict[str, Linear] = {}
        for layer in self._layers:
            counted = Pieces()
            self._make(layer, counted)
            self._memory.append(host_memory(counted.nbytes, pinned=device.type == "cuda"))
            self.linears |= self._make(layer, Pieces(self._memory[-1]))

    @property
    def buffer_bytes(self) -> int:
        """What they take on the device."""
        return min(BUFFERS, len(self._memory)) * self._widest

    @property
    def _widest(self) -> int:
        return max(map(len, self._memory), default=0)

    def on_device(self) -> tuple[LayerStream, dict[str, Linear]]:
        """The stream of the filled layers, and their matrices over its buffers."""
        buffers = [
            torch.empty(self._widest, dtype=torch.uint8, device=self._device)
            for _ in range(min(BUFFERS, len(self._memory)))
        ]
        linears: dict[str, Linear] = {}
        for at, layer in enumerate(self._layers):
            linears |= self._make(layer, Pieces(buffers[at % BUFFERS]))
        return LayerStream(self._first, self._memory, copies_into(buffers)), linears

    def _make(self, layer: Sequence[Parameter], allocate: Allocate) -> dict[str, Linear]:
        return {p.name: linear_of(p, self._processor, allocate) for p in layer}


def layer_of(parameter: str) -> int | None:
    """The layer that a parameter belongs to, if it belongs to one."""
    words = parameter.split(".")
    return int(words[1]) if words[0] == "layers" else None
