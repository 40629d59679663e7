"""Quantized model folders from their headers: what is read, what is held, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.errors import CheckpointError
from local_tp.tensors import Packing
from tests.quantized_folders import METHODS, write_quantized

HIDDEN, FFN, VOCAB = 128, 256, 32
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": FFN,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
SQUARE = ("q_proj", "k_proj", "v_proj", "o_proj")
UP = "model.layers.0.mlp.up_proj"


def values() -> dict[str, np.ndarray]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "model.layers.0.input_layernorm.weight": (HIDDEN,),
        "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
        "model.layers.0.mlp.gate_proj.weight": (FFN, HIDDEN),
        "model.layers.0.mlp.up_proj.weight": (FFN, HIDDEN),
        "model.layers.0.mlp.down_proj.weight": (HIDDEN, FFN),
    }
    shapes |= {f"model.layers.0.self_attn.{name}.weight": (HIDDEN, HIDDEN) for name in SQUARE}
    random = np.random.default_rng(1)
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def written(folder: Path, method: str) -> Path:
    write_quantized(folder, METHODS[method], CONFIG, values())
    return folder


def changed(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Sets parts of the up projection; None takes one away. `__` stands for a dot."""
    stored = load_file(folder / "model.safetensors")
    for ending, tensor in tensors.items():
        name = f"{UP}.{ending.replace('__', '.')}"
        if tensor is None:
            del stored[name]
        else:
            stored[name] = tensor
    save_file(stored, folder / "model.safetensors")


def said(folder: Path, **changes: Any) -> None:
    """Changes what the config says of its quantization."""
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("method", "form", "layout", "block", "ordered"),
    [
        ("awq-32", "INT4-G32-F16", "awq", (1, 32), False),
        ("awq-128", "INT4-G128-BF16", "awq", (1, 128), False),
        ("awq-whole", "INT4-G128-F16", "awq", (1, HIDDEN), False),
        ("gptq-4", "INT4-G64-F16", "gptq", (1, 64), False),
        ("gptq-4-v2", "INT4-G32-F16", "gptq_v2", (1, 32), False),
        ("gptq-4-act-order", "INT4-G32-F16", "gptq", (1, 32), True),
        ("gptq-4-whole", "INT4-G128-F16", "gptq", (1, HIDDEN), False),
        ("gptq-8", "INT8-G128-F16", "gptq", (1, 128), False),
        ("packed-4-rows", "INT4-G128-BF16", "packed", (1, HIDDEN), False),
        ("packed-4-act-order", "INT4-G64-BF16", "packed", (1, 64), True),
        ("packed-8", "INT8-G64-BF16", "packed", (1, 64), False),
        ("int-zeros", "INT8-G32-F32", "bytes", (1, 32), False),
        ("float-rows", "E4M3-G128-BF16", "bytes", (1, HIDDEN), False),
        ("float-tensor", "E4M3-G128-BF16", "bytes", (FFN, HIDDEN), False),
        ("fp8-blocks", "E4M3-G128-F32", "bytes", (128, 128), False),
        ("fp8-small-blocks", "E4M3-G64-F32", "bytes", (64, 64), False),
        ("fp8-e5m2", "E5M2-G128-F32", "bytes", (128, 128), False),
        ("fp8-tensor", "E4M3-G128-F32", "bytes", (FFN, HIDDEN), False),
        ("nf4-nested", "NF4-G64-F32", "code-book", (1, 64), False),
        ("nf4-128", "NF4-G128-F32", "code-book", (1, 128), False),
        ("fp4", "FP4-G64-F32", "code-book", (1, 64), False),
        ("int8-rows", "INT8-G128-F32", "int8-rows", (1, HIDDEN), False),
    ],
)
def test_the_form_and_the_layout(
    tmp_path: Path, method: str, form: str, layout: str, block: tuple[int, int], ordered: bool
) -> None:
    spec = read_folder(written(tmp_path / "m", method))
    up = spec.tensors["layers.0.up"]
    assert (up.shape, up.format) == ((FFN, HIDDEN), form)
    assert up.packing == Packing(layout, block, ordered=ordered)
    assert FORMATS[up.format].readable
    assert ("g_idx" in up.parts) == ordered
    assert spec.tensors["embed"].format == "F32"
    assert not any(name.endswith("bias") for name in spec.tensors)


def test_modules_that_were_left_out_are_plain(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", "packed-4")
    changed(
        folder,
        weight_packed=None,
        weight_scale=None,
        weight_shape=None,
        weight=torch.zeros((FFN, HIDDEN), dtype=torch.bfloat16),
    )
    said(folder, ignore=["re:(.*a)*up_proj"])
    tensors = read_folder(folder).tensors
    assert (tensors["layers.0.up"].format, tensors["layers.0.up"].packing) == ("BF16", None)
    assert tensors["layers.0.gate"].format == "INT4-G128-BF16"


@pytest.mark.parametrize(
    ("file", "method", "stated"),
    [
        ("quantize_config.json", "gptq-4", {"bits": 4, "group_size": 64, "desc_act": False}),
        ("quant_config.json", "awq-32", {"w_bit": 4, "q_group_size": 32, "version": "GEMM"}),
    ],
)
def test_the_older_files_beside_the_config(
    tmp_path: Path, file: str, method: str, stated: dict[str, Any]
) -> None:
    folder = written(tmp_path / "m", method)
    form = read_folder(folder).tensors["layers.0.up"].format
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(CheckpointError, match="is stored as 'I32'"):
        read_folder(folder)
    (folder / file).write_text(json.dumps(stated))
    assert read_folder(folder).tensors["layers.0.up"].format == form


def test_a_bias_that_adds_something_is_not_dropped(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", "gptq-4")
    changed(folder, bias=torch.full((FFN,), 0.5, dtype=torch.float16))
    with pytest.raises(CheckpointError, match=r"up_proj\.bias', which the family llama does not"):
        read_folder(folder)


def test_indices_that_are_all_zero_say_nothing(tmp_path: Path) -> None:
    """As in headers that were fetched without their data: it is then as the config says."""
    folder = written(tmp_path / "m", "gptq-4")
    changed(folder, g_idx=torch.zeros(HIDDEN, dtype=torch.int32))
    for ordered in (False, True):
        said(folder, desc_act=ordered)
        packing = read_folder(folder).tensors["layers.0.up"].packing
        assert packing is not None
        assert packing.ordered == ordered


def indices(*changes: tuple[int, int]) -> torch.Tensor:
    """Groups of 32, some columns changed."""
    index = torch.arange(HIDDEN, dtype=torch.int32) // 32
    for column, group in changes:
        index[column] = group
    return index


@pytest.mark.parametrize(
    ("method", "parts", "why"),
    [
        ("awq-32", {"scales": None}, "has no scales: the model is incomplete"),
        ("awq-32", {"qzeros": None}, "has no qzeros"),
        ("awq-32", {"qweight": torch.zeros(4, dtype=torch.int32)}, "a matrix of I32 is needed"),
        ("awq-32", {"scales": torch.zeros(3, FFN)}, "a scale for every 32 of 128 columns"),
        ("awq-32", {"scales": torch.zeros(4, 8)}, r"F16 or BF16 or F32 \(4, 256\) is needed"),
        ("awq-32", {"qzeros": torch.zeros(4, 31, dtype=torch.int32)}, r"I32 \(4, 32\) is needed"),
        ("gptq-4-act-order", {"g_idx": indices((0, -1))}, "g_idx of -1 to 3 for 4 groups"),
        ("gptq-4-act-order", {"g_idx": indices((5, 4))}, "g_idx of 0 to 4 for 4 groups"),
        ("gptq-4-act-order", {"g_idx": indices((0, 1))}, "groups of different sizes"),
        ("gptq-4", {"g_idx": torch.zeros(127, dtype=torch.int32)}, r"g_idx is I32 \(127,\)"),
        ("packed-4", {"weight_scale": None}, "has no weight_scale"),
        ("packed-4-zeros", {"weight_zero_point": torch.zeros(1, 1)}, "weight_zero_point is F32"),
        ("fp8-blocks", {"weight_scale_inv": None}, "has no weight_scale"),
        ("fp8-blocks", {"weight_scale_inv": torch.zeros(3, 1)}, "one scale, 256, or one for each"),
        ("fp8-tensor", {"weight_scale": torch.tensor(1)}, "is I64"),
        ("int8-rows", {"SCB": None}, "has no weight_scale"),
        ("int8-rows", {"SCB": torch.zeros(1)}, r"F32 \(256,\) is needed"),
        ("nf4", {"weight__absmax": None}, "has no weight.absmax"),
        ("nf4", {"weight__absmax": torch.zeros(7)}, "over the ends of rows"),
        ("nf4", {"weight": torch.zeros((9, 1), dtype=torch.uint8)}, "half a byte for each"),
        ("nf4-nested", {"weight__nested_absmax": None}, "has no weight.nested_absmax"),
        ("nf4-nested", {"weight__nested_quant_map": torch.zeros(16)}, r"F32 \(256,\) is needed"),
    ],
)
def test_parts_that_do_not_belong_together(
    tmp_path: Path, method: str, parts: dict[str, torch.Tensor | None], why: str
) -> None:
    folder = written(tmp_path / "m", method)
    changed(folder, **parts)
    refused(folder, why)


@pytest.mark.parametrize(
    ("method", "stated", "why"),
    [
        ("awq-32", {"quant_method": "hqq"}, "quantized by 'hqq', which is not supported: choose"),
        ("awq-32", {"quant_method": None}, "quantized by 'none'"),
        ("awq-32", {"version": "gemv"}, "version = 'gemv', and 'gemm'"),
        ("awq-32", {"bits": 3}, "bits = 3, and 4 is needed"),
        ("awq-32", {"group_size": 0}, "group_size = 0, and an integer of 1 or more"),
        ("awq-32", {"group_size": 64}, "a scale for every 64 of 256 columns"),
        ("gptq-4", {"bits": 2}, "bits = 2, and 4 or 8 is needed"),
        ("gptq-4", {"checkpoint_format": "marlin"}, "checkpoint_format = 'marlin'"),
        ("gptq-4", {"is_marlin_format": True}, "is_marlin_format = True"),
        ("gptq-4", {"desc_act": "yes"}, "desc_act = 'yes', and true or false"),
        ("packed-4", {"format": "marlin-24"}, "format = 'marlin-24'"),
        ("packed-4", {"config_groups": None}, "config_groups = None"),
        ("packed-4", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "not sparse"),
        ("packed-4", {"transform_config": {"config_groups": {"u": 1}}}, "without rotations"),
        ("fp8-blocks", {"weight_block_size": [128]}, "two sizes of 1 or more"),
        ("fp8-blocks", {"weight_block_size": [64, 0]}, "two sizes of 1 or more"),
        ("fp8-tensor", {"quant_algo": "NVFP4"}, "quant_algo = 'NVFP4', and 'FP8'"),
    ],
)
def test_methods_that_cannot_be_read(
    tmp_path: Path, method: str, stated: dict[str, Any], why: str
) -> None:
    folder = written(tmp_path / "m", method)
    said(folder, **stated)
    refused(folder, why)


def test_groups_that_no_block_is_made_for(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", "awq-32")
    said(folder, group_size=16)
    changed(
        folder,
        scales=torch.zeros((8, FFN), dtype=torch.float16),
        qzeros=torch.zeros((8, FFN // 8), dtype=torch.int32),
    )
    stored = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in stored.items() if UP in n or not n.endswith(("zeros", "scales"))}
    kept = {n: t for n, t in kept.items() if UP in n or not n.endswith("qweight")}
    save_file(kept, folder / "model.safetensors")
    refused(folder, "a scale for every 16 columns, .* choose a model with groups of 32, 64 or 128")


def refused(folder: Path, why: str) -> None:
    with pytest.raises(CheckpointError, match=why) as error:
        read_folder(folder)
    assert "\n" not in str(error.value)
