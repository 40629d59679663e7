"""Canonical blocks (`checkpoint.canonical`): to numbers, and from codes, scales and zeros.

Plain torch, on the device where the bytes lie. Knows nothing of files and repositories.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from local_tp.checkpoint.canonical import CANONICAL, LOOKED_UP, SCALE_BYTES, Canonical

SCALE_TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
_FLOAT_TYPES = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}

# The sixteen numbers of each code book, in the order of their codes. NF4: the means of sixteen
# equally likely parts of a normal distribution, zero among them (QLoRA, arXiv:2305.14314); FP4:
# sign, two bits of exponent and one of mantissa, its largest scaled to 1. Both as bitsandbytes
# stores them.
CODE_BOOKS = {
    "NF4": (
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ),
    "FP4": tuple(sign * n / 12 for sign in (1, -1) for n in (0, 0.0625, 8, 12, 4, 6, 2, 3)),
}


def numbers_of(form: Canonical, blocks: Tensor) -> Tensor:
    """(rows, blocks, bytes of a block) uint8 -> (rows, columns) float32."""
    width = SCALE_BYTES[form.scale]
    scale = blocks[..., :width].contiguous().view(SCALE_TYPES[form.scale]).float()
    codes = blocks[..., width + form.has_zero :]
    if form.code_bits == 4:
        codes = torch.cat((codes & 15, codes >> 4), dim=-1)
    if form.has_zero:
        values = codes.float().sub_(blocks[..., width : width + 1])
    elif form.codes in LOOKED_UP:
        book = torch.tensor(CODE_BOOKS[form.codes], device=blocks.device)
        values = book[codes.int()]
    else:
        values = codes.contiguous().view(_FLOAT_TYPES[form.codes]).float()
    return values.mul_(scale).flatten(1)


def blocks_of(form: Canonical, codes: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Codes (rows, columns) uint8 with scale and zero (rows, blocks) -> (rows, bytes) uint8."""
    rows = codes.shape[0]
    codes = codes.view(rows, -1, form.group)
    stored = scale.to(SCALE_TYPES[form.scale]).contiguous().view(torch.uint8)
    parts = [stored.view(rows, codes.shape[1], -1)]
    if form.has_zero:
        assert zero is not None
        parts.append(zero.to(torch.uint8)[..., None])
    parts.append(nibbles(codes) if form.code_bits == 4 else codes)
    return torch.cat(parts, dim=-1).flatten(1)


def nibbles(codes: Tensor) -> Tensor:
    """(..., group) codes below 16 -> (..., group / 2): the first half low, the second high."""
    low, high = codes.chunk(2, dim=-1)
    return low | high << 4


CANONICAL_TYPES: dict[str, Callable[[Tensor], Tensor]] = {
    name: partial(numbers_of, form) for name, form in CANONICAL.items()
}
