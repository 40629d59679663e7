"""The decoder of one rank: its layers, heads and columns, over the list of operations.

Written once for every split. The residual stream is whole on every rank; attention and feed-forward
give partial sums that the stage's group adds up. A rank without heads or columns adds zeros. Knows
nothing of files, requests or processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.core import ModelSpec, Placement, Span
from local_tp.model.batch import Batch
from local_tp.model.collectives import Group
from local_tp.model.linear import Linear
from local_tp.model.operations import TorchOperations
from local_tp.model.streaming import LayerStream

SHARPENED = 64  # logits of a row that are exact; the rest only count in the sum


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's share of attention."""

    norm: Tensor
    qkv: Linear
    bias: Tensor | None
    o: Linear
    cache: Tensor  # (2 kv_heads, places, head_dim), keys first


@dataclass(frozen=True, slots=True)
class FeedForward:
    """One layer's share of the feed-forward."""

    norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything a rank holds, by layer; absent where its share is empty."""

    attention: list[Attention | None]
    feed_forward: list[FeedForward | None]
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
        vocab = self.placement.vocab
        tokens = batch.tokens
        if self.weights.embed is None:
            x = torch.zeros((len(tokens), self.spec.dimensions.hidden), device=tokens.device)
        elif vocab.size == self.spec.dimensions.vocab:
            return self.weights.embed.rows(tokens)
        else:
            mine = (tokens >= vocab.start) & (tokens < vocab.stop)
            rows = torch.where(mine, tokens - vocab.start, 0)
            x = self.weights.embed.rows(rows) * mine[:, None]
        return self.group.all_reduce(x)

    def layers(self, x: Tensor, batch: Batch) -> Tensor:
        """The residual stream (tokens, hidden) through this stage's layers, changed in place."""
        stream = self.weights.stream
        layers = zip(self.weights.attention, self.weights.feed_forward, strict=True)
        for index, (attention, feed_forward) in enumerate(layers):
            stream.wait(index)
            self._add(x, None if attention is None else self._attention(attention, x, batch))
            self._add(x, None if feed_forward is None else self._feed_forward(feed_forward, x))
            stream.release(index)
        return x

    def logits(self, x: Tensor, batch: Batch) -> Tensor | None:
        """(wanted rows, vocab) float32 on the group's leader, `None` on its other ranks."""
        assert self.weights.norm is not None
        if batch.wanted is not None:
            x = x[batch.wanted]
        normed = self.operations.norm(x, self.weights.norm, self.spec.traits.norm_eps)
        if self.weights.head is None:
            share = normed.new_empty((normed.shape[0], 0))
        else:
            share = sharpened(self.weights.head, normed)
        return self.group.gather_columns(share, self.spec.dimensions.vocab)

    def _attention(self, layer: Attention, x: Tensor, batch: Batch) -> Tensor:
        operations, placement = self.operations, self.placement
        heads, kv_heads = placement.query_heads.size, placement.kv_heads.size
        normed = operations.norm(x, layer.norm, self.spec.traits.norm_eps)
        qkv = layer.qkv(normed).float()
        if layer.bias is not None:
            qkv = qkv + layer.bias
        qkv = qkv.view(len(x), heads + 2 * kv_heads, -1)
        operations.rope_(qkv[:, : heads + kv_heads], batch.cosine, batch.sine)
        operations.write_kv(layer.cache, qkv[:, heads:], batch.slots)
        return layer.o(operations.attention(qkv[:, :heads], layer.cache, batch.segments))

    def _feed_forward(self, layer: FeedForward, x: Tensor) -> Tensor:
        normed = self.operations.norm(x, layer.norm, self.spec.traits.norm_eps)
        return layer.down(self.operations.gated(layer.gate_up(normed)))

    def _add(self, x: Tensor, part: Tensor | None) -> None:
        """Add the group's sum of `part` to the residual stream."""
        if self.group.size > 1:
            part = self.group.all_reduce(torch.zeros_like(x) if part is None else part.float())
        if part is not None:
            x.add_(part)


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


def local_kv(spec: ModelSpec, placement: Placement, places: int) -> tuple[int, int, int]:
    """The shape of one layer's cache on a rank: (2 kv_heads, places, head_dim)."""
    heads: Span = placement.kv_heads
    return 2 * heads.size, places, spec.dimensions.head_dim
