"""Matrices held in the very bytes of their file, on any device.

A product dequantizes a bounded block of rows, multiplies it and forgets it. Slow, and exact: what
every format has before a faster kernel for it takes this one's place. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.model.dequantize import dequantize
from local_tp.model.linear import ON_CPU, Allocate
from local_tp.model.processor import Processor
from local_tp.plan.activations import BLOCK_ELEMENTS, UNPACK_ELEMENTS


class Blocks:
    """A (rows, columns) matrix in one stored format.

    A row is whole blocks: where a cut goes through one, `lead` numbers of the first and those
    behind `columns` are held and not used.
    """

    def __init__(
        self,
        name: str,
        rows: int,
        columns: int,
        processor: Processor,
        allocate: Allocate = ON_CPU,
        lead: int = 0,
    ) -> None:
        self.name, self.shape, self.lead = name, (rows, columns), lead
        self.stored = allocate((rows, FORMATS[name].nbytes(1, lead + columns)), torch.uint8)
        self._on_card = self.stored.device.type not in ("cpu", "meta")
        self.product = torch.bfloat16 if self._on_card else processor.product

    def __call__(self, x: Tensor) -> Tensor:
        y = x.new_empty((x.shape[0], self.shape[0]), dtype=self.product)
        self.multiply(x.to(self.product), y)
        return y

    def multiply(self, x: Tensor, y: Tensor) -> None:
        """Fill y (tokens, rows) with the product of x (tokens, columns), both of type `product`."""
        for start, stop in self._bounded(self.shape[0]):
            numbers = self._numbers(self.stored[start:stop]).to(self.product)
            torch.mm(x, numbers.T, out=y[:, start:stop])

    def rows(self, index: Tensor) -> Tensor:
        found = torch.empty((len(index), self.shape[1]), device=index.device)
        for start, stop in self._bounded(len(index)):
            found[start:stop] = self._numbers(self.stored[index[start:stop]])
        return found

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        assert name == self.name
        assert column >= self.lead
        first = FORMATS[name].nbytes(1, column - self.lead)
        self.stored[at : at + len(stored)] = stored[:, first : first + self.stored.shape[1]]

    def _numbers(self, stored: Tensor) -> Tensor:
        """(n, row bytes) -> (n, columns) float32."""
        return dequantize(stored, self.name)[:, self.lead : self.lead + self.shape[1]]

    def _bounded(self, rows: int) -> Iterator[tuple[int, int]]:
        """Rows that are numbers at once, from and to.

        A processor's cache holds few of them; on a card the start of each operation counts.
        """
        elements = UNPACK_ELEMENTS if self._on_card else BLOCK_ELEMENTS
        step = max(1, elements // (self.lead + self.shape[1]))
        for start in range(0, rows, step):
            yield start, min(start + step, rows)


class Stacked:
    """Matrices of equal width one above the other: a fused parameter of several formats."""

    def __init__(self, parts: Sequence[Blocks]) -> None:
        self.parts = tuple(parts)
        self._stops = tuple(accumulate(part.shape[0] for part in parts))

    def __call__(self, x: Tensor) -> Tensor:
        product = self.parts[0].product
        x = x.to(product)
        y = x.new_empty((x.shape[0], self._stops[-1]))
        for part, stop in zip(self.parts, self._stops, strict=True):
            part.multiply(x, y[:, stop - part.shape[0] : stop])
        return y

    def rows(self, index: Tensor) -> Tensor:
        raise AssertionError("embedding and head are one tensor, never stacked")

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        part, stop = self._at(at)
        part.fill(at - stop + part.shape[0], column, stored, name)

    def part_at(self, row: int) -> Blocks:
        """The matrix that has this row."""
        return self._at(row)[0]

    def _at(self, row: int) -> tuple[Blocks, int]:
        """That matrix, and where its rows end."""
        pairs = zip(self.parts, self._stops, strict=True)
        return next((part, stop) for part, stop in pairs if row < stop)
