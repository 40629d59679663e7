"""Families with gated delta nets, from folders and GGUF files, give transformers' logits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import gguf
import pytest
import torch
from family_checks import check
from family_gguf import write_gguf
from family_models import SIZES, Reference, write_model
from family_pool import RankPool
from family_splits import EVERY
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3NextConfig

from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.errors import CheckpointError

KEYS, VALUES, SIZE = 4, 12, 8  # three value heads a key head, unlike four query heads a KV head
DELTA = {
    "linear_num_key_heads": KEYS,
    "linear_num_value_heads": VALUES,
    "linear_key_head_dim": SIZE,
    "linear_value_head_dim": SIZE,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
}
EXPERTS = {
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
BY_VALUE_HEAD = ("in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")
GGUF = {
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.key_length": SIZES["head_dim"],
    "attention.value_length": SIZES["head_dim"],
    "rope.freq_base": 10000.0,
    "rope.dimension_count": SIZES["head_dim"] // 4,
    "ssm.conv_kernel": 4,
    "ssm.state_size": SIZE,
    "ssm.group_count": KEYS,
    "ssm.time_step_rank": VALUES,
    "ssm.inner_size": VALUES * SIZE,
    "full_attention_interval": 3,
}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    config = Qwen3_5TextConfig(**SIZES, **DELTA)
    return write_model(config, tmp_path_factory.mktemp("qwen3_5"))


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """qwen3_next keeps queries, keys, values and gates key head by key head."""
    config = Qwen3NextConfig(**SIZES, **DELTA, **EXPERTS)
    return write_model(config, tmp_path_factory.mktemp("qwen3_next"))


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    config = Qwen3_5MoeTextConfig(**SIZES, **DELTA, **EXPERTS)
    return write_model(config, tmp_path_factory.mktemp("qwen3_5_moe"))


def stacked(reference: Reference) -> dict[str, Tensor]:
    """Experts by their GGUF names, gate and up of each one above the other."""
    names = {"gate_up_proj": "ffn_gate_up_exps", "down_proj": "ffn_down_exps"}
    return {
        f"blk.{name.split('.')[2]}.{names[name.rpartition('.')[2]]}.weight": tensor
        for name, tensor in reference.model.state_dict().items()
        if ".experts." in name
    }


def as_converted(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What llama.cpp's converter does to every hybrid; experts come from `stacked`."""
    if ".experts." in name:
        return
    if name.endswith("A_log"):
        tensor = -tensor.exp()
    elif name.endswith("dt_bias"):
        name = name.replace("dt_bias", "dt_proj.bias")
    elif name.endswith("conv1d.weight"):
        tensor = tensor.squeeze(1)
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        tensor = tensor + 1
    yield name, tensor


def tiled(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    """qwen3_5's: one value head of each key head, then another of each."""

    def turned(values: Tensor) -> Tensor:
        heads = values.reshape(KEYS, VALUES // KEYS, -1, *values.shape[1:])
        return heads.transpose(0, 1).reshape(values.shape)

    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        keys, values = tensor.split([2 * KEYS * SIZE, VALUES * SIZE])
        tensor = torch.cat((keys, turned(values)))
    elif name.endswith(BY_VALUE_HEAD):
        tensor = turned(tensor)
    elif name.endswith("linear_attn.out_proj.weight"):
        tensor = turned(tensor.T.contiguous()).T
    return as_converted(name, tensor)


def ungrouped(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    """qwen3_next's: queries, keys and values of all heads, and apart from them the gates."""
    if not name.endswith("in_proj_qkvz.weight"):
        return as_converted(name, tensor)
    each = VALUES // KEYS * SIZE
    parts = tensor.view(KEYS, -1, tensor.shape[1]).split([SIZE, SIZE, each, each], 1)
    query, key, value, gate = (part.flatten(0, 1) for part in parts)
    return (
        (name.replace("in_proj_qkvz", "in_proj_qkv"), torch.cat((query, key, value))),
        (name.replace("in_proj_qkvz", "in_proj_z"), gate),
    )


def test_delta_nets_in_every_split(pool: RankPool, dense: Reference) -> None:
    check(pool, read_folder(dense.folder), dense, EVERY)


def test_rows_grouped_by_key_head(pool: RankPool, grouped: Reference) -> None:
    check(pool, read_folder(grouped.folder), grouped)


def test_value_heads_tiled_over_key_heads(pool: RankPool, dense: Reference, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", gguf.MODEL_ARCH.QWEN35, dense, GGUF, tiled)
    spec, _ = read_gguf(path)
    assert spec.traits.values_tiled
    check(pool, spec, dense, ("single", "tensor 2", "tensor 3", "tensor 5"))


def test_a_gguf_of_the_grouped_family(pool: RankPool, grouped: Reference, tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        gguf.MODEL_ARCH.QWEN3NEXT,
        grouped,
        GGUF | {"expert_count": 7, "expert_used_count": 3},
        ungrouped,
        stacked(grouped),
    )
    spec, _ = read_gguf(path)
    assert not spec.traits.values_tiled
    check(pool, spec, grouped)


def test_delta_nets_beside_experts(pool: RankPool, experts: Reference) -> None:
    check(pool, read_folder(experts.folder), experts, ("single", "tensor 3", "hybrid"))


def test_tiled_value_heads_beside_experts(
    pool: RankPool, experts: Reference, tmp_path: Path
) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        gguf.MODEL_ARCH.QWEN35MOE,
        experts,
        GGUF | {"expert_count": 7, "expert_used_count": 3},
        tiled,
        stacked(experts),
    )
    check(pool, read_gguf(path)[0], experts)


# ------------------------------------------------------------------- parts and odd values


def test_parts_that_text_does_not_need_are_named(dense: Reference, tmp_path: Path) -> None:
    """A released checkpoint: the text part under a longer name, a vision part, a predictor."""
    stored = load_file(dense.folder / "model.safetensors")
    longer = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in stored.items()
    }
    other = {
        "model.visual.patch_embed.proj.weight": torch.ones(2, 3),
        "mtp.fc.weight": torch.ones(2),
    }
    save_file(longer | other, tmp_path / "model.safetensors")
    text = json.loads((dense.folder / "config.json").read_text())
    whole = {"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 27}}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    spec = read_folder(tmp_path)
    assert spec.left_out == (
        "its multi-token prediction is not loaded",
        "its vision part is not loaded",
    )
    alone = read_folder(dense.folder)
    assert spec.traits == alone.traits
    assert spec.kinds == alone.kinds
    assert {n: i.shape for n, i in spec.tensors.items()} == {
        n: i.shape for n, i in alone.tensors.items()
    }


def test_a_predictor_behind_the_layers_of_a_gguf_is_named(dense: Reference, tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        gguf.MODEL_ARCH.QWEN35,
        dense,
        GGUF | {"block_count": 4, "nextn_predict_layers": 1},
        tiled,
        {"blk.3.attn_norm.weight": torch.ones(32), "blk.3.nextn.eh_proj.weight": torch.ones(2, 2)},
    )
    spec, _ = read_gguf(path)
    assert spec.left_out == ("its multi-token prediction is not loaded",)
    assert spec.dimensions.layers == 3
    assert not any(name.startswith("layers.3") for name in spec.tensors)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("linear_num_value_heads", 10, "a multiple of 4, the key heads"),
        ("linear_num_key_heads", 0, "an integer of 1 or more"),
        ("linear_num_key_heads", 1 << 25, "at most 1,048,576"),
        ("linear_value_head_dim", 16, "8, as linear_key_head_dim"),
        ("linear_conv_kernel_dim", 65, "at most 64"),
        ("layer_types", ["linear_attention"] * 2, "layer_types"),
        ("attn_output_gate", False, "true"),
        ("hidden_act", "gelu", "'silu'"),
        ("partial_rotary_factor", 0.1, "rope_parameters|partial_rotary_factor"),
        ("linear_num_value_heads", 8, "the model's dimensions call for"),
    ],
)
def test_values_that_no_such_model_has_are_refused(
    dense: Reference, tmp_path: Path, key: str, value: object, said: str
) -> None:
    config = json.loads((dense.folder / "config.json").read_text())
    inner = config["rope_parameters"] if key == "partial_rotary_factor" else config
    inner[key] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(dense.folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=said) as refused:
        read_folder(tmp_path)
    assert "\n" not in str(refused.value)
