"""The short list of operations that a decoder is written over, in plain torch.

The reference for every faster implementation and the fallback everywhere. Each works on the rows
of one step; none knows which model or rank it serves. Activations are float32 between operations.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor

from local_tp.core import RopeScaling, Traits
from local_tp.model.batch import Segment


class TorchOperations:
    """Every operation in torch, for any device."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm of (tokens, hidden) with a gain a column."""
        return functional.rms_norm(x, weight.shape, weight, eps)

    def rope_(self, heads: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotate (tokens, heads, head_dim) in place; halves are pairs.

        cosine, sine: (tokens, 1, head_dim), the sine's first half negated.
        """
        turned = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(cosine).addcmul_(turned, sine)

    def write_kv(self, cache: Tensor, kv: Tensor, slots: Tensor) -> None:
        """Put (tokens, 2 kv_heads, head_dim) into (2 kv_heads, places, head_dim) at `slots`."""
        cache.index_copy_(1, slots, kv.transpose(0, 1).to(cache.dtype))

    def attention(self, query: Tensor, cache: Tensor, segments: list[Segment]) -> Tensor:
        """Causal attention of each segment's queries over its own places.

        query (tokens, heads, head_dim), cache (2 kv_heads, places, head_dim) with the keys first
        -> (tokens, heads * head_dim).
        """
        if len(segments) == 1:
            return _attend(query, cache, segments[0])
        return torch.cat([_attend(query[s.start : s.stop], cache, s) for s in segments])

    def gated(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up for (tokens, 2 n) -> (tokens, n)."""
        gate, up = gate_up.chunk(2, -1)
        return functional.silu(gate).mul_(up)


def _attend(query: Tensor, cache: Tensor, segment: Segment) -> Tensor:
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
            alpha=1.0 / math.sqrt(head_dim),
        )
        return torch.bmm(scores.softmax(-1), values).view(1, -1)
    out = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=segment.mask,
        is_causal=segment.mask is None,
        enable_gqa=heads != kv_heads,
    )
    return out[0].transpose(0, 1).reshape(tokens, -1)


def rope_tables(
    head_dim: int,
    places: int,
    traits: Traits,
    factors: Tensor | None,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """cosine and sine for every place, (places, 1, head_dim) float32, sine's first half negated.

    `factors` (head_dim / 2,) divide the frequencies, as GGUF files state a scaling.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequency = 1.0 / traits.rope_theta**exponent
    if factors is not None:
        frequency = frequency / factors
    if traits.rope_scaling is not None:
        frequency = _scaled(frequency, traits.rope_scaling)
    angle = torch.arange(places, dtype=torch.float32)[:, None] * frequency
    cosine, sine = angle.cos(), angle.sin()
    return (
        torch.cat((cosine, cosine), -1)[:, None].to(device),
        torch.cat((-sine, sine), -1)[:, None].to(device),
    )


def _scaled(frequency: Tensor, scaling: RopeScaling) -> Tensor:
    """Frequencies stretched as the checkpoint says.

    linear divides all by the factor. llama3 leaves short wavelengths, divides long ones, and
    blends between `original_context / high` and `original_context / low` (Llama 3.1's release).
    """
    if scaling.kind == "linear":
        return frequency / scaling.factor
    wavelength = 2 * math.pi / frequency
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = (scaling.original_context / wavelength - low) / (high - low)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequency / scaling.factor + blend * frequency
