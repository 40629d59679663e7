"""Streamed layers: every layer finds its own bytes, step after step, whenever copies arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from local_tp.model.linear import Linear, make_linear
from local_tp.model.processor import Processor
from local_tp.model.streaming import (
    ALIGNMENT,
    BUFFERS,
    Copies,
    LayerStream,
    Pieces,
    PlainCopies,
    copies_into,
    host_memory,
)


class LateCopies:
    """Copies that arrive at the last moment allowed: when somebody waits for them."""

    def __init__(self, buffers: Sequence[Tensor]) -> None:
        self._buffers = buffers
        self._coming: dict[int, Tensor] = {}
        self.begun = 0

    def begin(self, slot: int, memory: Tensor) -> None:
        assert slot not in self._coming, "nobody waited for what was coming"
        self._coming[slot] = memory
        self._buffers[slot].fill_(255)  # the old bytes are no longer to be relied on
        self.begun += 1

    def wait(self, slot: int) -> None:
        memory = self._coming.pop(slot, None)
        if memory is not None:
            self._buffers[slot][: len(memory)].copy_(memory)


@pytest.mark.parametrize("make", [PlainCopies, LateCopies])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("first", [0, 3])
def test_every_layer_finds_its_bytes_in_every_step(
    make: Callable[[Sequence[Tensor]], Copies], count: int, first: int
) -> None:
    memory = [torch.full((10 + layer,), layer, dtype=torch.uint8) for layer in range(count)]
    buffers = [torch.empty(10 + count, dtype=torch.uint8) for _ in range(min(BUFFERS, count))]
    stream = LayerStream(first, memory, make(buffers))
    for _ in range(3):
        for index in range(first + count + 2):  # with layers before and after that stay
            stream.wait(index)
            at = index - first
            if 0 <= at < count:
                assert torch.equal(buffers[at % BUFFERS][: 10 + at], memory[at])
            stream.release(index)


def test_the_next_layer_is_on_its_way_before_it_is_waited_for() -> None:
    memory = [torch.full((4,), layer, dtype=torch.uint8) for layer in range(4)]
    copies = LateCopies([torch.empty(4, dtype=torch.uint8) for _ in range(2)])
    stream = LayerStream(0, memory, copies)
    begun = []
    for index in range(4):
        stream.wait(index)
        begun.append(copies.begun)
        stream.release(index)
    assert begun == [2, 3, 4, 5], "each but the one that computes and the next was begun before"
    assert copies.begun == 6, "and both of the next step's first layers"


def test_two_layers_are_copied_once() -> None:
    memory = [torch.zeros(4, dtype=torch.uint8)] * 2
    copies = LateCopies([torch.empty(4, dtype=torch.uint8) for _ in range(2)])
    stream = LayerStream(0, memory, copies)
    for index in [0, 1] * 5:
        stream.wait(index)
        stream.release(index)
    assert copies.begun == 2


@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8", "int4"])
def test_a_matrix_over_copied_bytes_is_the_same_matrix(held: str, processor: Processor) -> None:
    name = "Q4_1" if held == "int4" else "F32"
    shapes = [(64, 96), (128, 32)]

    def over(pieces: Pieces) -> list[Linear]:
        return [make_linear(held, *shape, processor, pieces) for shape in shapes]

    counted = Pieces()
    over(counted)
    source, copy = (host_memory(counted.nbytes, pinned=False) for _ in range(2))
    filled = over(Pieces(source))
    for linear, (rows, columns) in zip(filled, shapes, strict=True):
        width = columns // 32 * 20 if name == "Q4_1" else columns * 4
        stored = torch.randint(0, 60, (rows, width), dtype=torch.uint8)
        linear.fill(0, 0, stored, name)
    copies_into([copy]).begin(0, source)
    for linear, same, (_, columns) in zip(filled, over(Pieces(copy)), shapes, strict=True):
        for tokens in (1, 40):
            x = torch.randn(tokens, columns)
            assert torch.equal(linear(x), same(x))


def test_pieces_lie_one_behind_the_other_and_aligned() -> None:
    shapes = [((3, 5), torch.int8), ((7,), torch.bfloat16), ((100,), torch.float32)]
    counted = Pieces()
    assert [counted(*shape).device.type for shape in shapes] == ["meta"] * 3
    assert counted.nbytes == (1 + 1 + 2) * ALIGNMENT
    memory = host_memory(counted.nbytes, pinned=False)
    pieces = Pieces(memory)
    found = [pieces(*shape) for shape in shapes]
    assert [tensor.data_ptr() - memory.data_ptr() for tensor in found] == [0, 256, 512]
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in found] == shapes


def test_host_memory_begins_on_a_page_of_its_own() -> None:
    memories = [host_memory(nbytes, pinned=False) for nbytes in (1, 5000, 1 << 20)]
    assert [len(memory) for memory in memories] == [1, 5000, 1 << 20]
    assert all(memory.data_ptr() % 4096 == 0 for memory in memories)
