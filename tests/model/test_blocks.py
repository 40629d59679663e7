"""Matrices held as stored multiply as their numbers do, whatever the format and however cut.

Against the numbers that the format's own package reads. In float32 the sums differ by their order
alone; bfloat16 rounds both factors and the result by 2^-9 each.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from stored_matrices import stored_matrix
from torch import Tensor

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Shard, Span
from local_tp.model.blocks import Blocks, Stacked
from local_tp.model.dequantize.gguf import GGUF_TYPES
from local_tp.model.held import linear_of
from local_tp.model.linear import ON_CPU, Dense, Int4, Linear
from local_tp.model.processor import Processor
from local_tp.model.streaming import Pieces
from local_tp.plan.layout import Parameter

ROWS, COLUMNS = 96, 512
WHOLE = Span(0, COLUMNS)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
FORMS = sorted({*GGUF_TYPES, "F16", "F32"})
PRODUCTS = [torch.float32, torch.bfloat16]


def inputs(tokens: int, columns: int) -> Tensor:
    return torch.randn((tokens, columns), generator=torch.Generator().manual_seed(tokens))


def error(found: Tensor, reference: Tensor) -> float:
    assert found.shape == reference.shape
    return float((found.float() - reference).abs().max() / reference.abs().max())


def filled(name: str, processor: Processor) -> Blocks:
    blocks = Blocks(name, ROWS, COLUMNS, processor)
    blocks.fill(0, 0, stored_matrix(name, ROWS, COLUMNS)[0], name)
    return blocks


def fused(*pieces: tuple[str, int], columns: Span = WHOLE) -> Parameter:
    """A parameter of so many rows in each format, one above the other."""
    shards, at = [], 0
    for number, (_, rows) in enumerate(pieces):
        shards.append(Shard("p", f"source.{number}", Span(0, rows), columns, at))
        at += rows
    names = tuple(name for name, _ in pieces)
    return Parameter("p", at, columns.size, names[0], tuple(shards), False, stored=names)


@pytest.fixture(params=PRODUCTS, ids=str)
def multiplying(request: pytest.FixtureRequest, processor: Processor) -> Processor:
    """A processor that is fastest in one type or the other."""
    return replace(processor, product=request.param)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("tokens", [0, 1, 3, 40])
def test_the_product_is_that_of_the_stored_numbers(
    name: str, tokens: int, multiplying: Processor
) -> None:
    x = inputs(tokens, COLUMNS)
    kept = x.clone()
    found = filled(name, multiplying)(x)
    assert found.dtype == multiplying.product
    assert torch.equal(x, kept)
    assert found.shape == (tokens, ROWS)
    if tokens:
        known = stored_matrix(name, ROWS, COLUMNS)[1]
        assert error(found, x @ known.T) < TOLERANCE[multiplying.product]


@pytest.mark.parametrize("name", FORMS)
def test_rows_are_the_stored_numbers_exactly(name: str, processor: Processor) -> None:
    index = torch.tensor([5, 0, 95, 5])
    found = filled(name, processor).rows(index)
    assert found.dtype == torch.float32
    assert torch.equal(found, stored_matrix(name, ROWS, COLUMNS)[1][index])


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0"])
@pytest.mark.parametrize("elements", [1, COLUMNS, 5 * COLUMNS, 1 << 20])
def test_the_size_of_blocks_changes_nothing(
    name: str, elements: int, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = filled(name, replace(processor, product=torch.float32))
    x, index = inputs(2, COLUMNS), torch.arange(ROWS)
    monkeypatch.setattr("local_tp.model.blocks.BLOCK_ELEMENTS", elements)
    known = stored_matrix(name, ROWS, COLUMNS)[1]
    assert error(blocks(x), x @ known.T) < 1e-5
    assert torch.equal(blocks.rows(index), known)


def test_no_more_rows_than_the_bound_are_numbers_at_once(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(stored: Tensor, name: str) -> Tensor:
        seen.append(len(stored))
        return torch.zeros(len(stored), COLUMNS)

    monkeypatch.setattr("local_tp.model.blocks.dequantize", watched)
    monkeypatch.setattr("local_tp.model.blocks.BLOCK_ELEMENTS", 40 * COLUMNS)
    blocks = filled("Q6_K", processor)
    blocks(inputs(1, COLUMNS))
    assert seen == [40, 40, 16]
    blocks.rows(torch.zeros(50, dtype=torch.int64))
    assert seen[3:] == [40, 10]


@pytest.mark.parametrize("name", sorted(GGUF_TYPES))
@pytest.mark.parametrize("edge", [(0, 0), (1, 1), (0, 17), (33, 0), (40, 35)])
def test_a_cut_may_go_through_blocks(
    name: str, edge: tuple[int, int], processor: Processor
) -> None:
    """The block on either side is held whole; the matrix is of the columns asked for.

    Edges in parts of 32 of a block.
    """
    block = FORMATS[name].block_elements
    before, behind = (part * block // 32 for part in edge)
    span = Span(before, 3 * block - behind)
    stored, known = stored_matrix(name, 24, 3 * block)
    first = span.start // block
    read = stored[:, FORMATS[name].nbytes(1, first * block) :]
    read = read[:, : FORMATS[name].nbytes(1, span.stop - first * block)]
    parameter = fused((name, 24), columns=span)
    linear = linear_of(parameter, replace(processor, product=torch.float32), ON_CPU)
    assert isinstance(linear, Blocks)
    linear.fill(0, span.start - first * block, read, name)
    known = known[:, span.start : span.stop]
    assert torch.equal(linear.rows(torch.arange(24)), known)
    x = inputs(2, span.size)
    assert error(linear(x), x @ known.T) < 1e-5
    assert linear.stored.numel() == read.numel() == parameter.nbytes


@pytest.mark.parametrize("name", ["Q4_K", "Q5_0", "F16"])
def test_whole_blocks_of_a_longer_row_may_be_taken(name: str, processor: Processor) -> None:
    """What is read may begin before the matrix does."""
    stored, known = stored_matrix(name, 24, 1024)
    blocks = Blocks(name, 24, 512, processor)
    blocks.fill(0, 256, stored, name)
    assert torch.equal(blocks.rows(torch.arange(24)), known[:, 256:768])


# ----------------------------------------------------------------------------- fused ones


@pytest.mark.parametrize("tokens", [1, 40])
def test_pieces_of_unlike_formats_stand_one_above_the_other(
    tokens: int, multiplying: Processor
) -> None:
    """As attention of a Q4_K_M file: v has more bits than q and k; here one is plain, too."""
    parameter = fused(("Q4_K", 64), ("Q4_K", 32), ("Q6_K", 32), ("F16", 8))
    linear = linear_of(parameter, multiplying, ON_CPU)
    assert isinstance(linear, Stacked)
    assert [(p.name, p.shape[0]) for p in linear.parts] == [("Q4_K", 96), ("Q6_K", 32), ("F16", 8)]
    known = []
    for seed in (3, 1, 2, 0):  # as the file happens to lie
        name, shard = parameter.stored[seed], parameter.shards[seed]
        stored, values = stored_matrix(name, shard.rows.size, COLUMNS, seed)
        half = shard.rows.size // 2
        linear.fill(shard.offset + half, 0, stored[half:], name)
        linear.fill(shard.offset, 0, stored[:half], name)
        known.append((shard.offset, values))
    whole = torch.cat([values for _, values in sorted(known, key=lambda entry: entry[0])])
    x = inputs(tokens, COLUMNS)
    assert error(linear(x), x @ whole.T) < TOLERANCE[multiplying.product]
    assert sum(part.stored.numel() for part in linear.parts) == parameter.nbytes


def test_pieces_of_one_format_are_one_matrix(processor: Processor) -> None:
    assert isinstance(linear_of(fused(("Q4_K", 64), ("Q4_K", 64)), processor, ON_CPU), Blocks)


def test_other_forms_are_made_as_the_layout_says(processor: Processor) -> None:
    parameter = replace(fused(("Q4_0", 64)), stored=())
    made = {
        h: linear_of(replace(parameter, held=h), processor, ON_CPU) for h in ("int4", "float32")
    }
    assert isinstance(made["int4"], Int4)
    assert isinstance(made["float32"], Dense)


def test_a_matrix_may_lie_in_memory_that_others_share(processor: Processor) -> None:
    """As the matrices of a streamed layer do: made twice over the same requests."""
    parameter = fused(("Q4_K", 32), ("Q6_K", 32))
    counted = Pieces()
    linear_of(parameter, processor, counted)
    memory = torch.zeros(counted.nbytes, dtype=torch.uint8)
    first, second = (linear_of(parameter, processor, Pieces(memory)) for _ in range(2))
    for number, shard in enumerate(parameter.shards):
        name = parameter.stored[number]
        first.fill(shard.offset, 0, stored_matrix(name, 32, COLUMNS)[0], name)
    x = inputs(1, COLUMNS)
    assert torch.equal(first(x), second(x))
    assert second(x).any()


# ------------------------------------------------------------------------------ hostile bytes


@pytest.mark.parametrize("name", sorted(GGUF_TYPES))
@pytest.mark.parametrize("byte", [0xFF, 0x7C, 0x80])
def test_any_bytes_multiply_without_an_error(name: str, byte: int, processor: Processor) -> None:
    """Scales that are not numbers spoil the rows they belong to, and nothing else."""
    blocks: Linear = filled(name, replace(processor, product=torch.float32))
    x = inputs(1, COLUMNS)
    good = blocks(x)
    broken = torch.full((1, FORMATS[name].nbytes(1, COLUMNS)), byte, dtype=torch.uint8)
    blocks.fill(7, 0, broken, name)
    others = [row for row in range(ROWS) if row != 7]
    assert torch.equal(blocks(x)[:, others], good[:, others])
    assert blocks.rows(torch.tensor([7])).shape == (1, COLUMNS)
