"""Stored bytes mean what the format's own package says they mean, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stored_matrices import stored_as, stored_matrix

from local_tp.checkpoint.formats import FORMATS, READABLE
from local_tp.model.dequantize import codes_of, dequantize


@pytest.mark.parametrize("name", sorted(READABLE))
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (7, 96), (64, 256)])
def test_values_are_those_of_the_reference(name: str, rows: int, columns: int) -> None:
    stored, known = stored_matrix(name, rows, columns)
    assert stored.shape == (rows, FORMATS[name].nbytes(1, columns))
    values = dequantize(stored, name)
    assert values.dtype == torch.float32
    assert torch.equal(values, known)


@pytest.mark.parametrize("name", sorted(READABLE))
def test_zeros_and_large_numbers(name: str) -> None:
    values = np.zeros((3, 64), np.float32)
    values[1] = np.linspace(-3e4, 3e4, 64)
    stored, known = stored_as(name, values)
    assert torch.equal(dequantize(stored, name), known)
    assert not dequantize(stored, name)[0].any()


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1"])
def test_codes_scale_and_zero_make_the_values(name: str) -> None:
    stored, known = stored_matrix(name, 5, 96)
    codes, scale, zero = codes_of(stored, name)
    assert codes.shape == (5, 96)
    assert codes.dtype == torch.uint8
    assert int(codes.max()) <= 15
    assert scale.shape == zero.shape == (5, 3)
    values = codes * scale.repeat_interleave(32, 1) + zero.repeat_interleave(32, 1)
    assert torch.allclose(values, known, rtol=0, atol=1e-6)


def test_a_vector_is_a_matrix_of_one_column() -> None:
    vector = torch.tensor([1.5, -2.0, 3.25])
    assert torch.equal(dequantize(vector.view(torch.uint8).view(3, 4), "F32")[:, 0], vector)
