"""What no small llama has: experts in MXFP4, rows within a fused module, and other libraries' word.

The references are transformers' own dequantizers, where it has them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from local_tp.checkpoint.fields import Fields
from local_tp.checkpoint.quantized_folder import assembled
from local_tp.checkpoint.safetensors_folder import _header
from local_tp.core import Span, TensorInfo
from local_tp.errors import CheckpointError
from local_tp.load.repositories import Repository
from local_tp.model.dequantize import dequantize
from tests.quantized_folders import METHODS

EXPERTS, ROWS, COLUMNS = 3, 10, 96


def put_together(
    path: Path, method: dict[str, object], tensors: dict[str, torch.Tensor]
) -> dict[str, TensorInfo]:
    save_file(tensors, path)
    return assembled(Fields("config.json", method), _header(path, ()), {})


def numbers(info: TensorInfo, rows: Span, columns: Span) -> np.ndarray:
    with Repository(info) as repository:
        return np.asarray(dequantize(repository.read(rows, columns), repository.format))


@pytest.fixture
def experts(tmp_path: Path) -> tuple[TensorInfo, np.ndarray]:
    """gpt-oss's gate and up of some experts, and transformers' numbers."""
    random = np.random.default_rng(0)
    blocks = torch.tensor(random.integers(0, 256, (EXPERTS, ROWS, COLUMNS // 32, 16), np.uint8))
    scales = torch.tensor(random.integers(110, 140, (EXPERTS, ROWS, COLUMNS // 32), np.uint8))
    made = put_together(
        tmp_path / "a.safetensors",
        {"quant_method": "mxfp4"},
        {"e.gate_up_proj_blocks": blocks, "e.gate_up_proj_scales": scales},
    )
    known = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return made["e.gate_up_proj"], known.transpose(1, 2).reshape(-1, COLUMNS).numpy()


def test_experts_in_mxfp4(experts: tuple[TensorInfo, np.ndarray]) -> None:
    info, known = experts
    assert (info.format, info.shape) == ("MXFP4", (EXPERTS * ROWS, COLUMNS))
    found = numbers(info, Span(0, EXPERTS * ROWS), Span(0, COLUMNS))
    np.testing.assert_array_equal(found, known)
    np.testing.assert_array_equal(numbers(info, Span(7, 12), Span(32, 96)), known[7:12, 32:96])


def test_every_second_row_is_of_the_gate(experts: tuple[TensorInfo, np.ndarray]) -> None:
    info, known = experts
    assert info.packing is not None
    for first in (0, 1):
        half = replace(
            info,
            shape=(EXPERTS * ROWS // 2, COLUMNS),
            run=1,
            step=2,
            packing=replace(info.packing, first=first),
        )
        np.testing.assert_array_equal(
            numbers(half, Span(2, 9), Span(0, COLUMNS)), known[first::2][2:9]
        )


@pytest.mark.parametrize("method", METHODS)
def test_rows_within_a_fused_module(tmp_path: Path, method: str) -> None:
    """Rows and columns that begin anywhere that a cut may, also within words and blocks of rows."""
    values = np.random.default_rng(1).standard_normal((200, 256)).astype(np.float32)
    parts, known = METHODS[method].write(values)
    parts.pop(".bias", None)
    made = put_together(
        tmp_path / "a.safetensors",
        METHODS[method].config,
        {"qkv" + ending: part for ending, part in parts.items()},
    )
    whole = made["qkv.weight"]
    assert whole.packing is not None
    info = replace(whole, shape=(100, 256), packing=replace(whole.packing, first=77))
    columns = Span(0 if whole.ordered else 128, 256)
    found = numbers(info, Span(3, 90), columns)
    np.testing.assert_allclose(found, known[80:167, slice(*columns)], rtol=1e-6)


@pytest.mark.parametrize("method", ["fp8-blocks", "fp8-small-blocks"])
def test_fp8_as_transformers_reads_it(tmp_path: Path, method: str) -> None:
    values = np.random.default_rng(2).standard_normal((200, 320)).astype(np.float32)
    parts, _ = METHODS[method].write(values)
    size = METHODS[method].config["weight_block_size"]
    known = _dequantize_fp8_weight(
        parts[".weight"], parts[".weight_scale_inv"], size, torch.float32
    )
    made = put_together(
        tmp_path / "a.safetensors",
        METHODS[method].config,
        {"m" + ending: part for ending, part in parts.items()},
    )
    blocks = -(-320 // size[1])
    found = numbers(made["m.weight"], Span(0, 200), Span(0, blocks * size[1]))[:, :320]
    np.testing.assert_array_equal(found, known.numpy())


@pytest.mark.parametrize(("stored", "zero"), [(0, 1), (7, 8), (14, 15), (15, 0)])
def test_a_zero_of_gptq_is_stored_less_one(tmp_path: Path, stored: int, zero: int) -> None:
    """Modulo the sixteen codes: a zero of 0 is stored as 15."""
    tensors = {
        "m.qweight": torch.zeros((4, 8), dtype=torch.int32),
        "m.qzeros": torch.tensor([[sum(stored << 4 * i for i in range(8))]]).to(torch.int32),
        "m.scales": torch.ones((1, 8), dtype=torch.float16),
    }
    config: dict[str, object] = {"quant_method": "gptq", "bits": 4, "group_size": -1}
    for layout, known in (("gptq", zero), ("gptq_v2", stored)):
        made = put_together(
            tmp_path / "a.safetensors", config | {"checkpoint_format": layout}, tensors
        )
        assert (numbers(made["m.weight"], Span(0, 8), Span(0, 32)) == -known).all()


@pytest.mark.parametrize(
    ("blocks", "scales", "why"),
    [
        ((3, 4, 2, 15), (3, 4, 2), r"_blocks is U8 \(3, 4, 2, 15\)"),
        ((3, 4, 32), (3, 4, 2), "_blocks is U8"),
        ((3, 4, 2, 16), (3, 4, 1), r"_scales is U8 \(3, 4, 1\)"),
        ((3, 4, 2, 16), None, "has no _scales"),
        (None, (3, 4, 2), "has no _blocks"),
    ],
)
def test_experts_whose_parts_do_not_match(
    tmp_path: Path, blocks: tuple[int, ...] | None, scales: tuple[int, ...] | None, why: str
) -> None:
    shapes = {"e.down_proj_blocks": blocks, "e.down_proj_scales": scales}
    tensors = {n: torch.zeros(s, dtype=torch.uint8) for n, s in shapes.items() if s}
    with pytest.raises(CheckpointError, match=why):
        put_together(tmp_path / "a.safetensors", {"quant_method": "mxfp4"}, tensors)
