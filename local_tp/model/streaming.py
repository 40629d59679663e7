"""Layers whose matrices stay in the PC's memory and are copied to the device for each step.

Two buffers on the device take turns: while one layer computes, the next is on its way. Knows
nothing of what the bytes mean. Invariant: a layer computes only on bytes that have arrived, and a
buffer is written again only after its layer has computed.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from local_tp.errors import DeviceError

BUFFERS = 2
ALIGNMENT = 256  # bytes: what a card's allocator gives, and its kernels may count on


class Pieces:
    """Tensors one behind the other in flat `memory`; without memory it only counts.

    An `Allocate` of `model.linear`: the same requests in the same order give the same places.
    """

    def __init__(self, memory: Tensor | None = None) -> None:
        self._memory = memory
        self.nbytes = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        start, nbytes = self.nbytes, math.prod(shape) * dtype.itemsize
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        if self._memory is None:
            return torch.empty(shape, dtype=dtype, device="meta")
        return self._memory[start : start + nbytes].view(dtype).view(shape)


class Copies(Protocol):
    """Moves bytes from the PC's memory into the buffers of a device."""

    def begin(self, slot: int, memory: Tensor) -> None:
        """Fill buffer `slot`, once everything that was queued to read it has."""

    def wait(self, slot: int) -> None:
        """Let what is queued from now on find buffer `slot` filled."""


class PlainCopies:
    """Copies there and then: the device is the PC."""

    def __init__(self, buffers: Sequence[Tensor]) -> None:
        self._buffers = buffers

    def begin(self, slot: int, memory: Tensor) -> None:
        self._buffers[slot][: len(memory)].copy_(memory)

    def wait(self, slot: int) -> None:
        pass


class CardCopies:
    """Copies on a stream of their own, beside the card's computing."""

    def __init__(self, buffers: Sequence[Tensor]) -> None:
        self._buffers = buffers
        self._stream = torch.cuda.Stream(buffers[0].device)  # type: ignore[no-untyped-call]
        self._arrived = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]

    def begin(self, slot: int, memory: Tensor) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._buffers[slot][: len(memory)].copy_(memory, non_blocking=True)
            self._arrived[slot].record(self._stream)

    def wait(self, slot: int) -> None:
        torch.cuda.current_stream().wait_event(self._arrived[slot])


class LayerStream:
    """The streamed layers of a rank: those at `first` and after it, one for each of `memory`.

    Each layer has its own one of two buffers, in turn; a step goes through all layers in order.
    One or two layers stay where they are.
    """

    def __init__(self, first: int, memory: Sequence[Tensor], copies: Copies) -> None:
        self._first, self._memory, self._copies = first, memory, copies
        for slot, layer in enumerate(memory[:BUFFERS]):
            copies.begin(slot, layer)

    def wait(self, index: int) -> None:
        """Before layer `index` computes."""
        at = index - self._first
        if 0 <= at < len(self._memory):
            self._copies.wait(at % BUFFERS)

    def release(self, index: int) -> None:
        """After layer `index`: what its buffer holds next may come, also for the next step."""
        at = index - self._first
        if 0 <= at < len(self._memory):
            slot = at % BUFFERS
            following = at + BUFFERS if at + BUFFERS < len(self._memory) else slot
            if following != at:
                self._copies.begin(slot, self._memory[following])


def copies_into(buffers: Sequence[Tensor]) -> Copies:
    """How bytes come to `buffers`, wherever they lie."""
    on_card = any(buffer.device.type == "cuda" for buffer in buffers)
    return CardCopies(buffers) if on_card else PlainCopies(buffers)


def host_memory(nbytes: int, pinned: bool) -> Tensor:
    """(nbytes,) uint8 of the PC's memory, on pages of its own; `pinned` for a card to read from.

    Pinned here and not by torch's allocator, which rounds up to a power of two.
    """
    page = mmap.PAGESIZE
    size = -(-nbytes // page) * page
    whole = torch.empty(size + page, dtype=torch.uint8)
    skip = -whole.data_ptr() % page
    if pinned:
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        try:
            torch.cuda.check_error(runtime.cudaHostRegister(whole.data_ptr() + skip, size, 0))
        except RuntimeError as error:
            raise DeviceError(
                f"the system refuses to pin {size >> 20:,} MiB more for the card ({error}): "
                "stream fewer layers, or raise the limit of locked memory"
            ) from error
    return whole[skip : skip + nbytes]
