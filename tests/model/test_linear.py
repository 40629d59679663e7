"""Each form multiplies as the matrix it was filled with, for one token and for many.

Tolerances are relative to the largest entry of the reference product: 16-bit inputs and scales
round by 2^-9 at most, a code of 8 bits by 1/254 of its row's largest.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from stored_matrices import stored_as, stored_matrix
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS, HELD
from local_tp.model.dequantize import PLAIN
from local_tp.model.dequantize.gguf import GGUF_TYPES
from local_tp.model.linear import (
    ON_CPU,
    UNPACK_FROM_TOKENS,
    Dense,
    Int4,
    Int8,
    Linear,
    make_linear,
)
from local_tp.model.processor import Processor
from local_tp.plan.layout import INT8_COLUMNS

CPU = torch.device("cpu")
TOKENS = [1, 2, 31, 32, 100]
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "int8": 1.5e-2, "int4": 2e-2}


def filled(held: str, name: str, processor: Processor, rows: int, columns: int) -> Linear:
    linear = make_linear(held, rows, columns, processor, ON_CPU)
    linear.fill(0, 0, stored_matrix(name, rows, columns)[0], name)
    return linear


def inputs(tokens: int, columns: int) -> Tensor:
    return torch.randn((tokens, columns), generator=torch.Generator().manual_seed(tokens))


def error(found: Tensor, reference: Tensor) -> float:
    assert found.shape == reference.shape
    return float((found.float() - reference).abs().max() / reference.abs().max())


SMALL_BLOCKS = [n for n in sorted(PLAIN | GGUF_TYPES) if FORMATS[n].block_elements <= 32]
FORMS = [
    *(("float32", name) for name in SMALL_BLOCKS),
    ("float16", "F16"),
    ("bfloat16", "BF16"),
    ("bfloat16", "Q4_1"),
    ("int8", "Q8_0"),
    ("int8", "Q4_0"),
    ("int8", "Q4_1"),
    ("int4", "Q4_0"),
    ("int4", "Q4_1"),
]


@pytest.mark.parametrize(("held", "name"), FORMS)
@pytest.mark.parametrize("tokens", TOKENS)
def test_the_product_is_that_of_the_stored_numbers(
    held: str, name: str, tokens: int, processor: Processor
) -> None:
    rows, columns = 128, 192
    known = stored_matrix(name, rows, columns)[1]
    x = inputs(tokens, columns)
    kept = x.clone()
    found = filled(held, name, processor, rows, columns)(x)
    assert error(found, x @ known.T) < TOLERANCE[held]
    assert torch.equal(x, kept)


@pytest.mark.parametrize("product", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("held", ["int8", "int4"])
def test_few_and_many_tokens_agree(held: str, product: torch.dtype, processor: Processor) -> None:
    """A token's result must not depend on how many others are in the step."""
    linear = filled(held, "Q4_1", replace(processor, product=product), 128, 192)
    x = inputs(UNPACK_FROM_TOKENS, 192)
    together = linear(x)
    apart = torch.cat([linear(row[None]) for row in x])
    assert error(together, apart.float()) < 1.5e-2


@pytest.mark.parametrize("tokens", TOKENS)
def test_without_a_known_order_the_packed_kernel_serves_every_length(
    tokens: int, processor: Processor
) -> None:
    linear = filled("int4", "Q4_1", replace(processor, order=None), 128, 192)
    x = inputs(tokens, 192)
    assert error(linear(x), x @ stored_matrix("Q4_1", 128, 192)[1].T) < TOLERANCE["int4"]
    by_rows = torch.cat([linear(row[None]) for row in x]).float()
    assert error(linear(x), by_rows) < 5e-3


def test_the_unpacked_matrix_is_the_stored_one(unpacking: Processor) -> None:
    linear = filled("int4", "Q4_1", replace(unpacking, product=torch.float32), 192, 128)
    assert isinstance(linear, Int4)
    known = stored_matrix("Q4_1", 192, 128)[1]
    assert error(linear.transposed(0, 192).T, known) < 2**-7
    assert error(linear.transposed(64, 128).T, known[64:128]) < 2**-7


@pytest.mark.parametrize(("held", "name"), [("int4", "Q4_1"), ("int8", "Q8_0")])
@pytest.mark.parametrize("rows", [128, 192, 320])
def test_unpacking_in_blocks_is_unpacking_at_once(
    held: str, name: str, rows: int, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear = filled(held, name, replace(processor, product=torch.float32), rows, 128)
    x = inputs(UNPACK_FROM_TOKENS, 128)
    whole = linear(x)
    monkeypatch.setattr("local_tp.model.linear.UNPACK_ELEMENTS", 128 * 128)
    assert error(linear(x), whole) < 1e-6


@pytest.mark.parametrize(("held", "name"), FORMS)
def test_filling_in_blocks_is_filling_at_once(held: str, name: str, processor: Processor) -> None:
    rows, columns = 256, 96
    stored, _ = stored_matrix(name, rows, columns)
    whole, parts = (make_linear(held, rows, columns, processor, ON_CPU) for _ in range(2))
    whole.fill(0, 0, stored, name)
    for at, stop in ((128, 192), (0, 128), (192, 256)):
        parts.fill(at, 0, stored[at:stop], name)
    for attribute in ("weight", "codes", "scale", "packed", "scale_zero"):
        if hasattr(whole, attribute):
            assert torch.equal(getattr(whole, attribute), getattr(parts, attribute)), attribute
    x = inputs(3, columns)
    assert torch.equal(whole(x), parts(x))


@pytest.mark.parametrize(
    ("held", "name", "column", "columns"),
    [
        ("float32", "Q8_0", 13, 40),
        ("bfloat16", "Q4_0", 16, 48),
        ("int8", "Q8_0", 8, 64),
        ("int4", "Q4_1", 32, 64),
        ("int4", "Q4_0", 64, 96),
    ],
)
@pytest.mark.parametrize("tokens", [1, 100])
def test_a_matrix_may_begin_within_the_stored_row(
    held: str, name: str, column: int, columns: int, tokens: int, processor: Processor
) -> None:
    stored, known = stored_matrix(name, 64, 192)
    linear = make_linear(held, 64, columns, processor, ON_CPU)
    linear.fill(0, column, stored, name)
    x = inputs(tokens, columns)
    assert error(linear(x), x @ known[:, column : column + columns].T) < TOLERANCE[held]


@pytest.mark.parametrize(
    ("held", "name"),
    [("float32", "F32"), ("bfloat16", "BF16"), ("float16", "F16"), ("int8", "Q8_0")],
)
def test_rows_are_the_rows(held: str, name: str, processor: Processor) -> None:
    linear = filled(held, name, processor, 128, 64)
    index = torch.tensor([5, 0, 127, 5])
    found = linear.rows(index)
    assert found.dtype == torch.float32
    assert error(found, stored_matrix(name, 128, 64)[1][index]) < TOLERANCE[held]
    if held != "int8":
        assert torch.equal(found, stored_matrix(name, 128, 64)[1][index])


@pytest.mark.parametrize(
    ("held", "name"), [("float32", "F32"), ("int8", "Q8_0"), ("int4", "Q4_0"), ("int4", "Q4_1")]
)
@pytest.mark.parametrize("tokens", [1, 100])
def test_rows_of_zeros_give_zeros(held: str, name: str, tokens: int, processor: Processor) -> None:
    values = stored_matrix("F32", 64, 64)[1].numpy().copy()
    values[[0, 17, 63]] = 0
    linear = make_linear(held, 64, 64, processor, ON_CPU)
    linear.fill(0, 0, stored_as(name, values)[0], name)
    found = linear(inputs(tokens, 64))
    assert torch.isfinite(found).all()
    assert not found[:, [0, 17, 63]].any()
    assert found[:, 1].any()


def test_rows_of_very_different_size_keep_their_own_scale(processor: Processor) -> None:
    values = (
        stored_matrix("F32", 64, 64)[1].numpy()
        * (10.0 ** torch.arange(-4, 4, 0.125)).numpy()[:, None]
    )
    stored, known = stored_as("Q8_0", values.astype("float32"))
    linear = make_linear("int8", 64, 64, processor, ON_CPU)
    linear.fill(0, 0, stored, "Q8_0")
    found = linear.rows(torch.arange(64))
    assert float(((found - known).abs().amax(1) / known.abs().amax(1)).max()) < 1e-2


@pytest.mark.parametrize("held", sorted(HELD))
def test_a_form_takes_the_bytes_that_the_planner_counted(held: str, processor: Processor) -> None:
    linear = make_linear(held, 128, 192, processor, ON_CPU)
    if isinstance(linear, Dense):
        tensors = [linear.weight]
    elif isinstance(linear, Int8):
        tensors = [linear.codes, linear.scale]
    else:
        assert isinstance(linear, Int4)
        tensors = [linear.packed, linear.scale_zero]
    assert sum(t.numel() * t.element_size() for t in tensors) == HELD[held].nbytes(128, 192)


@pytest.mark.parametrize("columns", [INT8_COLUMNS, 3 * INT8_COLUMNS, 5 * INT8_COLUMNS])
def test_eight_bits_work_at_every_width_that_the_layout_allows(
    columns: int, processor: Processor
) -> None:
    stored, known = stored_matrix("Q8_0", 5, 96)
    linear = make_linear("int8", 5, columns, processor, ON_CPU)
    linear.fill(0, 0, stored, "Q8_0")
    x = inputs(3, columns)
    assert error(linear(x), x @ known[:, :columns].T) < TOLERANCE["int8"]


def test_no_tokens_give_no_rows(processor: Processor) -> None:
    assert filled("float32", "F32", processor, 64, 32)(torch.empty(0, 32)).shape == (0, 64)
