"""The block formats of GGUF as numbers.

Block layouts as the GGUF format defines them; each function takes (rows, blocks, block bytes) uint8
on any device and gives (rows, columns) float32, with at most UNPACKED_BYTES (`plan.activations`) an
element beside its input. Values are equal to the reference's to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

GROUP = 32  # columns of a block of the older formats
SUPER = 256  # of one of the K formats, whose groups have scales of their own
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def codes_of(blocks: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks of Q4_0, Q4_1 or Q4_K as value = code * scale + zero.

    Returns codes (rows, columns) uint8 in 0..15 and, for each group of 32 columns, scale and zero
    (rows, groups) float32. Source: Q4_0 is d, q with value d * (q - 8); Q4_1 is d, m, q with
    value d * q + m; byte j of a block holds column j in its low and column j + 16 in its high half.
    """
    if name == "Q4_K":
        scale, least = _scales_and_minima(blocks)
        return _q4_k_codes(blocks).flatten(1), scale.flatten(1), -least.flatten(1)
    scale = _half(blocks, 0)
    if name == "Q4_0":
        packed, zero = blocks[..., 2:], scale * -8.0
    elif name == "Q4_1":
        packed, zero = blocks[..., 4:], _half(blocks, 2)
    else:
        raise AssertionError(f"{name} has no 4-bit codes")
    return _fields(packed, 4).flatten(1), scale.squeeze(-1), zero.squeeze(-1)


# ------------------------------------------------------------------------------ 32 columns


def _q4_0(blocks: Tensor) -> Tensor:
    """d, nibbles: d * (q - 8)."""
    codes = _fields(blocks[..., 2:], 4).flatten(2).float()
    return codes.sub_(8).mul_(_half(blocks, 0)).flatten(1)


def _q4_1(blocks: Tensor) -> Tensor:
    """d, m, nibbles: d * q + m."""
    codes = _fields(blocks[..., 4:], 4).flatten(2).float()
    return codes.mul_(_half(blocks, 0)).add_(_half(blocks, 2)).flatten(1)


def _q5_0(blocks: Tensor) -> Tensor:
    """d, 32 fifth bits, nibbles: d * (q - 16)."""
    codes = _five_bits(blocks[..., 6:], blocks[..., 2:6]).float()
    return codes.sub_(16).mul_(_half(blocks, 0)).flatten(1)


def _q5_1(blocks: Tensor) -> Tensor:
    """d, m, 32 fifth bits, nibbles: d * q + m."""
    codes = _five_bits(blocks[..., 8:], blocks[..., 4:8]).float()
    return codes.mul_(_half(blocks, 0)).add_(_half(blocks, 2)).flatten(1)


def _five_bits(nibbles: Tensor, fifth: Tensor) -> Tensor:
    """Bit j of the fifth bits, lowest byte first, belongs to column j."""
    low = _fields(nibbles, 4).flatten(-2)
    return low.bitwise_or_(_fields(fifth, 1, interleaved=True).flatten(-2).mul_(16))


def _q8_0(blocks: Tensor) -> Tensor:
    """d, signed bytes: d * q."""
    return blocks[..., 2:].view(torch.int8).float().mul_(_half(blocks, 0)).flatten(1)


def _iq4_nl(blocks: Tensor) -> Tensor:
    """d, nibbles: d times a value of the table."""
    values = _looked_up(_fields(blocks[..., 2:], 4).flatten(2), IQ4_VALUES)
    return values.mul_(_half(blocks, 0)).flatten(1)


def _mxfp4(blocks: Tensor) -> Tensor:
    """e, nibbles: 2^(e - 127) times a 4-bit float; the table has its double.

    An exponent of 255, which the OCP specification calls not a number, counts as any other.
    """
    exponent = blocks[..., :1].int()
    halved = torch.where(exponent < 2, 0x200000 << exponent.clamp(max=1), (exponent - 1) << 23)
    values = _looked_up(_fields(blocks[..., 1:], 4).flatten(2), E2M1_DOUBLED)
    return values.mul_(halved.view(torch.float32)).flatten(1)


# ----------------------------------------------------------------------------- 256 columns


def _q2_k(blocks: Tensor) -> Tensor:
    """16 bytes of 4-bit scale and minimum, 2-bit codes, d, dmin; groups of 16 columns."""
    scales = blocks[..., :16]
    scale = _half(blocks, 80) * (scales & 15).float()
    least = _half(blocks, 82) * (scales >> 4).float()
    codes = _fields(_split(blocks[..., 16:80], 2, 32), 2).flatten(-3)
    return _scaled(codes, scale, least)


def _q3_k(blocks: Tensor) -> Tensor:
    """Third bits, 2-bit codes, 16 scales of 6 bits, d; groups of 16 columns."""
    low = _fields(_split(blocks[..., 32:96], 2, 32), 2).flatten(-3)
    codes = low.bitwise_or_(_fields(blocks[..., :32], 1).flatten(-2).mul_(4))
    packed = blocks[..., 96:108]
    low_bits = _fields(packed[..., :8], 4).flatten(-2)
    high_bits = _fields(packed[..., 8:], 2).flatten(-2)
    scale = _half(blocks, 108) * (low_bits | high_bits << 4).float().sub_(32)
    return _signed(codes, 4, scale)


def _q4_k(blocks: Tensor) -> Tensor:
    """d, dmin, 8 scales and minima of 6 bits, nibbles; groups of 32 columns."""
    return _scaled(_q4_k_codes(blocks), *_scales_and_minima(blocks))


def _q4_k_codes(blocks: Tensor) -> Tensor:
    """(rows, blocks, 256)."""
    return _fields(_split(blocks[..., 16:], 4, 32), 4).flatten(-3)


def _q5_k(blocks: Tensor) -> Tensor:
    """As Q4_K, with fifth bits before the nibbles: bit j of byte i is of column i of group j."""
    low = _fields(_split(blocks[..., 48:], 4, 32), 4).flatten(-3)
    codes = low.bitwise_or_(_fields(blocks[..., 16:48], 1).flatten(-2).mul_(16))
    return _scaled(codes, *_scales_and_minima(blocks))


def _q6_k(blocks: Tensor) -> Tensor:
    """Low nibbles, high 2 bits, 16 signed scales, d; groups of 16 columns."""
    low = _fields(_split(blocks[..., :128], 2, 64), 4).flatten(-3)
    high = _fields(_split(blocks[..., 128:192], 2, 32), 2).flatten(-3)
    scale = _half(blocks, 208) * blocks[..., 192:208].view(torch.int8).float()
    return _signed(low.bitwise_or_(high.mul_(16)), 32, scale)


def _iq4_xs(blocks: Tensor) -> Tensor:
    """d, high and low bits of 8 scales, nibbles into the table; groups of 32 columns."""
    high = _fields(blocks[..., 2:4], 2, interleaved=True).flatten(-2)
    low = _fields(blocks[..., 4:8], 4, interleaved=True).flatten(-2)
    scale = _half(blocks, 0) * (low | high << 4).float().sub_(32)
    codes = _fields(_split(blocks[..., 8:], 8, 16), 4).flatten(-3)
    values = _split(_looked_up(codes, IQ4_VALUES), 8, 32)
    return values.mul_(scale[..., None]).flatten(1)


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, blocks, 8) each, of Q4_K and Q5_K.

    Of the twelve bytes the first four have six bits of scales 0-3, the next of minima 0-3; their
    upper two bits belong to number 4-7, whose lower four lie in the last: scales low, minima high.
    """
    scales, minima, rest = _split(blocks[..., 4:16], 3, 4).unbind(-2)
    scale = torch.cat((scales & 63, rest & 15 | (scales >> 6) << 4), -1)
    least = torch.cat((minima & 63, rest >> 4 | (minima >> 6) << 4), -1)
    return _half(blocks, 0) * scale.float(), _half(blocks, 2) * least.float()


def _scaled(codes: Tensor, scale: Tensor, least: Tensor) -> Tensor:
    """scale * code - least, for groups of equal size."""
    values = _split(codes.float(), scale.shape[-1], SUPER // scale.shape[-1])
    return values.mul_(scale[..., None]).sub_(least[..., None]).flatten(1)


def _signed(codes: Tensor, middle: int, scale: Tensor) -> Tensor:
    """scale * (code - middle), for groups of equal size."""
    values = _split(codes.float(), scale.shape[-1], SUPER // scale.shape[-1])
    return values.sub_(middle).mul_(scale[..., None]).flatten(1)


# ------------------------------------------------------------------------------------ bits


def _split(values: Tensor, *sizes: int) -> Tensor:
    """The last dimension as several."""
    return values.view(*values.shape[:-1], *sizes)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at a byte of each block, (rows, blocks, 1) float32."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16).float()


def _fields(packed: Tensor, bits: int, *, interleaved: bool = False) -> Tensor:
    """(…, bytes) uint8 -> (…, fields of a byte, bytes), or with these interleaved (…, bytes, …).

    Fields of so many bits, the lowest of each byte first.
    """
    mask, highest = (1 << bits) - 1, 8 - bits
    middle = [(packed >> shift) & mask for shift in range(bits, highest, bits)]
    return torch.stack((packed & mask, *middle, packed >> highest), -1 if interleaved else -2)


def _looked_up(codes: Tensor, table: tuple[int, ...]) -> Tensor:
    values = torch.tensor(table, dtype=torch.float32, device=codes.device)
    return values[codes.int()]


GGUF_TYPES: dict[str, Callable[[Tensor], Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "IQ4_NL": _iq4_nl,
    "MXFP4": _mxfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
}
