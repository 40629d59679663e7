"""A gated delta net of one rank: its value heads, with what they keep of each stream's text.

Takes the place of attention in layers whose memory of a text does not grow with it. Knows nothing
of residual streams or of other layers. What it gives is a part of a sum over ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from local_tp.model.batch import Batch, Text
from local_tp.model.linear import Linear
from local_tp.model.operations import TorchOperations

UNIT_EPS = 1e-6  # under the root of the norm that makes queries and keys units


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """Of a rank's heads; `fade` is below 0, and the larger it is the longer a head remembers."""

    inputs: Linear  # rows of queries, keys, values and output gates
    gates: Linear  # a row a value head for its rate, then one for its step
    conv: Linear  # (channels of queries, keys and values, kernel)
    fade: Tensor  # (values,)
    step: Tensor  # (values,) added to the steps
    norm: Tensor  # (size,)
    o: Linear


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What is kept of each stream's text; anything at all where it is yet to begin."""

    inputs: Tensor  # (streams, kernel - 1, channels), the convolution's last
    matrices: Tensor  # (streams, values, size, size)

    def of(self, text: Text) -> tuple[Tensor, Tensor]:
        """Last inputs and matrices of the text's stream, zero where the text begins."""
        found = self.inputs[text.stream], self.matrices[text.stream]
        if text.position == 0:
            for kept in found:
                kept.zero_()
        return found


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """(tokens, hidden) normed -> (tokens, hidden), this rank's part.

    `keys` (values,) says which of the rank's key heads each value head uses.
    """

    weights: DeltaWeights
    state: DeltaState
    keys: Tensor
    operations: TorchOperations
    eps: float

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        weights, channels = self.weights, self.state.inputs.shape[2]
        mixed, gate = weights.inputs(x).float().tensor_split([channels], -1)
        rate, step = weights.gates(x).float().chunk(2, -1)  # (tokens, values)
        fade = functional.softplus(step + weights.step).mul_(weights.fade)
        rate = torch.sigmoid(rate)
        taps = weights.conv.rows(torch.arange(channels, device=x.device)).T
        found = []
        for text in batch.texts:
            rows = slice(text.start, text.stop)
            found.append(self._text(text, mixed[rows], rate[rows], fade[rows], taps))
        out = found[0] if len(found) == 1 else torch.cat(found)
        normed = self.operations.norm(out, weights.norm, self.eps).flatten(1)
        return weights.o(normed * functional.silu(gate))

    def _text(self, text: Text, mixed: Tensor, rate: Tensor, fade: Tensor, taps: Tensor) -> Tensor:
        """(tokens, values, size) of one text."""
        before, matrices = self.state.of(text)
        values, size = matrices.shape[0], matrices.shape[2]
        heads = functional.silu(self.operations.short_convolution(mixed, before, taps))
        heads = heads.view(len(mixed), -1, size).transpose(0, 1)  # (heads, tokens, size)
        units, value = heads.tensor_split([len(heads) - values])
        units = units * torch.rsqrt(units.square().sum(-1, keepdim=True) + UNIT_EPS)
        query, key = units.view(2, -1, *units.shape[1:]).index_select(1, self.keys)
        return self.operations.gated_delta_rule(
            query / math.sqrt(size), key, value, rate.T[..., None], fade.T[..., None], matrices
        ).transpose(0, 1)
