"""Canonical blocks against a dequantizer that reads one number at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from local_tp.checkpoint.canonical import CANONICAL, Canonical, canonical_group
from local_tp.checkpoint.formats import FORMATS
from local_tp.model.dequantize import dequantize
from local_tp.model.dequantize.canonical import CODE_BOOKS, blocks_of
from local_tp.model.ordered import Ordered
from local_tp.model.processor import Processor
from tests.quantized_folders import FP4, NF4

ROWS, BLOCKS = 3, 2


def small_float(code: int, exponent_bits: int, bias: int) -> float:
    """An 8-bit float from its sign, exponent and mantissa."""
    mantissa_bits = 7 - exponent_bits
    sign = -1.0 if code & 128 else 1.0
    exponent, mantissa = (code & 127) >> mantissa_bits, code & (1 << mantissa_bits) - 1
    if exponent_bits == 5 and exponent == 31:
        return sign * float("inf") if mantissa == 0 else float("nan")
    if exponent_bits == 4 and code & 127 == 127:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def number(form: Canonical, code: int, zero: int) -> float:
    if form.has_zero:
        return float(code - zero)
    if form.codes == "NF4":
        return float(NF4[code])
    if form.codes == "FP4":
        return float(FP4[code])
    return small_float(code, *((4, 7) if form.codes == "E4M3" else (5, 15)))


def one_by_one(form: Canonical, row: bytes) -> list[float]:
    """The numbers of a row of blocks."""
    found, at = [], 0
    while at < len(row):
        if form.scale == "BF16":
            (scale,) = struct.unpack("<f", b"\0\0" + row[at : at + 2])
        else:
            (scale,) = struct.unpack_from({"F16": "<e", "F32": "<f"}[form.scale], row, at)
        at += 4 if form.scale == "F32" else 2
        zero = row[at] if form.has_zero else 0
        at += form.has_zero
        for column in range(form.group):
            if form.code_bits == 8:
                code = row[at + column]
            else:
                byte = row[at + column % (form.group // 2)]
                code = byte & 15 if column < form.group // 2 else byte >> 4
            found.append(float(np.float32(number(form, code, zero)) * np.float32(scale)))
        at += form.group * form.code_bits // 8
    return found


def random_blocks(form: Canonical) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    most = 16 if form.code_bits == 4 else 256
    codes = torch.randint(most, (ROWS, BLOCKS * form.group), generator=random, dtype=torch.uint8)
    scale = torch.randn(ROWS, BLOCKS, generator=random)
    zero = torch.randint(256, (ROWS, BLOCKS), generator=random)
    return blocks_of(form, codes, scale, zero if form.has_zero else None)


@pytest.mark.parametrize("name", CANONICAL)
def test_numbers_and_bytes(name: str) -> None:
    form = CANONICAL[name]
    stored = random_blocks(form)
    assert stored.shape == (ROWS, FORMATS[name].nbytes(1, BLOCKS * form.group))
    assert (FORMATS[name].grain, FORMATS[name].readable) == (form.group, True)
    known = np.array([one_by_one(form, bytes(row.tolist())) for row in stored], np.float32)
    np.testing.assert_array_equal(dequantize(stored, name).numpy(), known)


@pytest.mark.parametrize("name", CANONICAL)
def test_any_bytes_give_numbers(name: str) -> None:
    """Also NaN and infinite scales, and code for code as one by one."""
    form = CANONICAL[name]
    random = torch.Generator().manual_seed(1)
    shape = (16, BLOCKS * form.nbytes)
    stored = torch.randint(256, shape, generator=random, dtype=torch.uint8)
    stored[0] = 255
    found = dequantize(stored, name)
    assert found.shape == (16, BLOCKS * form.group)
    with np.errstate(over="ignore", invalid="ignore"):
        known = np.array([one_by_one(form, bytes(row.tolist())) for row in stored], np.float32)
    np.testing.assert_array_equal(found.numpy(), known)


def test_the_code_books_are_those_of_bitsandbytes() -> None:
    assert np.array_equal(np.array(CODE_BOOKS["NF4"], np.float32), NF4)
    assert np.array_equal(np.array(CODE_BOOKS["FP4"], np.float32), FP4)


@pytest.mark.parametrize(
    ("shared", "columns", "group"),
    [
        *((128, 512, 128), (64, 512, 64), (32, 512, 32), (256, 512, 128), (192, 576, 64)),
        *((512, 512, 128), (96, 96, 32), (320, 320, 64), (100, 100, 32), (16, 512, 0), (48, 96, 0)),
    ],
)
def test_a_block_lies_within_a_group(shared: int, columns: int, group: int) -> None:
    assert canonical_group(shared, columns) == group


def test_columns_held_in_another_order() -> None:
    form = CANONICAL["INT4-G32-F16"]
    held = Ordered(form.name, ROWS, BLOCKS * form.group, Processor(None, torch.float32))
    stored = random_blocks(form)
    held.fill(0, 0, stored, form.name)
    order = torch.randperm(BLOCKS * form.group, generator=torch.Generator().manual_seed(2))
    held.order.copy_(order)
    known = torch.empty(ROWS, BLOCKS * form.group)
    known[:, order] = dequantize(stored, form.name)
    assert torch.equal(held(torch.eye(BLOCKS * form.group)).T, known)
    assert torch.equal(held.rows(torch.tensor([2, 0])), known[[2, 0]])
