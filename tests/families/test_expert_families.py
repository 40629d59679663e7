"""Families with experts, as folders that transformers wrote and as GGUF files of the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from family_checks import check
from family_gguf import Change, Value, in_pairs, write_gguf
from family_models import SIZES, write_model
from family_pool import RankPool
from family_splits import EVERY, FEW
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    Ernie4_5_MoeConfig,
    Glm4MoeConfig,
    GptOssConfig,
    GraniteMoeConfig,
    MiniMaxM2Config,
    MixtralConfig,
    OlmoeConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)

from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.safetensors_folder import read_folder

Sizes = dict[str, Any]
HEADS = {"q_proj": SIZES["num_attention_heads"], "k_proj": SIZES["num_key_value_heads"]}

LOCAL: Sizes = SIZES | {"num_local_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 24}
OLMOE: Sizes = {key: size for key, size in LOCAL.items() if key != "head_dim"} | {"num_experts": 7}
QWEN: Sizes = SIZES | {"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
GLM: Sizes = SIZES | {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
}
ERNIE: Sizes = SIZES | {
    "moe_num_experts": 7,
    "moe_k": 3,
    "moe_intermediate_size": 24,
    "moe_num_shared_experts": 2,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "truncate": False,
}

CONFIGS: dict[str, PretrainedConfig] = {
    "mixtral": MixtralConfig(**LOCAL),
    "qwen2 normalized": Qwen2MoeConfig(
        **QWEN, shared_expert_intermediate_size=40, norm_topk_prob=True, decoder_sparse_step=2
    ),
    "qwen2": Qwen2MoeConfig(**QWEN, shared_expert_intermediate_size=40),
    "qwen3": Qwen3MoeConfig(**QWEN, norm_topk_prob=True),
    "qwen3 with a dense layer": Qwen3MoeConfig(**QWEN, mlp_only_layers=[1]),
    "olmoe": OlmoeConfig(**OLMOE),
    "granite": GraniteMoeConfig(
        **LOCAL, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
        logits_scaling=2.0,
    ),
    "glm4": Glm4MoeConfig(**GLM, use_qk_norm=True, attention_bias=True),
    "gpt-oss": GptOssConfig(**LOCAL, sliding_window=12, rope_parameters=YARN),
    "minimax": MiniMaxM2Config(
        **LOCAL, rope_parameters={"partial_rotary_factor": 0.5, "rope_theta": 1e4}
    ),
    "ernie": Ernie4_5_MoeConfig(**ERNIE),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CONFIGS))
def test_folder(name: str, pool: RankPool, tmp_path: Path) -> None:
    reference = write_model(CONFIGS[name], tmp_path)
    splits = EVERY if name in ("qwen2", "gpt-oss") else FEW
    check(pool, read_folder(tmp_path), reference, splits)


# ------------------------------------------------------------------------------------- GGUF


def experts_apart(model: PreTrainedModel) -> dict[str, Tensor]:
    """Stacked gates, ups and downs of each layer with experts, by their GGUF names."""
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".experts." not in name:
            continue
        layer, role = name.split(".")[2], name.split(".")[-1]
        bias = "bias" if role.endswith("_bias") else "weight"
        turned = isinstance(model.config, GptOssConfig)
        if turned and bias == "weight":
            tensor = tensor.transpose(1, 2)
        if role.startswith("down"):
            found[f"blk.{layer}.ffn_down_exps.{bias}"] = tensor
            continue
        gate, up = (tensor[:, ::2], tensor[:, 1::2]) if turned else tensor.chunk(2, 1)
        found[f"blk.{layer}.ffn_gate_exps.{bias}"] = gate
        found[f"blk.{layer}.ffn_up_exps.{bias}"] = up
    return {name: tensor.contiguous() for name, tensor in found.items()}


def converted(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    """As llama.cpp's converter calls it; experts come from `experts_apart`."""
    if ".experts." not in name and "input_linear" not in name and "output_linear" not in name:
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        yield name + (".weight" if name.endswith("sinks") else ""), tensor


def converted_in_pairs(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    for stored, value in converted(name, tensor):
        heads = next((n for role, n in HEADS.items() if role in name), 0)
        yield stored, in_pairs(value, heads) if heads else value


def head(size: int, eps: float, theta: float = 1e4, rotated: int = 0) -> dict[str, Value]:
    return {
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": rotated or size,
        "rope.freq_base": theta,
        "attention.layer_norm_rms_epsilon": eps,
    }


ROUTED: dict[str, Value] = {
    "expert_count": 7,
    "expert_used_count": 3,
    "expert_feed_forward_length": 24,
}
Arch = gguf.MODEL_ARCH
FILES: dict[str, tuple[gguf.MODEL_ARCH, dict[str, Value], Change]] = {
    "mixtral": (Arch.LLAMA, head(8, 1e-5, 1e6) | ROUTED, converted_in_pairs),
    "qwen2": (Arch.QWEN2MOE, head(8, 1e-6), converted),
    "qwen3": (Arch.QWEN3MOE, head(8, 1e-6), converted),
    "olmoe": (Arch.OLMOE, head(4, 1e-5), converted),
    "granite": (
        Arch.GRANITE_MOE,
        head(8, 1e-6)
        | {
            "embedding_scale": 3.0,
            "residual_scale": 0.4,
            "attention.scale": 0.2,
            "logit_scale": 2.0,
        },
        converted_in_pairs,
    ),
    "glm4": (
        Arch.GLM4_MOE,
        head(8, 1e-5, rotated=4)
        | {
            "expert_count": 8,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
            "expert_gating_func": 2,
            "expert_weights_scale": 1.5,
            "expert_weights_norm": True,
            "leading_dense_block_count": 1,
        },
        converted,
    ),
    "gpt-oss": (
        Arch.GPT_OSS,
        head(8, 1e-5, 150000.0)
        | {
            "attention.sliding_window": 12,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16,
        },
        converted,
    ),
    "minimax": (
        Arch.MINIMAXM2,
        head(8, 1e-6, rotated=4) | {"expert_gating_func": 2},
        converted,
    ),
    "ernie": (Arch.ERNIE4_5_MOE, head(8, 1e-5, 5e5), converted),
}


@pytest.mark.parametrize("name", list(FILES))
def test_gguf(name: str, pool: RankPool, tmp_path: Path) -> None:
    reference = write_model(CONFIGS[name], tmp_path)
    architecture, metadata, change = FILES[name]
    path = write_gguf(
        tmp_path / "model.gguf",
        architecture,
        reference,
        ROUTED | metadata,
        change,
        experts_apart(reference.model),
    )
    check(pool, read_gguf(path)[0], reference)


def test_gpt_oss_as_it_was_published(pool: RankPool, tmp_path: Path) -> None:
    """Experts in blocks of 4-bit floats and their scales, as transformers' conversion of them."""
    sizes = LOCAL | {"intermediate_size": 32, "sliding_window": 12, "rope_parameters": YARN}
    reference = write_model(GptOssConfig(**sizes), tmp_path, prepare=rounded_to_mxfp4)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        rows = tensors.pop(name).transpose(1, 2)  # (experts, rows, columns)
        stored = gguf.quantize(rows.numpy(), gguf.GGMLQuantizationType.MXFP4)
        blocks = torch.from_numpy(stored).view(*rows.shape[:2], -1, 17)
        codes = torch.cat((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), -1)
        tensors[name + "_blocks"] = codes[..., ::2] | codes[..., 1::2] << 4
        tensors[name + "_scales"] = blocks[..., 0].clone()
    save_file(tensors, path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = read_folder(tmp_path)
    assert spec.tensors["layers.0.experts_up"].format == "MXFP4"
    check(pool, spec, reference)


@torch.no_grad()
def rounded_to_mxfp4(model: PreTrainedModel) -> None:
    """Experts' matrices become numbers that 4-bit floats have."""
    kind = gguf.GGMLQuantizationType.MXFP4
    for name, parameter in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            rows = parameter.transpose(1, 2).contiguous().numpy()
            known = gguf.dequantize(gguf.quantize(rows, kind), kind)
            parameter.copy_(torch.from_numpy(known).view(rows.shape).transpose(1, 2))


def test_experts_of_bytes_with_scales(pool: RankPool, tmp_path: Path) -> None:
    """Each expert's matrices apart, each in 8-bit floats with scales beside it."""
    reference = write_model(CONFIGS["qwen3"], tmp_path, prepare=rounded_to_bytes)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for name in [n for n in tensors if ".experts." in n]:
        codes, scale = in_bytes(tensors[name])
        tensors[name], tensors[name + "_scale_inv"] = codes, scale.view(1, 1)
    save_file(tensors, path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = read_folder(tmp_path)
    assert len(spec.tensors["layers.2.experts_down"].stack) == QWEN["num_experts"]
    check(pool, spec, reference)


def in_bytes(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and the one scale of a matrix."""
    scale = matrix.abs().max() / 448.0
    return (matrix / scale).to(torch.float8_e4m3fn), scale


@torch.no_grad()
def rounded_to_bytes(model: PreTrainedModel) -> None:
    """Gate, up and down of every expert become what codes and a scale make of them."""
    for name, parameter in model.named_parameters():
        if ".experts." not in name:
            continue
        for expert in parameter:
            for matrix in expert.chunk(2) if "gate_up" in name else (expert,):
                codes, scale = in_bytes(matrix)
                matrix.copy_(codes.float() * scale)


def test_what_predicts_further_tokens_is_left_out(pool: RankPool, tmp_path: Path) -> None:
    reference = write_model(CONFIGS["ernie"], tmp_path)
    path = tmp_path / "model.safetensors"
    extra = {"model.mtp_block.0.mlp.down_proj.weight": torch.ones((4, 4))}
    save_file(load_file(path) | extra, path)
    spec = read_folder(tmp_path)
    assert spec.left_out == ("its multi-token prediction is not loaded",)
    check(pool, spec, reference, ("single",))
