"""What files of compressed attention say of scores, and of the choice of experts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from local_tp.checkpoint.config_shape import shape_from_config
from local_tp.checkpoint.config_traits import config_traits
from local_tp.checkpoint.families import folder_family, gguf_family
from local_tp.checkpoint.fields import Fields
from local_tp.checkpoint.gguf_traits import gguf_traits
from local_tp.checkpoint.shapes import Shape
from local_tp.errors import CheckpointError
from local_tp.traits import Router, Traits

# As published, without what plays no part here.
V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "attention_bias": False,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129280,
}
LITE: dict[str, Any] = V3 | {
    "model_type": "deepseek_v2",
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "rope_scaling": V3["rope_scaling"] | {"mscale": 0.707, "mscale_all_dim": 0.707},
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "topk_group": 1,
    "topk_method": "greedy",
}
HEADS = Shape(
    layers=2, hidden=64, heads=4, head_dim=192, vocab=64, context=4096, kv_rank=512, nope_dim=128,
    rope_dim=64, value_dim=128,
)  # fmt: skip
FILE: dict[str, Any] = {
    "general.architecture": "deepseek2",
    "deepseek2.attention.layer_norm_rms_epsilon": 1e-6,
    "deepseek2.rope.dimension_count": 64,
    "deepseek2.rope.scaling.type": "yarn",
    "deepseek2.rope.scaling.factor": 40.0,
    "deepseek2.rope.scaling.original_context_length": 4096,
    "deepseek2.rope.scaling.yarn_log_multiplier": 0.1,
    "deepseek2.expert_count": 256,
    "deepseek2.expert_used_count": 8,
    "deepseek2.expert_group_count": 8,
    "deepseek2.expert_group_used_count": 4,
    "deepseek2.expert_gating_func": 2,
    "deepseek2.expert_weights_norm": True,
    "deepseek2.expert_weights_scale": 2.5,
}
V3_ROUTER = Router("sigmoid", True, 2.5, 8, 4, True)


def of_config(config: dict[str, Any]) -> Traits:
    shape, _ = shape_from_config(config, "config.json")
    family = folder_family("config.json", config["model_type"])
    return config_traits(Fields("config.json", config), family, shape)


def of_file(metadata: dict[str, Any]) -> Traits:
    family = gguf_family("m.gguf", metadata["general.architecture"])
    return gguf_traits(Fields("m.gguf", metadata), "deepseek2", family, HEADS)


def sharpened(weight: float) -> float:
    """The scale of scores of heads with 192 elements, 40 times the context."""
    return float((0.1 * weight * math.log(40) + 1) ** 2 / 192**0.5)


@pytest.mark.parametrize("traits", [of_config(V3), of_file(FILE)])
def test_deepseek_3(traits: Traits) -> None:
    assert traits.attention_scale == pytest.approx(0.13523, rel=1e-4)
    assert traits.attention_scale == pytest.approx(sharpened(1.0))
    (rope,) = traits.ropes
    assert rope.size == 64
    assert rope.scaling is not None
    assert (rope.scaling.kind, rope.scaling.factor, rope.scaling.attention) == ("yarn", 40.0, 1.0)
    assert rope.scaling.original_context == 4096
    assert traits.router == V3_ROUTER


def test_deepseek_2_lite() -> None:
    traits = of_config(LITE)
    assert traits.attention_scale == pytest.approx(sharpened(0.707))
    assert traits.ropes[0].scaling is not None
    assert traits.ropes[0].scaling.attention == pytest.approx(1.0)
    assert traits.router == Router("softmax", normalize=False)


def test_groups_count_only_where_the_method_has_them() -> None:
    grouped = {"n_group": 8, "topk_group": 3}
    assert of_config(LITE | grouped).router.groups == 1
    router = of_config(LITE | grouped | {"topk_method": "group_limited_greedy"}).router
    assert (router.groups, router.chosen_groups, router.pairs) == (8, 3, False)


def test_other_parts_of_yarn() -> None:
    """Turned elements count for more where `mscale` outweighs what is meant for all."""
    stated = V3["rope_scaling"] | {"mscale": 0.9, "mscale_all_dim": 0.5}
    traits = of_config(V3 | {"rope_scaling": stated})
    assert traits.attention_scale == pytest.approx(sharpened(0.5))
    assert traits.ropes[0].scaling is not None
    expected = (0.09 * math.log(40) + 1) / (0.05 * math.log(40) + 1)
    assert traits.ropes[0].scaling.attention == pytest.approx(expected)
    plain = of_config(V3 | {"rope_scaling": None})
    assert plain.attention_scale == pytest.approx(192**-0.5)


@pytest.mark.parametrize(
    ("normed", "score"), [(True, "sigmoid"), (False, "softmax"), (None, "softmax")]
)
def test_a_file_that_does_not_say_how_it_scores(normed: bool | None, score: str) -> None:
    for silent in (None, 0):
        said = {"deepseek2.expert_gating_func": silent, "deepseek2.expert_weights_norm": normed}
        assert of_file(FILE | said).router.score == score


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_group": 7}, "n_group = 7, and a number of equal groups of 256 experts"),
        ({"n_group": 256}, "n_group = 256, and a number of equal groups"),
        ({"n_group": None}, "does not say n_group"),
        ({"n_group": 10**12}, "n_group"),
        ({"topk_group": 9}, "topk_group = 9, and so many of 8 groups as have 8"),
        ({"topk_group": 0}, "topk_group"),
        ({"num_experts_per_tok": 200}, "topk_group = 4, and so many of 8 groups as have 200"),
        ({"routed_scaling_factor": -1}, "routed_scaling_factor = -1"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax', and 'sigmoid'"),
        ({"topk_method": "moon"}, "topk_method = 'moon', and 'noaux_tc'"),
        ({"attention_bias": True}, "attention_bias = True, and false"),
        ({"rope_interleave": False}, "rope_interleave = False, and true"),
        ({"qk_rope_head_dim": 63}, "qk_rope_head_dim = 63, and an even number"),
        ({"qk_rope_head_dim": 2**40}, "qk_rope_head_dim"),
        ({"qk_nope_head_dim": None}, "does not say qk_nope_head_dim"),
        ({"v_head_dim": 0}, "v_head_dim = 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5, and 1"),
        ({"rope_scaling": {"type": "yarn", "factor": 4, "mscale_all_dim": "x"}}, "mscale_all_dim"),
    ],
)
def test_foreign_values_in_a_config_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        of_config(V3 | changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topk_method": "gready"}, "topk_method = 'gready', and 'greedy'"),
        ({"norm_topk_prob": True}, "norm_topk_prob = True, and false"),
        ({"scoring_func": "sigmoid"}, "scoring_func = 'sigmoid', and 'softmax'"),
    ],
)
def test_foreign_choices_of_deepseek_2_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        of_config(LITE | changes)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expert_gating_func": 3}, "expert_gating_func = 3, and 1 (softmax) or 2 (sigmoid)"),
        ({"expert_group_count": 7}, "expert_group_count = 7, and a number of equal groups"),
        ({"expert_group_used_count": 99}, "expert_group_used_count = 99"),
        ({"attention.temperature_scale": 0.1}, "scales compressed queries by their place"),
        ({"rope.scaling.yarn_log_multiplier": -1.0}, "yarn_log_multiplier = -1.0"),
    ],
)
def test_foreign_values_in_a_file_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        of_file(FILE | {f"deepseek2.{key}": value for key, value in changes.items()})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
