"""A config.json alone gives the model that transformers would build from it; others are refused."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from local_tp.checkpoint.config_shape import _KINDS, shape_from_config, spec_from_config
from local_tp.checkpoint.known_models import known_model
from local_tp.checkpoint.shapes import parameter_count
from local_tp.errors import CheckpointError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
DELTA = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 256,
    "num_experts_per_tok": 8,
}
GEMMA = {
    "model_type": "gemma4_text",
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_global_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "vocab_size": 262144,
    "max_position_embeddings": 262144,
    "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
    "enable_moe_block": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
}

# Types without a language model of their own, or whose default config cannot be built or planned.
ELSEWHERE = {"mistral3", "ministral", "gemma4_text"}
NAMED = {f"{name}_text" if f"{name}_text" in CONFIG_MAPPING else name for name in _KINDS}
ORACLES = sorted(name for name in NAMED - ELSEWHERE if name in CONFIG_MAPPING)


@pytest.mark.parametrize("name", ORACLES)
def test_as_many_parameters_as_transformers_builds(name: str) -> None:
    config = CONFIG_MAPPING[name](num_hidden_layers=4)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    expected = sum(parameter.numel() for parameter in built.parameters())
    values = config.to_dict()
    if values.get("num_experts_per_tok", 1) is None:  # one family's default leaves it open
        values["num_experts_per_tok"] = 2
    found = parameter_count(spec_from_config(values, name, "BF16"))
    assert found == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "Llama 3 8B"),
        ({"model_type": "qwen3_5_moe", "text_config": DELTA}, "Qwen3.5 35B-A3B"),
        ({"model_type": "gemma4", "text_config": GEMMA}, "Gemma 4 26B-A4B"),
    ],
)
def test_a_config_gives_what_the_table_has(config: dict[str, Any], name: str) -> None:
    found, known = spec_from_config(config, "config.json", "Q4_K_M"), known_model(name, "Q4_K_M")
    assert found.path == ""
    assert found.dimensions == known.dimensions
    assert found.tensors == known.tensors
    assert [kind[:2] for kind in found.kinds] == [kind[:2] for kind in known.kinds]


@pytest.mark.parametrize(
    ("quantization", "stored"),
    [
        (None, "BF16"),
        ({"quant_method": "fp8"}, "FP8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "INT4-G128"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "INT4-G32"),
    ],
)
def test_the_format_that_the_config_states(quantization: object, stored: str) -> None:
    spec = spec_from_config(LLAMA | {"quantization_config": quantization}, "x", "default")
    assert spec.tensors["layers.3.up"].format == stored


def refusal(changes: dict[str, Any], base: dict[str, Any] = LLAMA) -> str:
    with pytest.raises(CheckpointError) as caught:
        spec_from_config(base | changes, "config.json", "Q4_K_M")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_family_is_refused_by_name() -> None:
    said = refusal({"model_type": "mamba2"})
    assert "'mamba2', whose layers are not known here" in said
    assert "qwen3_moe" in said


@pytest.mark.parametrize(
    ("changes", "base", "said"),
    [
        ({"num_hidden_layers": 10**9}, LLAMA, "num_hidden_layers = 1000000000, and at most 1,024"),
        ({"hidden_size": 2**30}, LLAMA, "hidden_size"),
        ({"hidden_size": -1}, LLAMA, "hidden_size = -1"),
        ({"hidden_size": "4096"}, LLAMA, "hidden_size = '4096'"),
        ({"hidden_size": None}, LLAMA, "does not say hidden_size"),
        ({"vocab_size": 2**30}, LLAMA, "vocab_size"),
        ({"num_key_value_heads": 5}, LLAMA, "32 query heads over 5 KV heads"),
        ({"num_experts": 10**8}, DELTA, "num_experts"),
        ({"num_experts_per_tok": 300}, DELTA, "a token meets 300 of 256 experts"),
        ({"moe_intermediate_size": None}, DELTA, "experts of 0 columns"),
        ({"intermediate_size": None}, LLAMA, "does not say intermediate_size"),
        ({"linear_value_head_dim": 64}, DELTA, "linear_value_head_dim"),
        ({"linear_conv_kernel_dim": 10**6}, DELTA, "linear_conv_kernel_dim"),
        ({"mlp_only_layers": [999]}, DELTA, "mlp_only_layers"),
        ({"layer_types": ["full_attention"]}, GEMMA, "layer_types"),
        ({"layer_types": ["moon"] * 30}, GEMMA, "layer_types"),
        ({"num_global_key_value_heads": 3}, GEMMA, "3 KV heads of full layers"),
        ({"hidden_size_per_layer_input": 256}, GEMMA, "an embedding for each layer"),
        ({"num_kv_shared_layers": 10}, GEMMA, "layers that use the keys and values of others"),
        ({"text_config": 7}, LLAMA, "text_config = 7"),
    ],
)
def test_hostile_and_foreign_values_are_refused(
    changes: dict[str, Any], base: dict[str, Any], said: str
) -> None:
    assert said in refusal(changes, base)


values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 70), st.integers(), st.floats(), st.text(max_size=3),
    st.lists(st.integers(-1, 9), max_size=3), st.dictionaries(st.text(max_size=2), st.integers()),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([LLAMA, DELTA, GEMMA]), st.data())
def test_any_value_gives_a_model_or_a_refusal(base: dict[str, Any], data: st.DataObject) -> None:
    small = {"num_hidden_layers": 6, "layer_types": None}
    keys = st.sampled_from(sorted(base))
    changes = data.draw(st.dictionaries(keys, values, max_size=3))
    try:
        shape, _ = shape_from_config(base | small | changes, "config.json")
        spec = spec_from_config(base | small | changes, "config.json", "Q4_K_M")
    except CheckpointError:
        return
    assert spec.dimensions.layers == shape.layers <= 1024
    assert all(prod(info.shape) > 0 for info in spec.tensors.values())
