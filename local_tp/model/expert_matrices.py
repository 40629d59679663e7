"""One matrix of each of several experts, filled as one tall parameter, multiplied one by one.

Knows nothing of routing or of files.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from local_tp.model.linear import Linear


class ExpertMatrices:
    """The matrices `experts`, each in its own memory and any held form.

    The rows of the parameter are those of every expert's first piece, then of every expert's
    second (gates, then ups); an expert has its `pieces` (rows of each) one above the other.
    """

    def __init__(self, experts: Sequence[Linear], pieces: Sequence[int]) -> None:
        self.experts, self._pieces = tuple(experts), tuple(pieces)

    def __call__(self, x: Tensor) -> Tensor:
        raise AssertionError("each expert is multiplied by itself")

    def rows(self, index: Tensor) -> Tensor:
        raise AssertionError("embedding and head are never experts")

    def fill(self, at: int, column: int, stored: Tensor, name: str) -> None:
        above = 0
        for size in self._pieces:
            if at < size * len(self.experts):
                break
            at, above = at - size * len(self.experts), above + size
        done = 0
        while done < len(stored):
            expert, row = divmod(at + done, size)
            count = min(size - row, len(stored) - done)
            self.experts[expert].fill(above + row, column, stored[done : done + count], name)
            done += count


def matrices_of(linear: Linear) -> tuple[Linear, ...]:
    """The matrices of the experts that a loaded parameter is of."""
    assert isinstance(linear, ExpertMatrices)
    return linear.experts


def by_expert(bias: Tensor | None, experts: int, pieces: int) -> Tensor | None:
    """A vector in the order of the parameter's rows as (experts, rows of one)."""
    if bias is None:
        return None
    return bias.view(pieces, experts, -1).transpose(0, 1).flatten(1)
