"""The dense feed-forward of one rank: its columns. What it gives is a part of a sum over ranks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from local_tp.model.batch import Batch
from local_tp.model.linear import Linear
from local_tp.model.operations import TorchOperations
from local_tp.traits import Activation


@dataclass(frozen=True, slots=True)
class FeedForward:
    """(tokens, hidden) normed -> (tokens, hidden), this rank's part."""

    gate_up: Linear
    down: Linear
    operations: TorchOperations
    activation: Activation = "silu"

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        return self.down(self.operations.gated(self.gate_up(x), self.activation))
