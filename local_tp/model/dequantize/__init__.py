"""Stored bytes to numbers, a block of rows at a time.

Reference implementations in plain torch, one function a format, on the device where the bytes lie.
Knows nothing of files or shards: it is given bytes and returns values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.model.dequantize import gguf
from local_tp.model.dequantize.canonical import CANONICAL_TYPES
from local_tp.model.dequantize.gguf import GGUF_TYPES, GROUP

__all__ = ["BLOCK_FORMATS", "GROUP", "PLAIN", "codes_of", "dequantize"]

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCK_FORMATS: dict[str, Callable[[Tensor], Tensor]] = {**GGUF_TYPES, **CANONICAL_TYPES}


def dequantize(stored: Tensor, name: str) -> Tensor:
    """(rows, bytes of a row) uint8 in format `name` -> (rows, columns) float32."""
    if name in PLAIN:
        return stored.view(PLAIN[name]).float()
    return BLOCK_FORMATS[name](_blocks(stored, name))


def codes_of(stored: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """A 4-bit format as value = code * scale + zero: see `gguf.codes_of`."""
    return gguf.codes_of(_blocks(stored, name), name)


def _blocks(stored: Tensor, name: str) -> Tensor:
    """(rows, bytes) -> (rows, blocks, bytes of a block)."""
    rows, nbytes = stored.shape
    block = FORMATS[name].block_bytes
    return stored.view(rows, nbytes // block, block)
