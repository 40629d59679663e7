"""Experts stored apart become one tensor, and what would make another model is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from local_tp.checkpoint.config_shape import shape_from_config
from local_tp.checkpoint.config_traits import config_traits
from local_tp.checkpoint.expert_tensors import gathered
from local_tp.checkpoint.families import Naming, folder_family, gguf_family
from local_tp.checkpoint.fields import Fields
from local_tp.core import TensorInfo
from local_tp.errors import CheckpointError
from local_tp.tensors import Packing
from local_tp.traits import Traits

NAMING = Naming({}, transposed=("model.layers.{i}.mlp.experts.down_proj",))
START = "model.layers.7.mlp.experts."
EXPERT = TensorInfo((6, 4), "BF16", 48, "a.safetensors", 0)


def experts(*numbers: int, **changes: Any) -> dict[str, TensorInfo]:
    return {
        f"{START}{n}.up_proj.weight": replace(EXPERT, offset=100 * n, **changes) for n in numbers
    }


def test_experts_follow_one_another_by_number() -> None:
    other = {"model.norm.weight": TensorInfo((4,), "F32", 16, "a.safetensors", 5000)}
    found = gathered("here", NAMING, experts(*reversed(range(12))) | other)
    assert set(found) == {START + "up_proj.weight", "model.norm.weight"}
    stack = found[START + "up_proj.weight"]
    assert (stack.shape, stack.format, stack.nbytes) == ((72, 4), "BF16", 12 * 48)
    assert [member.offset for member in stack.stack] == [100 * n for n in range(12)]
    assert (stack.file, stack.offset) == ("a.safetensors", 0)


def test_a_stack_is_without_order_where_any_of_its_members_is() -> None:
    plain, ordered = Packing("gptq", (1, 4)), Packing("gptq", (1, 4), ordered=True)
    mixed = experts(0, 2, packing=plain) | experts(1, packing=ordered)
    assert gathered("here", NAMING, mixed)[START + "up_proj.weight"].ordered
    alike = experts(0, 1, packing=plain)
    assert not gathered("here", NAMING, alike)[START + "up_proj.weight"].ordered


def test_matrices_the_other_way_round_know_it() -> None:
    stored = TensorInfo((5, 8, 3), "BF16", 240, "a", 64)
    found = gathered("here", NAMING, {START + "down_proj": stored})[START + "down_proj"]
    assert found.shape == (15, 8)
    assert found.columns_of == replace(stored, shape=(40, 3))
    coded = replace(stored, shape=(15, 32), packing=Packing("mxfp4", (1, 32)))
    assert gathered("here", NAMING, {START + "down_proj": coded})[START + "down_proj"] == coded


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (experts(0, 1, 3), "has no tensor of expert 2 for 'model.layers.7.mlp.experts.up_proj"),
        (experts(1, 2), "has no tensor of expert 0"),
        (experts(0) | experts(1, shape=(6, 5)), "as BF16 (6, 4) and as BF16 (6, 5)"),
        (experts(0) | experts(1, format="F32"), "as BF16 (6, 4) and as F32 (6, 4)"),
        (experts(0) | {START + "up_proj.weight": EXPERT}, "whole and expert by expert"),
    ],
)
def test_experts_that_do_not_belong_together_are_refused(
    stored: Mapping[str, TensorInfo], said: str
) -> None:
    with pytest.raises(CheckpointError) as refused:
        gathered("here", NAMING, stored)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


CONFIG: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 96,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32, "moe_intermediate_size": 32,
    "num_local_experts": 8, "num_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_num_experts": 8, "moe_k": 2,
}  # fmt: skip


def traits_of(family: str, **changes: object) -> Traits:
    config = CONFIG | {"model_type": family} | changes
    shape, _ = shape_from_config(config, "config.json")
    return config_traits(Fields("config.json", config), folder_family("config.json", family), shape)


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("glm4_moe", {"n_group": 3}, "n_group = 3"),
        ("glm4_moe", {"n_group": 8}, "n_group = 8"),
        ("glm4_moe", {"n_group": 2, "topk_group": 3}, "topk_group = 3"),
        ("glm4_moe", {"n_group": 4, "num_experts_per_tok": 3}, "topk_group"),
        ("glm4_moe", {"routed_scaling_factor": -1}, "routed_scaling_factor = -1"),
        ("qwen3_moe", {"norm_topk_prob": "yes"}, "norm_topk_prob = 'yes'"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv = 8.0"),
        ("gpt_oss", {"swiglu_limit": 10.0}, "swiglu_limit = 10.0"),
        ("gpt_oss", {"swiglu_alpha": 1.0}, "swiglu_alpha = 1.0"),
        ("minimax_m2", {"rotary_dim": 32}, "rotary_dim = 32"),
        ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
        ("minimax_m2", {"shared_intermediate_size": 64}, "shared_intermediate_size = 64"),
        ("ernie4_5_moe", {"use_bias": True}, "use_bias = True"),
        ("ernie4_5_moe", {"moe_layer_end_index": 2}, "moe_layer_end_index = 2"),
        ("ernie4_5_moe", {"moe_layer_interval": 2}, "moe_layer_interval = 2"),
    ],
)
def test_values_of_another_model_are_refused(
    family: str, changes: dict[str, object], said: str
) -> None:
    traits_of(family)
    with pytest.raises(CheckpointError) as refused:
        traits_of(family, **changes)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_rotated_part_may_be_stated_in_elements() -> None:
    assert traits_of("minimax_m2", rotary_dim=8).ropes[0].size == 8
    assert traits_of("minimax_m2", rotary_dim=16).ropes[0].size == 0


@pytest.mark.parametrize(
    ("architecture", "said", "refused"),
    [
        ("qwen2moe", (0, 1), 2),
        ("qwen3moe", (0, 1), 2),
        ("olmoe", (0, 1), 3),
        ("granitemoe", (0, 1), 2),
        ("ernie4_5-moe", (0, 1), 2),
        ("gpt-oss", (0, 3), 1),
        ("minimax-m2", (0, 2), 1),
        ("glm4moe", (0, 2), 1),
    ],
)
def test_a_file_that_scores_otherwise_is_refused(
    architecture: str, said: tuple[int, ...], refused: int
) -> None:
    family, key = gguf_family("file", architecture), f"{architecture}.expert_gating_func"
    values = {
        "general.architecture": architecture,
        f"{architecture}.expert_count": 8,
        f"{architecture}.expert_used_count": 2,
    }
    for number in said:
        family.adjust_gguf(Traits(), Fields("file", values | {key: number}))
    with pytest.raises(CheckpointError, match=rf"{key} = {refused}, and "):
        family.adjust_gguf(Traits(), Fields("file", values | {key: refused}))
