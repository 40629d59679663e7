"""Families whose layers have routed experts beside plain attention."""

from __future__ import annotations

from dataclasses import replace

from local_tp.checkpoint.families import maths
from local_tp.checkpoint.families.expert_names import (
    FOLDER_GROUPED,
    FOLDER_STACKED,
    GATE_UP,
    GGUF_EXPERTS,
    GGUF_EXPERTS_FUSED,
    GGUF_GROUPED,
    each_expert,
    each_row,
    folder_experts,
)
from local_tp.checkpoint.families.names import FOLDER, FOLDER_NAMES, GGUF_NAMES
from local_tp.checkpoint.families.routers import CONFIG, GGUF, Keys, grouped_router
from local_tp.checkpoint.families.row import EVERY, SOME, Family, Naming
from local_tp.checkpoint.fields import Fields
from local_tp.traits import Router, Traits

_LAYER = "model.layers.{i}."
_SHARED_ROUTER = {"layers.{i}.shared_router": _LAYER + "mlp.shared_expert_gate.weight"}
_BLOCK = "block_sparse_moe."
_MIXTRAL_ROLES = ("w1", "w3", "w2")
_MINIMAX = {"scoring_func": "sigmoid", "shared_intermediate_size": 0, "qk_norm_type": "per_layer"}
_BIASES = ("layers.{i}.experts_gate_bias", "layers.{i}.experts_up_bias")


def _folder(names: dict[str, str]) -> Naming:
    return replace(
        FOLDER,
        names=FOLDER_NAMES | names,
        fused=FOLDER_STACKED,
        grouped=FOLDER_GROUPED,
    )


_GGUF_NAMES = GGUF_NAMES | GGUF_EXPERTS
_GGUF = Naming(_GGUF_NAMES, fused=GGUF_EXPERTS_FUSED, grouped=GGUF_GROUPED)
# Where attention's norm is followed by that of the experts' inputs under another's name.
_GGUF_POST_NAMES = _GGUF_NAMES | {"layers.{i}.ffn_norm": "blk.{i}.post_attention_norm.weight"}
_GGUF_POST = replace(_GGUF, names=_GGUF_POST_NAMES)
_GPT_OSS = replace(
    FOLDER,
    names=FOLDER_NAMES
    | {
        "layers.{i}.o_bias": _LAYER + "self_attn.o_proj.bias",
        "layers.{i}.sinks": _LAYER + "self_attn.sinks",
        "layers.{i}.router": _LAYER + "mlp.router.weight",
        "layers.{i}.router_bias": _LAYER + "mlp.router.bias",
        "layers.{i}.experts_down": _LAYER + "mlp.experts.down_proj",
        "layers.{i}.experts_down_bias": _LAYER + "mlp.experts.down_proj_bias",
    },
    fused={
        _LAYER + "mlp.experts.gate_up_proj": GATE_UP,
        _LAYER + "mlp.experts.gate_up_proj_bias": _BIASES,
    },
    grouped={
        _LAYER + "mlp.experts.gate_up_proj": each_row,
        _LAYER + "mlp.experts.gate_up_proj_bias": each_row,
    },
    transposed=(_LAYER + "mlp.experts.gate_up_proj", _LAYER + "mlp.experts.down_proj"),
)
_GPT_OSS_GGUF = replace(
    _GGUF,
    names=_GGUF_POST_NAMES
    | {
        "layers.{i}.o_bias": "blk.{i}.attn_output.bias",
        "layers.{i}.sinks": "blk.{i}.attn_sinks.weight",
    },
)
_GRANITE = replace(
    FOLDER,
    names=FOLDER_NAMES
    | {
        "layers.{i}.router": _LAYER + _BLOCK + "router.layer.weight",
        "layers.{i}.experts_down": _LAYER + _BLOCK + "output_linear.weight",
    },
    fused={_LAYER + _BLOCK + "input_linear.weight": GATE_UP},
    grouped={_LAYER + _BLOCK + "input_linear.weight": each_expert},
)


# ---------------------------------------------------------------------------------- the maths


def _stated_norm(traits: Traits, config: Fields) -> Traits:
    """Qwen's and OLMo's weights add up to one only where the config says so."""
    normalize = config.flag("norm_topk_prob", default=False)
    return replace(traits, router=Router(normalize=normalize))


def _olmoe(traits: Traits, config: Fields) -> Traits:
    if config.get("clip_qkv") is not None:
        raise config.wrong("clip_qkv", "null (clipped queries, keys and values)")
    return _stated_norm(traits, config)


def _gguf_softmax(traits: Traits, metadata: Fields) -> Traits:
    _check_gating(metadata, 1, "softmax")
    return traits


def _gguf_plain(traits: Traits, metadata: Fields) -> Traits:
    """Weights are taken as they are, which files of these do not say."""
    return replace(_gguf_softmax(traits, metadata), router=Router(normalize=False))


def _gguf_granite(traits: Traits, metadata: Fields) -> Traits:
    return maths.gguf_granite(_gguf_softmax(traits, metadata), metadata)


def _check_gating(metadata: Fields, number: int, name: str) -> None:
    """Refuses a score that the family does not have. Old files state none, or 0 for none."""
    key = f"{metadata.text('general.architecture')}.expert_gating_func"
    if metadata.integer(key, default=number, least=0) not in (0, number):
        raise metadata.wrong(key, f"{number} ({name})")


def _glm4_moe(traits: Traits, config: Fields) -> Traits:
    normalize = config.flag("norm_topk_prob", default=True)
    return replace(traits, router=grouped_router(config, CONFIG, "sigmoid", normalize))


def _gguf_glm4_moe(traits: Traits, metadata: Fields) -> Traits:
    _check_gating(metadata, 2, "sigmoid")
    normalize = metadata.flag("glm4moe.expert_weights_norm", default=True)
    keys = Keys(*(f"glm4moe.{key}" for key in GGUF))
    return replace(traits, router=grouped_router(metadata, keys, "sigmoid", normalize))


def _minimax(traits: Traits, config: Fields) -> Traits:
    """Released configs state the rotated part of a head in elements."""
    for key, known in _MINIMAX.items():
        if config.get(key) not in (None, known):
            raise config.wrong(key, f"{known!r}")
    traits = replace(traits, router=Router("sigmoid"))
    if config.get("rotary_dim") is None:
        return traits
    size, head = config.integer("rotary_dim"), config.integer("head_dim")
    if size % 2 or size > head:
        raise config.wrong("rotary_dim", f"an even part of the {head} elements of a head")
    rope = replace(traits.ropes[0], size=0 if size == head else size)
    return replace(traits, ropes=(rope,))


def _gguf_minimax(traits: Traits, metadata: Fields) -> Traits:
    _check_gating(metadata, 2, "sigmoid")
    return replace(traits, router=Router("sigmoid"))


def _gpt_oss(traits: Traits, config: Fields) -> Traits:
    if config.real("swiglu_limit", 7.0) != 7.0:
        raise config.wrong("swiglu_limit", "7")
    if config.real("swiglu_alpha", 1.702) != 1.702:
        raise config.wrong("swiglu_alpha", "1.702")
    return replace(traits, activation="clamped")


def _gguf_gpt_oss(traits: Traits, metadata: Fields) -> Traits:
    """The bounds between scaled and unscaled frequencies are not rounded."""
    _check_gating(metadata, 3, "softmax of the chosen")
    rope = traits.ropes[0]
    if rope.scaling is not None:
        rope = replace(rope, scaling=replace(rope.scaling, truncate=False))
    return replace(traits, activation="clamped", ropes=(rope,))


def _ernie(traits: Traits, config: Fields) -> Traits:
    if config.flag("use_bias", default=False):
        raise config.wrong("use_bias", "false (biases of every matrix)")
    return traits


EXPERTS = (
    Family(
        "mixtral",
        ("mixtral",),
        (),
        _folder(folder_experts(_BLOCK + "gate.weight", _BLOCK + "experts.", _MIXTRAL_ROLES)),
        _GGUF,
        folder_checked=SOME,
    ),
    Family(
        "qwen2_moe",
        ("qwen2_moe",),
        ("qwen2moe",),
        _folder(folder_experts(shared="mlp.shared_expert.") | _SHARED_ROUTER),
        _GGUF,
        _stated_norm,
        _gguf_plain,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "qwen3_moe",
        ("qwen3_moe",),
        ("qwen3moe",),
        _folder(folder_experts()),
        _GGUF,
        _stated_norm,
        _gguf_softmax,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "olmoe",
        ("olmoe",),
        ("olmoe",),
        _folder(folder_experts()),
        _GGUF,
        _olmoe,
        _gguf_plain,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "granitemoe",
        ("granitemoe",),
        ("granitemoe",),
        _GRANITE,
        replace(_GGUF, paired=True),
        maths.granite,
        _gguf_granite,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "glm4_moe",
        ("glm4_moe",),
        ("glm4moe",),
        _folder(
            folder_experts(
                shared="mlp.shared_experts.", correction="mlp.gate.e_score_correction_bias"
            )
        ),
        _GGUF_POST,
        _glm4_moe,
        _gguf_glm4_moe,
        rotated=0.5,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "gpt_oss",
        ("gpt_oss",),
        ("gpt-oss",),
        _GPT_OSS,
        _GPT_OSS_GGUF,
        _gpt_oss,
        _gguf_gpt_oss,
        theta=150000.0,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "minimax_m2",
        ("minimax_m2",),
        ("minimax-m2",),
        _folder(
            folder_experts(
                _BLOCK + "gate.weight",
                _BLOCK + "experts.",
                _MIXTRAL_ROLES,
                correction=_BLOCK + "e_score_correction_bias",
            )
        ),
        _GGUF,
        _minimax,
        _gguf_minimax,
        theta=5e6,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "ernie4_5_moe",
        ("ernie4_5_moe",),
        ("ernie4_5-moe",),
        replace(
            _folder(
                folder_experts(
                    shared="mlp.shared_experts.",
                    correction="mlp.moe_statics.e_score_correction_bias",
                )
            ),
            paired=True,
        ),
        replace(_GGUF, paired=True),
        _ernie,
        _gguf_softmax,
        theta=5e5,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
)
