"""Families with multi-head latent attention: keys and values of all heads in one compressed row."""

from __future__ import annotations

import math
from dataclasses import replace

from local_tp.checkpoint.families.expert_names import (
    FOLDER_GROUPED,
    FOLDER_STACKED,
    GGUF_EXPERTS,
    GGUF_EXPERTS_FUSED,
    GGUF_GROUPED,
    folder_experts,
)
from local_tp.checkpoint.families.maths import yarn_attention
from local_tp.checkpoint.families.names import FOLDER_NAMES, GGUF_NAMES, INV_FREQ
from local_tp.checkpoint.families.routers import CONFIG, GGUF, Keys, Score, grouped_router
from local_tp.checkpoint.families.row import EVERY, SOME, Family, Naming
from local_tp.checkpoint.fields import Fields
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError
from local_tp.traits import Router, Traits

_ATTENTION = "model.layers.{i}.self_attn."
_UP = ("layers.{i}.k_up", "layers.{i}.v_up")
_QUERY = ("layers.{i}.q",)
_SCORES: dict[int, Score] = {1: "softmax", 2: "sigmoid"}  # by GGUF's numbers


def _heads(wanted: ModelSpec, _: str) -> int:
    return wanted.dimensions.query_heads


def _folder(correction: str = "") -> Naming:
    return Naming(
        FOLDER_NAMES
        | folder_experts(shared="mlp.shared_experts.", correction=correction)
        | {
            "layers.{i}.q_down": _ATTENTION + "q_a_proj.weight",
            "layers.{i}.q_down_norm": _ATTENTION + "q_a_layernorm.weight",
            "layers.{i}.kv_down": _ATTENTION + "kv_a_proj_with_mqa.weight",
            "layers.{i}.kv_down_norm": _ATTENTION + "kv_a_layernorm.weight",
        },
        fused=FOLDER_STACKED
        | {_ATTENTION + "q_b_proj.weight": _QUERY, _ATTENTION + "kv_b_proj.weight": _UP},
        grouped=FOLDER_GROUPED | {_ATTENTION + "kv_b_proj.weight": _heads},
        paired=True,
        unused=(INV_FREQ,),
    )


_FOLDER_CORRECTED = _folder("mlp.gate.e_score_correction_bias")
# The way up to keys and that to values are one tensor in older files; in newer ones they are apart,
# and that to keys lies as queries are multiplied with it.
_GGUF = Naming(
    GGUF_NAMES
    | GGUF_EXPERTS
    | {
        "layers.{i}.q_down": "blk.{i}.attn_q_a.weight",
        "layers.{i}.q_down_norm": "blk.{i}.attn_q_a_norm.weight",
        "layers.{i}.kv_down": "blk.{i}.attn_kv_a_mqa.weight",
        "layers.{i}.kv_down_norm": "blk.{i}.attn_kv_a_norm.weight",
        "layers.{i}.k_up": "blk.{i}.attn_k_b.weight",
        "layers.{i}.v_up": "blk.{i}.attn_v_b.weight",
    },
    fused=GGUF_EXPERTS_FUSED | {"blk.{i}.attn_q_b.weight": _QUERY, "blk.{i}.attn_kv_b.weight": _UP},
    grouped=GGUF_GROUPED | {"blk.{i}.attn_kv_b.weight": _heads},
    transposed=("blk.{i}.attn_k_b.weight",),
    paired=True,
)


# ---------------------------------------------------------------------------------- the maths


def _deepseek_v2(traits: Traits, config: Fields) -> Traits:
    """Softmax over all experts; groups are as good as their best expert."""
    if config.text("scoring_func") not in (None, "softmax"):
        raise config.wrong("scoring_func", "'softmax'")
    if config.flag("norm_topk_prob", default=False):
        raise config.wrong("norm_topk_prob", "false")
    method = config.text("topk_method") or "greedy"
    if method not in ("greedy", "group_limited_greedy"):
        raise config.wrong("topk_method", "'greedy' or 'group_limited_greedy'")
    grouped = method != "greedy"
    router = grouped_router(config, CONFIG, "softmax", normalize=False, grouped=grouped)
    return replace(_latent(traits, config), router=router)


def _deepseek_v3(traits: Traits, config: Fields) -> Traits:
    """What its readers take for different values where a config is silent has to be said."""
    for key in ("n_group", "topk_group", "routed_scaling_factor"):
        config.real(key)
    return _corrected(traits, config)


def _corrected(traits: Traits, config: Fields) -> Traits:
    """Sigmoids, corrected where they are compared."""
    if config.text("scoring_func") not in (None, "sigmoid"):
        raise config.wrong("scoring_func", "'sigmoid'")
    if config.text("topk_method") not in (None, "noaux_tc"):
        raise config.wrong("topk_method", "'noaux_tc'")
    normalize = config.flag("norm_topk_prob", default=True)
    router = grouped_router(config, CONFIG, "sigmoid", normalize=normalize)
    return replace(_latent(traits, config), router=router)


def _latent(traits: Traits, config: Fields) -> Traits:
    """The last elements of a head are turned; yarn may sharpen all scores besides."""
    for key, needed in (("attention_bias", False), ("rope_interleave", True)):
        if config.flag(key, default=needed) is not needed:
            raise config.wrong(key, str(needed).lower())
    plain, turned = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    rope, sharper = traits.ropes[0], 1.0
    if rope.size:
        raise config.wrong("partial_rotary_factor", "1")
    stated = config.inner("rope_parameters") or config.inner("rope_scaling")
    if stated is not None and rope.scaling is not None and stated.get("mscale_all_dim"):
        sharper = yarn_attention(rope.scaling.factor, stated.real("mscale_all_dim"))
    return replace(
        traits,
        ropes=(replace(rope, size=turned),),
        attention_scale=sharper**2 / math.sqrt(plain + turned),
    )


def _gguf(traits: Traits, metadata: Fields) -> Traits:
    """Of DeepSeek 2 and 3, and of all that are converted as if they were one of them."""
    prefix = f"{metadata.text('general.architecture')}."
    if metadata.get(prefix + "attention.temperature_scale") is not None:
        raise CheckpointError(
            f"{metadata.source} scales compressed queries by their place in the text, which is not "
            "supported yet: choose a model without attention.temperature_scale"
        )
    rope, sharper = traits.ropes[0], 1.0
    key = prefix + "rope.scaling.yarn_log_multiplier"
    if rope.scaling is not None and metadata.get(key) is not None:
        # A tenth of what the config has as mscale_all_dim, to which mscale is equal.
        sharper = yarn_attention(rope.scaling.factor, 10 * metadata.real(key))
        rope = replace(rope, scaling=replace(rope.scaling, attention=1.0))
    return replace(
        traits,
        ropes=(rope,),
        attention_scale=traits.attention_scale * sharper**2,
        router=_gguf_router(metadata, prefix),
    )


def _gguf_router(metadata: Fields, prefix: str) -> Router:
    """Files that do not say how they score are of a time when only sigmoids were normed."""
    if metadata.get(prefix + "expert_count") is None:
        return Router()
    normalize = metadata.flag(prefix + "expert_weights_norm", default=False)
    gating = prefix + "expert_gating_func"
    number = metadata.integer(gating, default=2 if normalize else 1, least=0)
    score = _SCORES.get(number or (2 if normalize else 1))
    if score is None:
        raise metadata.wrong(gating, " or ".join(f"{n} ({name})" for n, name in _SCORES.items()))
    return grouped_router(metadata, Keys(*(prefix + key for key in GGUF)), score, normalize)


LATENT = (
    Family(
        "deepseek_v2",
        ("deepseek_v2",),
        ("deepseek2",),
        _folder(),
        _GGUF,
        _deepseek_v2,
        _gguf,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "deepseek_v3",
        ("deepseek_v3", "kimi_k2"),
        (),
        _FOLDER_CORRECTED,
        _GGUF,
        _deepseek_v3,
        folder_checked=EVERY,
    ),
    Family(
        "glm4_moe_lite",
        ("glm4_moe_lite",),
        (),
        _FOLDER_CORRECTED,
        _GGUF,
        _corrected,
        folder_checked=SOME,
    ),
)
