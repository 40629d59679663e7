"""Stored bytes mean what the format's own package says they mean, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from stored_matrices import stored_as, stored_matrix
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.model.dequantize import PLAIN, codes_of, dequantize
from local_tp.model.dequantize.gguf import GGUF_TYPES

HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "IQ4_NL": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ4_XS": (0,), "MXFP4": (),
}  # fmt: skip
EXTREMES = (0.0, -0.0, 6e-8, -6e-8, 6e-5, 65504.0, -65504.0, np.inf, -np.inf, np.nan)


def reference(raw: np.ndarray, name: str) -> Tensor:
    with np.errstate(invalid="ignore", over="ignore"):
        return torch.from_numpy(gguf.dequantize(raw, Kind[name]).astype(np.float32))


def same_bits(found: Tensor, known: Tensor) -> bool:
    """Equal to the sign of zero; one not-a-number is as good as another."""
    nan = torch.isnan(found)
    bits = found.view(torch.int32) == known.view(torch.int32)
    return torch.equal(nan, torch.isnan(known)) and bool((bits | nan).all())


@pytest.mark.parametrize("name", sorted(PLAIN | GGUF_TYPES))
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (7, 3), (64, 8)])
def test_values_are_those_of_the_reference(name: str, rows: int, blocks: int) -> None:
    columns = blocks * max(32, FORMATS[name].block_elements)
    stored, known = stored_matrix(name, rows, columns)
    assert stored.shape == (rows, FORMATS[name].nbytes(1, columns))
    values = dequantize(stored, name)
    assert values.dtype == torch.float32
    assert torch.equal(values, known)


@pytest.mark.parametrize("name", sorted(GGUF_TYPES))
def test_any_bytes_are_those_of_the_reference(name: str) -> None:
    """Also scales that are infinite or no numbers, which a damaged file may hold."""
    size = 16 * FORMATS[name].block_bytes
    raw = np.random.default_rng(1).integers(0, 256, (256, size), dtype=np.uint8)
    assert same_bits(dequantize(torch.from_numpy(raw), name), reference(raw, name))


@pytest.mark.parametrize("name", sorted(GGUF_TYPES))
@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_scales_are_those_of_the_reference(name: str, extreme: float) -> None:
    """The largest and smallest of every scale, and for MXFP4 every exponent there is."""
    block = FORMATS[name].block_bytes
    raw = np.random.default_rng(2).integers(0, 256, (256, block), dtype=np.uint8)
    for at in HALVES[name]:
        raw[:, at : at + 2] = np.array([extreme], "<f2").view(np.uint8)
    if name == "MXFP4":
        raw[:, 0] = np.arange(256)
    assert same_bits(dequantize(torch.from_numpy(raw), name), reference(raw, name))


@pytest.mark.parametrize("name", sorted(PLAIN | GGUF_TYPES))
def test_zeros_and_large_numbers(name: str) -> None:
    values = np.zeros((3, 256), np.float32)
    values[1] = np.linspace(-3e4, 3e4, 256)
    stored, known = stored_as(name, values)
    assert torch.equal(dequantize(stored, name), known)
    assert not dequantize(stored, name)[0].any()
    assert float(known[1].abs().max()) > 1e4


@pytest.mark.parametrize("name", sorted(GGUF_TYPES))
def test_blocks_may_lie_within_longer_rows(name: str) -> None:
    columns = 4 * FORMATS[name].block_elements
    stored, known = stored_matrix(name, 5, columns)
    block, elements = FORMATS[name].block_bytes, FORMATS[name].block_elements
    found = dequantize(stored[:, block : 3 * block], name)
    assert torch.equal(found, known[:, elements : 3 * elements])
    assert dequantize(stored[:0], name).shape == (0, columns)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q4_K"])
def test_codes_scale_and_zero_make_the_values(name: str) -> None:
    stored, known = stored_matrix(name, 5, 768)
    codes, scale, zero = codes_of(stored, name)
    assert codes.shape == (5, 768)
    assert codes.dtype == torch.uint8
    assert int(codes.max()) <= 15
    assert scale.shape == zero.shape == (5, 24)
    values = codes * scale.repeat_interleave(32, 1) + zero.repeat_interleave(32, 1)
    assert torch.allclose(values, known, rtol=0, atol=1e-6)


def test_a_vector_is_a_matrix_of_one_column() -> None:
    vector = torch.tensor([1.5, -2.0, 3.25])
    assert torch.equal(dequantize(vector.view(torch.uint8).view(3, 4), "F32")[:, 0], vector)
