"""The packed order is really this processor's: unpacking gives back what was packed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from local_tp.core import Product
from local_tp.model.processor import BLOCK_ROWS, Processor, learn_processor, packed_order


def test_unpacking_gives_back_the_codes(unpacking: Processor) -> None:
    rows, columns = 3 * BLOCK_ROWS, 96
    codes = torch.randint(16, (rows, columns), generator=torch.Generator().manual_seed(0))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
    unpacked = unpacking.unpack(packed.view(rows // BLOCK_ROWS, columns, -1))
    assert unpacked.shape == (columns, rows // BLOCK_ROWS, BLOCK_ROWS)
    assert torch.equal(unpacked.reshape(columns, rows).T.long(), codes)


def pack_in(order: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """(64, 32) codes packed as a processor of that row order would: nibble i is row `order[i]`."""
    nibbles = codes[order].T.to(torch.uint8)  # (columns, rows)
    low, high = nibbles.chunk(2, -1)
    return low | high << 4


def test_another_row_order_is_learnt_and_undone(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = torch.randperm(BLOCK_ROWS, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(
        torch.ops.aten,
        "_convert_weight_to_int4pack_for_cpu",
        lambda codes, _: pack_in(order, codes),
    )
    learnt = packed_order()
    assert learnt is not None
    codes = torch.randint(16, (BLOCK_ROWS, 32), generator=torch.Generator().manual_seed(2))
    unpacked = replace(processor, order=learnt).unpack(pack_in(order, codes)[None])
    assert torch.equal(unpacked.reshape(32, BLOCK_ROWS).T.long(), codes)


def test_a_layout_of_another_kind_is_not_taken_for_an_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_rows(codes: torch.Tensor, _: int) -> torch.Tensor:
        return pack_in(torch.arange(BLOCK_ROWS), codes).T.contiguous()

    monkeypatch.setattr(torch.ops.aten, "_convert_weight_to_int4pack_for_cpu", by_rows)
    assert packed_order() is None


def test_the_product_type_is_one_of_two(processor: Processor) -> None:
    assert processor.product in (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("product", ["float32", "bfloat16"])
def test_the_type_of_a_plan_is_taken_and_not_tried_again(product: Product) -> None:
    assert learn_processor(product).product == getattr(torch, product)
