"""Random matrices as a file stores them, and the numbers that the format's own package reads."""

from __future__ import annotations

import gguf
import numpy as np
import torch
from block_writer import quantized
from gguf import GGMLQuantizationType as Kind
from torch import Tensor


def stored_matrix(name: str, rows: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(stored bytes (rows, row bytes), their values (rows, columns) float32), by `gguf`."""
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    return stored_as(name, values)


def stored_as(name: str, values: np.ndarray) -> tuple[Tensor, Tensor]:
    """`values` rounded into format `name`: the bytes, and what they mean."""
    stored = quantized(values, name)
    known = gguf.dequantize(stored, Kind[name]).astype(np.float32)
    raw = np.ascontiguousarray(stored).view(np.uint8).reshape(len(values), -1)
    return torch.from_numpy(raw.copy()), torch.from_numpy(known.copy())
