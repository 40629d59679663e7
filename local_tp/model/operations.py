"""The short list of operations that a decoder is written over, in plain torch.

The reference for every faster implementation and the fallback everywhere. Each works on the rows
of one step; none knows which model or rank it serves. Activations are float32 between operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from local_tp.model.batch import Segment
from local_tp.model.delta_rule import gated_delta_rule, short_convolution
from local_tp.model.row_attention import row_attention
from local_tp.traits import Activation

CLAMP, SLOPE = 7.0, 1.702  # of the clamped activation, as gpt-oss has it


@dataclass(frozen=True, slots=True)
class Scoring:
    """How attention scores are made: scaled, capped, and beside the sink of each head (heads,)."""

    scale: float
    cap: float = 0.0
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether they are only scaled."""
        return not self.cap and self.sinks is None


class TorchOperations:
    """Every operation in torch, for any device."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm of the last dimension, with a gain a column."""
        return functional.rms_norm(x, weight.shape, weight, eps)

    def layer_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Norm of (tokens, hidden) about its mean, with a gain a column."""
        return functional.layer_norm(x, weight.shape, weight, eps=eps)

    def rope_(self, heads: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotate the first elements of (tokens, heads, head_dim) in place; halves are pairs.

        cosine, sine: (tokens, 1, rotated elements), the sine's first half negated.
        """
        heads = heads[..., : cosine.shape[-1]]
        turned = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(cosine).addcmul_(turned, sine)

    def write_kv(self, cache: Tensor, kv: Tensor, slots: Tensor) -> None:
        """Put (tokens, 2 kv_heads, head_dim) into (2 kv_heads, places, head_dim) at `slots`."""
        cache.index_copy_(1, slots, kv.transpose(0, 1).to(cache.dtype))

    def attention(
        self, query: Tensor, cache: Tensor, segments: list[Segment], scoring: Scoring
    ) -> Tensor:
        """Causal attention of each segment's queries over its own places.

        query (tokens, heads, head_dim), cache (2 kv_heads, places, head_dim) with the keys first
        -> (tokens, heads * head_dim).
        """
        if len(segments) == 1:
            return _attend(query, cache, segments[0], scoring)
        return torch.cat([_attend(query[s.start : s.stop], cache, s, scoring) for s in segments])

    def row_attention(
        self, query: Tensor, cache: Tensor, segments: list[Segment], value_size: int
    ) -> Tensor:
        """As `model.row_attention` has it."""
        return row_attention(query, cache, segments, value_size)

    def short_convolution(self, x: Tensor, before: Tensor, taps: Tensor) -> Tensor:
        """As `model.delta_rule` has it; `before` moves on in place."""
        return short_convolution(x, before, taps)

    def gated_delta_rule(
        self, query: Tensor, key: Tensor, value: Tensor, rate: Tensor, fade: Tensor, state: Tensor
    ) -> Tensor:
        """As `model.delta_rule` has it; `state` moves on in place."""
        return gated_delta_rule(query, key, value, rate, fade, state)

    def gated(self, gate_up: Tensor, activation: Activation = "silu") -> Tensor:
        """activation(gate) * up for (tokens, 2 n) -> (tokens, n)."""
        gate, up = gate_up.chunk(2, -1)
        if activation == "clamped":
            gate = gate.clamp(max=CLAMP)
            return (gate * torch.sigmoid(SLOPE * gate)).mul_(up.clamp(-CLAMP, CLAMP) + 1)
        if activation == "gelu":
            return functional.gelu(gate, approximate="tanh").mul_(up)
        return functional.silu(gate).mul_(up)


def _attend(query: Tensor, cache: Tensor, segment: Segment, scoring: Scoring) -> Tensor:
    """One segment: (tokens, heads, head_dim) -> (tokens, heads * head_dim)."""
    tokens, heads, head_dim = query.shape
    query = query.to(cache.dtype)
    kv_heads = cache.shape[0] // 2
    places = segment.places(cache)
    keys, values = places[:kv_heads], places[kv_heads:]
    if tokens == 1:
        grouped = query.view(kv_heads, heads // kv_heads, head_dim)
        scores = torch.baddbmm(
            grouped.new_empty(1, 1, 1),
            grouped,
            keys.transpose(1, 2),
            beta=0,
            alpha=scoring.scale,
        )
        return torch.bmm(_weights(scores, scoring, kv_heads), values).view(1, -1)
    if not scoring.plain:
        return _attend_by_head(query, keys, values, segment, scoring)
    out = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=segment.mask,
        is_causal=segment.mask is None,
        scale=scoring.scale,
        enable_gqa=heads != kv_heads,
    )
    return out[0].transpose(0, 1).reshape(tokens, -1)


def _attend_by_head(
    query: Tensor, keys: Tensor, values: Tensor, segment: Segment, scoring: Scoring
) -> Tensor:
    """The same with scores that no fused kernel makes, one query head at a time."""
    tokens, heads, head_dim = query.shape
    mask = segment.mask
    if mask is None:
        mask = torch.ones((tokens, segment.length), dtype=torch.bool, device=query.device).tril_()
    out = query.new_empty((tokens, heads, head_dim))
    for head in range(heads):
        kv = head * len(keys) // heads
        scores = (query[:, head] @ keys[kv].T).mul_(scoring.scale)
        sinks = None if scoring.sinks is None else scoring.sinks[head : head + 1]
        weights = _weights(scores[None], Scoring(1.0, scoring.cap, sinks), 1, ~mask)
        torch.matmul(weights[0], values[kv], out=out[:, head])
    return out.flatten(1)


def _weights(scores: Tensor, scoring: Scoring, groups: int, hidden: Tensor | None = None) -> Tensor:
    """Scaled scores (groups, rows, places) to shares, where `hidden` places get none.

    A sink takes a share of its own and gives nothing: one of each row of a group, or one for all.
    """
    if scoring.plain:
        return scores.softmax(-1)
    kind, scores = scores.dtype, scores.float()
    if scoring.cap:
        scores = scores.div_(scoring.cap).tanh_().mul_(scoring.cap)
    if hidden is not None:
        scores = scores.masked_fill_(hidden, float("-inf"))
    if scoring.sinks is None:
        return scores.softmax(-1).to(kind)
    sinks = scoring.sinks.view(groups, -1, 1).expand(*scores.shape[:2], 1)
    return torch.cat((scores, sinks), -1).softmax(-1)[..., :-1].to(kind)
