"""Families that have gated delta nets in most layers and gated attention in the others."""

from __future__ import annotations

from dataclasses import replace

from local_tp.checkpoint.families.expert_names import (
    FOLDER_GROUPED,
    FOLDER_STACKED,
    GGUF_EXPERTS,
    GGUF_EXPERTS_FUSED,
    GGUF_GROUPED,
    folder_experts,
)
from local_tp.checkpoint.families.names import FOLDER_NAMES, GGUF_NAMES, INV_FREQ
from local_tp.checkpoint.families.row import EVERY, SOME, Family, Naming
from local_tp.checkpoint.fields import Fields
from local_tp.core import ModelSpec
from local_tp.traits import Router, Traits

_QKV = ("layers.{i}.mix_q", "layers.{i}.mix_k", "layers.{i}.mix_v")
_CONV = ("layers.{i}.mix_conv_q", "layers.{i}.mix_conv_k", "layers.{i}.mix_conv_v")
_GATES = ("layers.{i}.mix_beta", "layers.{i}.mix_alpha")


def _key_heads(wanted: ModelSpec, layer: str) -> int:
    at = f"layers.{layer}."
    return wanted.tensors[at + "mix_k"].shape[0] // wanted.tensors[at + "mix_norm"].shape[0]


_FOLDER = Naming(
    FOLDER_NAMES
    | folder_experts(shared="mlp.shared_expert.")
    | {
        "layers.{i}.shared_router": "model.layers.{i}.mlp.shared_expert_gate.weight",
        "layers.{i}.mix_z": "model.layers.{i}.linear_attn.in_proj_z.weight",
        "layers.{i}.mix_beta": "model.layers.{i}.linear_attn.in_proj_b.weight",
        "layers.{i}.mix_alpha": "model.layers.{i}.linear_attn.in_proj_a.weight",
        "layers.{i}.mix_decay": "model.layers.{i}.linear_attn.A_log",
        "layers.{i}.mix_step": "model.layers.{i}.linear_attn.dt_bias",
        "layers.{i}.mix_norm": "model.layers.{i}.linear_attn.norm.weight",
        "layers.{i}.mix_o": "model.layers.{i}.linear_attn.out_proj.weight",
    },
    fused=FOLDER_STACKED
    | {
        "model.layers.{i}.linear_attn.in_proj_qkv.weight": _QKV,
        "model.layers.{i}.linear_attn.in_proj_qkvz.weight": (*_QKV, "layers.{i}.mix_z"),
        "model.layers.{i}.linear_attn.in_proj_ba.weight": _GATES,
        "model.layers.{i}.linear_attn.conv1d.weight": _CONV,
    },
    grouped=FOLDER_GROUPED
    | {
        "model.layers.{i}.linear_attn.in_proj_qkvz.weight": _key_heads,
        "model.layers.{i}.linear_attn.in_proj_ba.weight": _key_heads,
    },
    shifted=True,
    unused=(INV_FREQ,),
)

_GGUF = Naming(
    GGUF_NAMES
    | GGUF_EXPERTS
    | {
        "layers.{i}.ffn_norm": "blk.{i}.post_attention_norm.weight",
        "layers.{i}.mix_z": "blk.{i}.attn_gate.weight",
        "layers.{i}.mix_beta": "blk.{i}.ssm_beta.weight",
        "layers.{i}.mix_alpha": "blk.{i}.ssm_alpha.weight",
        "layers.{i}.mix_decay": "blk.{i}.ssm_a",
        "layers.{i}.mix_step": "blk.{i}.ssm_dt.bias",
        "layers.{i}.mix_norm": "blk.{i}.ssm_norm.weight",
        "layers.{i}.mix_o": "blk.{i}.ssm_out.weight",
    },
    fused=GGUF_EXPERTS_FUSED
    | {
        "blk.{i}.attn_qkv.weight": _QKV,
        "blk.{i}.ssm_ba.weight": _GATES,
        "blk.{i}.ssm_conv1d.weight": _CONV,
    },
    grouped=GGUF_GROUPED | {"blk.{i}.ssm_ba.weight": _key_heads},
)


def _adjust(traits: Traits, config: Fields) -> Traits:
    if not config.flag("attn_output_gate", default=True):
        raise config.wrong("attn_output_gate", "true")
    router = Router(normalize=config.flag("norm_topk_prob", default=True))
    return replace(traits, router=router, query_gate=True, fade_logarithm=True)


def _adjust_gguf(traits: Traits, metadata: Fields) -> Traits:
    return replace(traits, query_gate=True)


HYBRID = tuple(
    Family(
        name,
        types,
        (architecture,),
        _FOLDER,
        _GGUF,
        _adjust,
        _adjust_gguf,
        rotated=0.25,
        activations={"silu": "silu"},  # which the convolution is followed by, too
        folder_checked=checked,
        gguf_checked="some splits",
    )
    for name, types, architecture, checked in (
        ("qwen3_next", ("qwen3_next",), "qwen3next", SOME),
        ("qwen3_5", ("qwen3_5", "qwen3_5_text"), "qwen35", EVERY),
        ("qwen3_5_moe", ("qwen3_5_moe", "qwen3_5_moe_text"), "qwen35moe", SOME),
    )
)
