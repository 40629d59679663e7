"""Stored bytes to numbers, a block of rows at a time.

Reference implementations in plain torch; block layouts as the GGUF format defines them. Knows
nothing of files, shards or devices: it is given bytes and returns values on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS

GROUP = 32
DENSE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantize(stored: Tensor, name: str) -> Tensor:
    """(rows, bytes of a row) uint8 in format `name` -> (rows, columns) float32."""
    if name in DENSE:
        return stored.view(DENSE[name]).float()
    if name == "Q8_0":
        blocks = _blocks(stored, name)
        scale = blocks[..., :2].contiguous().view(torch.float16).float()
        return (blocks[..., 2:].view(torch.int8).float() * scale).flatten(1)
    codes, scale, zero = codes_of(stored, name)
    values = codes.view(*scale.shape, GROUP).float() * scale[..., None] + zero[..., None]
    return values.flatten(1)


def codes_of(stored: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """A 4-bit format as value = code * scale + zero.

    Returns codes (rows, columns) uint8 in 0..15 and, for each group of 32 columns, scale and zero
    (rows, groups) float32. Source: Q4_0 is d, q with value d * (q - 8); Q4_1 is d, m, q with
    value d * q + m; byte j of a block holds column j in its low and column j + 16 in its high half.
    """
    blocks = _blocks(stored, name)
    scale = blocks[..., :2].contiguous().view(torch.float16).float().squeeze(-1)
    if name == "Q4_0":
        packed, zero = blocks[..., 2:], scale * -8.0
    elif name == "Q4_1":
        packed = blocks[..., 4:]
        zero = blocks[..., 2:4].contiguous().view(torch.float16).float().squeeze(-1)
    else:
        raise AssertionError(f"{name} has no 4-bit codes")
    codes = torch.cat((packed & 15, packed >> 4), dim=-1).flatten(1)
    return codes, scale, zero


def _blocks(stored: Tensor, name: str) -> Tensor:
    """(rows, bytes) -> (rows, blocks, bytes of a block)."""
    return stored.view(stored.shape[0], -1, FORMATS[name].block_bytes)
