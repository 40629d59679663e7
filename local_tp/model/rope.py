"""Rotary tables: cosine and sine of every place, however a checkpoint scales the frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from local_tp.model.batch import Rotation
from local_tp.traits import Growth, Rope, RopeScaling


def rope_tables(
    rope: Rope, head_dim: int, places: int, factors: Tensor | None, device: torch.device
) -> Rotation:
    """cosine and sine for every place, (places, 1, rotated elements) float32.

    The sine's first half is negated. `factors` (half of the rotated elements,) divide the
    frequencies, as GGUF files state a scaling. Scalings that depend on a text's length go by
    `places`, the longest that can occur, since keys of earlier places are not turned again.
    """
    size = rope.size or head_dim
    exponent = torch.arange(0, size, 2, dtype=torch.float32) / size
    frequency, attention = 1.0 / rope.theta**exponent, 1.0
    if factors is not None:
        frequency = frequency / factors
    if rope.scaling is not None:
        frequency = _scaled(frequency, rope, size, places)
        attention = rope.scaling.attention
    angle = torch.arange(places, dtype=torch.float32)[:, None] * frequency
    cosine, sine = angle.cos() * attention, angle.sin() * attention
    return (
        torch.cat((cosine, cosine), -1)[:, None].to(device),
        torch.cat((-sine, sine), -1)[:, None].to(device),
    )


def growth_table(growth: Growth, places: int, device: torch.device) -> Tensor:
    """(places, 1, 1) float32: what queries of every place are multiplied with."""
    steps = torch.arange(places, dtype=torch.float32).div(growth.every).floor()
    return (1 + growth.rate * steps.log1p())[:, None, None].to(device)


def stored_factors(rope: Rope, places: int, stored: Mapping[str, Tensor]) -> Tensor | None:
    """Those of the `ROPE_FACTORS` in `stored` that go for texts of up to `places`."""
    scaling = rope.scaling
    if scaling is None or scaling.kind != "longrope":
        return stored.get("rope_factors")
    is_long = places > scaling.original_context
    return stored.get("rope_factors_long" if is_long else "rope_factors_short")


def _scaled(frequency: Tensor, rope: Rope, size: int, places: int) -> Tensor:
    scaling = rope.scaling
    assert scaling is not None
    if scaling.kind == "linear":
        return frequency / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(frequency, scaling)
    if scaling.kind == "yarn":
        return _yarn(frequency, rope, scaling, size)
    if scaling.kind == "dynamic":
        return _dynamic(rope, scaling, size, places)
    factors = scaling.long if places > scaling.original_context else scaling.short
    return frequency / torch.tensor(factors) if factors else frequency


def _llama3(frequency: Tensor, scaling: RopeScaling) -> Tensor:
    """Short wavelengths stay, long ones are divided, with a blend between
    `original_context / high` and `original_context / low` (Llama 3.1's release)."""
    wavelength = 2 * math.pi / frequency
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = (scaling.original_context / wavelength - low) / (high - low)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequency / scaling.factor + blend * frequency


def _yarn(frequency: Tensor, rope: Rope, scaling: RopeScaling, size: int) -> Tensor:
    """As `_llama3`, with a ramp between the frequencies that turn `beta_fast` and `beta_slow` times
    within the original context (arXiv 2309.00071)."""

    def place(turns: float) -> float:
        context = scaling.original_context
        return size * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = place(scaling.beta_fast), place(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = (torch.arange(size // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    kept = 1 - ramp.clamp(0, 1)
    return frequency / scaling.factor * (1 - kept) + frequency * kept


def _dynamic(rope: Rope, scaling: RopeScaling, size: int, places: int) -> Tensor:
    """A larger base for texts longer than the original context (NTK)."""
    longer = max(places, scaling.original_context) / scaling.original_context
    stretched = scaling.factor * longer - (scaling.factor - 1)
    theta: float = rope.theta * stretched ** (size / (size - 2))
    return 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
