"""Numbers into blocks of the formats that the `gguf` package reads and does not write.

Written from the formats' layouts and simpler than a real quantizer: one scale for each group, from
its extremes. What the blocks then mean, the package says.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

Array = np.ndarray
IQ4 = np.array((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))


def quantized(values: Array, name: str) -> Array:
    """(rows, columns) float32 -> (rows, row bytes) uint8 in format `name`, or plain numbers."""
    if name not in WRITERS:
        return np.asarray(gguf.quantize(values, Kind[name]))
    block, _ = gguf.GGML_QUANT_SIZES[Kind[name]]
    blocks = WRITERS[name](values.reshape(-1, block).astype(np.float32))
    return blocks.reshape(len(values), -1)


def _packed(codes: Array, bits: int) -> Array:
    """(…, fields, bytes) -> (…, bytes): the first field in the lowest bits."""
    shifts = np.arange(codes.shape[-2], dtype=np.uint8)[:, None] * bits
    return np.asarray((codes.astype(np.uint8) << shifts).sum(-2, dtype=np.uint8))


def _half(numbers: Array) -> Array:
    """(n,) -> two bytes each."""
    return numbers.astype("<f2").view(np.uint8).reshape(len(numbers), 2)


def _divided(numerator: Array, denominator: Array) -> Array:
    zero = denominator == 0
    return np.where(zero, 0, numerator / np.where(zero, 1, denominator))


def _affine(
    x: Array, groups: int, top: int, scales: int
) -> tuple[Array, Array, Array, Array, Array]:
    """Codes 0..top in (n, 256), integer scales and minima of groups, and the two halves."""
    grouped = x.reshape(len(x), groups, -1)
    least = np.maximum(0, -grouped.min(-1))
    step = np.maximum(0, grouped.max(-1) + least) / top
    d, dmin = ((part.max(-1) / scales).astype("<f2").astype(np.float32) for part in (step, least))
    scale = np.clip(np.rint(_divided(step, d[:, None])), 0, scales)
    minimum = np.clip(np.rint(_divided(least, dmin[:, None])), 0, scales)
    shifted = grouped + (dmin[:, None] * minimum)[..., None]
    codes = np.clip(np.rint(_divided(shifted, (d[:, None] * scale)[..., None])), 0, top)
    return codes.reshape(len(x), -1), scale.astype(np.uint8), minimum.astype(np.uint8), d, dmin


def _symmetric(x: Array, groups: int, reach: int, scales: int) -> tuple[Array, Array, Array]:
    """Whole numbers within `reach`, (n, groups, …), integer scales of groups, and the half."""
    grouped = x.reshape(len(x), groups, -1)
    step = np.abs(grouped).max(-1) / reach
    d = (step.max(-1) / scales).astype("<f2").astype(np.float32)
    scale = np.clip(np.rint(_divided(step, d[:, None])), 0, scales)
    return _divided(grouped, (d[:, None] * scale)[..., None]), scale.astype(np.int8), d


def _six_bits(scale: Array, minimum: Array) -> Array:
    """Eight scales and minima in twelve bytes."""
    upper_scale, upper_minimum = scale[:, 4:] >> 4, minimum[:, 4:] >> 4
    return np.concatenate(
        (
            scale[:, :4] | upper_scale << 6,
            minimum[:, :4] | upper_minimum << 6,
            (scale[:, 4:] & 15) | (minimum[:, 4:] & 15) << 4,
        ),
        axis=1,
    )


def _q2_k(x: Array) -> Array:
    codes, scale, minimum, d, dmin = _affine(x, 16, 3, 15)
    packed = _packed(codes.reshape(-1, 2, 4, 32), 2).reshape(-1, 64)
    return np.concatenate((scale | minimum << 4, packed, _half(d), _half(dmin)), 1)


def _q3_k(x: Array) -> Array:
    ratio, scale, d = _symmetric(x, 16, 4, 31)
    codes = np.clip(np.rint(ratio) + 4, 0, 7).astype(np.uint8).reshape(len(x), 256)
    third = _packed(codes.reshape(-1, 8, 32) >> 2, 1)
    low = _packed(codes.reshape(-1, 2, 4, 32) & 3, 2).reshape(-1, 64)
    kept = (scale + 32).astype(np.uint8)
    halves = _packed((kept & 15).reshape(-1, 2, 8), 4)
    quarters = _packed((kept >> 4).reshape(-1, 4, 4), 2)
    return np.concatenate((third, low, halves, quarters, _half(d)), 1)


def _q4_k(x: Array) -> Array:
    codes, scale, minimum, d, dmin = _affine(x, 8, 15, 63)
    packed = _packed(codes.reshape(-1, 4, 2, 32), 4).reshape(-1, 128)
    return np.concatenate((_half(d), _half(dmin), _six_bits(scale, minimum), packed), 1)


def _q5_k(x: Array) -> Array:
    codes, scale, minimum, d, dmin = _affine(x, 8, 31, 63)
    codes = codes.astype(np.uint8)
    fifth = _packed(codes.reshape(-1, 8, 32) >> 4, 1)
    low = _packed(codes.reshape(-1, 4, 2, 32) & 15, 4).reshape(-1, 128)
    return np.concatenate((_half(d), _half(dmin), _six_bits(scale, minimum), fifth, low), 1)


def _q6_k(x: Array) -> Array:
    ratio, scale, d = _symmetric(x, 16, 32, 127)
    codes = np.clip(np.rint(ratio) + 32, 0, 63).astype(np.uint8).reshape(len(x), 256)
    low = _packed(codes.reshape(-1, 2, 2, 64) & 15, 4).reshape(-1, 128)
    high = _packed(codes.reshape(-1, 2, 4, 32) >> 4, 2).reshape(-1, 64)
    return np.concatenate((low, high, scale.view(np.uint8), _half(d)), 1)


def _nearest(ratio: Array) -> Array:
    """The place in the table of 4-bit values that is nearest to each number."""
    return np.asarray(np.abs(ratio[..., None] - IQ4).argmin(-1), np.uint8)


def _iq4_nl(x: Array) -> Array:
    ratio, scale, d = _symmetric(x, 1, 113, 1)
    codes = _nearest(ratio).reshape(-1, 2, 16)
    return np.concatenate((_half(d * scale[:, 0]), _packed(codes, 4)), 1)


def _iq4_xs(x: Array) -> Array:
    ratio, scale, d = _symmetric(x, 8, 113, 31)
    kept = (scale + 32).astype(np.uint8)
    high = _packed((kept >> 4).reshape(-1, 2, 4).swapaxes(1, 2), 2)
    low = _packed((kept & 15).reshape(-1, 4, 2).swapaxes(1, 2), 4)
    codes = _packed(_nearest(ratio).reshape(-1, 8, 2, 16), 4).reshape(-1, 128)
    return np.concatenate((_half(d), high, low, codes), 1)


WRITERS: dict[str, Callable[[Array], Array]] = {
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
