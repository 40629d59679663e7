"""Families with compressed keys and values, as folders of transformers and as GGUF files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from family_checks import check
from family_gguf import Value, write_gguf
from family_models import SIZES, write_model
from family_pool import RankPool
from family_splits import EVERY, FEW
from safetensors.torch import load_file, save_file
from test_expert_families import converted, experts_apart
from torch import Tensor
from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    Glm4MoeLiteConfig,
    PretrainedConfig,
)

from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.errors import CheckpointError
from tests.quantized_folders import METHODS, write_quantized

Sizes = dict[str, Any]

LAYERS = SIZES["num_hidden_layers"]
LATENT: Sizes = {key: size for key, size in SIZES.items() if key != "head_dim"} | {
    "num_key_value_heads": SIZES["num_attention_heads"],
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
GROUPS: Sizes = {"n_group": 4, "topk_group": 2}
YARN: Sizes = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 0.9,
    "mscale_all_dim": 0.9,
}
IN_BLOCKS: Sizes = {
    "hidden_size": 128,
    "intermediate_size": 64,
    "kv_lora_rank": 128,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "v_head_dim": 40,
    "first_k_dense_replace": LAYERS,
}
WHOLE: Sizes = {"q_lora_rank": None}  # queries are not compressed

CONFIGS: dict[str, PretrainedConfig] = {
    "dense": DeepseekV2Config(**LATENT | {"first_k_dense_replace": LAYERS}),
    "lite": DeepseekV2Config(**LATENT | WHOLE, rope_parameters=YARN),
    "v2": DeepseekV2Config(**LATENT, **GROUPS, topk_method="group_limited_greedy"),
    "v3": DeepseekV3Config(**LATENT, **GROUPS, rope_parameters=YARN),
    "kimi": DeepseekV3Config(
        **LATENT, n_group=1, topk_group=1, rope_parameters=YARN | {"mscale": 0.7}
    ),
    "glm": Glm4MoeLiteConfig(**LATENT),
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_folder(name: str, pool: RankPool, tmp_path: Path) -> None:
    reference = write_model(CONFIGS[name], tmp_path)
    check(pool, read_folder(tmp_path), reference, EVERY if name in ("dense", "v3") else FEW)


def test_layers_that_predict_later_tokens_are_left_out(pool: RankPool, tmp_path: Path) -> None:
    reference = write_model(CONFIGS["kimi"], tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    behind = {
        name.replace(f".{LAYERS - 1}.", f".{LAYERS}.", 1): tensor.clone()
        for name, tensor in stored.items()
        if f"layers.{LAYERS - 1}." in name
    }
    behind[f"model.layers.{LAYERS}.eh_proj.weight"] = torch.ones(4, 4)
    save_file(stored | behind, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_nextn_predict_layers"] == 1
    spec = read_folder(tmp_path)
    assert spec.left_out == ("its multi-token prediction is not loaded",)
    check(pool, spec, reference, ("single",))
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 0}))
    with pytest.raises(CheckpointError, match=rf"'model.layers.{LAYERS}.*does not use"):
        read_folder(tmp_path)


@pytest.mark.parametrize("method", ["fp8-blocks", "awq-32", "gptq-4-act-order"])
def test_quantized(method: str, pool: RankPool, tmp_path: Path) -> None:
    """The ways up and the rotated rows of codes with scales; DeepSeek 3 is published in FP8."""
    config = DeepseekV3Config(**LATENT | GROUPS | IN_BLOCKS)
    reference = write_model(config, tmp_path / "plain")
    model = reference.model
    values = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    stated = json.loads((tmp_path / "plain" / "config.json").read_text())
    meant = write_quantized(tmp_path / "codes", METHODS[method], stated, values)
    model.load_state_dict({name: torch.tensor(value) for name, value in meant.items()})
    with torch.no_grad():
        logits = tuple(model(torch.tensor([text])).logits[0] for text in reference.texts)
    spec = read_folder(tmp_path / "codes")
    assert spec.tensors["layers.0.k_up"].packing is not None
    check(pool, spec, replace(reference, logits=logits))


# ------------------------------------------------------------------------------------- GGUF


def apart(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    """The ways up as newer converters write them: apart, keys' turned round head by head."""
    if not name.endswith("kv_b_proj.weight"):
        yield from converted(name, tensor)
        return
    plain, value = LATENT["qk_nope_head_dim"], LATENT["v_head_dim"]
    heads = tensor.view(LATENT["num_attention_heads"], plain + value, -1)
    yield name.replace("kv_b", "k_b"), heads[:, :plain].transpose(1, 2)
    yield name.replace("kv_b", "v_b"), heads[:, plain:]


COMMON: dict[str, Value] = {
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.kv_lora_rank": 16,
    "rope.dimension_count": 4,
    "leading_dense_block_count": 1,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_shared_count": 2,
    "expert_feed_forward_length": 24,
    "expert_weights_scale": 1.5,
}
OLDER = COMMON | {"attention.key_length": 10, "attention.value_length": 10}
NEWER = COMMON | {
    "attention.head_count_kv": 1,
    "attention.key_length": 20,
    "attention.value_length": 16,
    "attention.key_length_mla": 10,
    "attention.value_length_mla": 10,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
}
SCALED: dict[str, Value] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
    "rope.scaling.yarn_log_multiplier": 0.09,
}
IN_GROUPS: dict[str, Value] = {"expert_group_count": 4, "expert_group_used_count": 2}
FILES: dict[str, dict[str, Value]] = {
    "lite": OLDER | SCALED,
    "v2": OLDER | IN_GROUPS | {"attention.q_lora_rank": 24, "expert_gating_func": 1},
    "v3": NEWER | SCALED | IN_GROUPS,
    "glm": {key: value for key, value in NEWER.items() if key != "expert_gating_func"},
}


@pytest.mark.parametrize("name", list(FILES))
def test_gguf(name: str, pool: RankPool, tmp_path: Path) -> None:
    reference = write_model(CONFIGS[name], tmp_path)
    change = converted if FILES[name].items() >= OLDER.items() else apart
    path = write_gguf(
        tmp_path / "model.gguf",
        gguf.MODEL_ARCH.DEEPSEEK2,
        reference,
        FILES[name] | {"attention.layer_norm_rms_epsilon": reference.model.config.rms_norm_eps},
        change,
        experts_apart(reference.model),
    )
    check(pool, read_gguf(path)[0], reference)
