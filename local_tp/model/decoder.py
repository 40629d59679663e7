"""The decoder of one rank: its layers, heads and columns, over the list of operations.

Written once for every split and family. The residual stream is whole on every rank; the branches of
a layer give partial sums that the stage's group adds up. A rank without a part of a branch adds
zeros. Knows nothing of files, requests or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from local_tp.core import ModelSpec, Placement
from local_tp.model.batch import Batch
from local_tp.model.collectives import Group
from local_tp.model.linear import Linear
from local_tp.model.operations import TorchOperations
from local_tp.model.streaming import LayerStream

SHARPENED = 64  # logits of a row that are exact; the rest only count in the sum

Run = Callable[[Tensor, Batch], Tensor]  # (tokens, hidden) normed -> this rank's part of a sum


@dataclass(frozen=True, slots=True)
class Branch:
    """Attention or feed-forward, and what stands around it on every rank.

    Without `run` the rank has no part of it. `bias` is added to the sum, `post` norms that.
    """

    run: Run | None
    norm: Tensor | None = None
    bias: Tensor | None = None
    post: Tensor | None = None


class Layer(NamedTuple):
    mixer: Branch
    feed: Branch


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything a rank holds; absent where its share is empty."""

    layers: Sequence[Layer]
    embed: Linear | None
    norm: Tensor | None
    head: Linear | None
    stream: LayerStream


class Decoder:
    """The forward pass of one rank."""

    def __init__(
        self,
        spec: ModelSpec,
        placement: Placement,
        weights: Weights,
        operations: TorchOperations,
        group: Group,
    ) -> None:
        self.spec, self.placement = spec, placement
        self.weights, self.operations, self.group = weights, operations, group

    def embed(self, batch: Batch) -> Tensor:
        """(tokens, hidden) float32; each rank looks up the rows it holds and the group adds."""
        x = self._embedded(batch.tokens)
        scale = self.spec.traits.embed_scale
        return x if scale == 1.0 else x * scale

    def layers(self, x: Tensor, batch: Batch) -> Tensor:
        """The residual stream (tokens, hidden) through this stage's layers, changed in place."""
        stream, parallel = self.weights.stream, self.spec.traits.parallel
        for index, layer in enumerate(self.weights.layers):
            stream.wait(index)
            if parallel:
                self._both(layer, x, batch)
            else:
                self._branch(layer.mixer, x, batch)
                self._branch(layer.feed, x, batch)
            stream.release(index)
        return x

    def logits(self, x: Tensor, batch: Batch) -> Tensor | None:
        """(wanted rows, vocab) float32 on the group's leader, `None` on its other ranks."""
        assert self.weights.norm is not None
        traits = self.spec.traits
        if batch.wanted is not None:
            x = x[batch.wanted]
        normed = self._norm(x, self.weights.norm)
        if self.weights.head is None:
            share = normed.new_empty((normed.shape[0], 0))
        else:
            share = sharpened(self.weights.head, normed)
        if traits.logit_scale != 1.0:
            share = share * traits.logit_scale
        if traits.logit_cap:
            share = torch.tanh(share / traits.logit_cap) * traits.logit_cap
        return self.group.gather_columns(share, self.spec.dimensions.vocab)

    def _embedded(self, tokens: Tensor) -> Tensor:
        vocab = self.placement.vocab
        if self.weights.embed is None:
            x = torch.zeros((len(tokens), self.spec.dimensions.hidden), device=tokens.device)
        elif vocab.size == self.spec.dimensions.vocab:
            return self.weights.embed.rows(tokens)
        else:
            mine = (tokens >= vocab.start) & (tokens < vocab.stop)
            rows = torch.where(mine, tokens - vocab.start, 0)
            x = self.weights.embed.rows(rows) * mine[:, None]
        return self.group.all_reduce(x)

    def _branch(self, branch: Branch, x: Tensor, batch: Batch) -> None:
        part = branch.run and branch.run(self._norm(x, branch.norm), batch)
        self._add(x, part, branch)

    def _both(self, layer: Layer, x: Tensor, batch: Batch) -> None:
        """Attention and feed-forward of the same norm, in one sum."""
        part = None
        if layer.mixer.run or layer.feed.run:
            normed = self._norm(x, layer.mixer.norm)
            parts = [run(normed, batch).float() for run in (b.run for b in layer) if run]
            part = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        self._add(x, part, layer.mixer)

    def _norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        traits = self.spec.traits
        if weight is None:
            return x
        norm = self.operations.norm if traits.norm == "rms" else self.operations.layer_norm
        return norm(x, weight, traits.norm_eps)

    def _add(self, x: Tensor, part: Tensor | None, branch: Branch) -> None:
        """Add the group's sum of `part` to the residual stream."""
        if self.group.size > 1:
            part = self.group.all_reduce(torch.zeros_like(x) if part is None else part.float())
        if part is None:
            return
        if branch.bias is not None:
            part = part + branch.bias
        if branch.post is not None:
            part = self._norm(part.float(), branch.post)
        x.add_(part, alpha=self.spec.traits.residual_scale)


def sharpened(head: Linear, x: Tensor) -> Tensor:
    """(rows, vocab) float32 logits; the best of them are recomputed if the head gives 16 bits.

    A logit of 20 in bfloat16 is off by up to 0.06, which makes ties of different words and words
    of ties.
    """
    product = head(x)
    if product.dtype == torch.float32:
        return product
    logits = product.float()
    best = logits.topk(min(SHARPENED, logits.shape[1])).indices  # (rows, best)
    rows = head.rows(best.flatten()).view(*best.shape, -1)
    return logits.scatter_(1, best, (rows @ x[:, :, None]).squeeze(-1))
