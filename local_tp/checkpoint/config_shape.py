"""The shape of a model from its Hugging Face `config.json` alone, for planning before a download.

Knows nothing of weights. A family is a row: what its layers have that the config does not state.
Nothing in a config is trusted: sizes are bounded, and a family or a value that would make another
model is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError

LARGEST_CONFIG = 1 << 24
MOST_LAYERS = 1024
MOST_WIDTH = 1 << 20  # of hidden, ffn, heads and ranks
MOST_EXPERTS = 1 << 14
MOST_VOCAB = 1 << 24

_MISSING = {
    "hidden_size_per_layer_input": "an embedding for each layer",
    "num_kv_shared_layers": "layers that use the keys and values of others",
}
_LETTERS = {
    "full_attention": "F",
    "sliding_attention": "S",
    "chunked_attention": "S",
    "linear_attention": "R",
}


class Experts(NamedTuple):
    """Routed experts of a layer, those that a token meets, and columns: of each, and shared."""

    routed: int
    active: int
    width: int
    shared: int


@dataclass(frozen=True, slots=True)
class Kind:
    """What a family's layers have that its config does not say. `bias`, `tied` and `every` (one
    full layer in so many, the others sliding) are defaults for what a config may say."""

    bias: bool = False
    tied: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    sinks: bool = False
    every: int = 0
    output_gate: bool = False
    experts: Callable[[Fields], Experts] | None = None


def read_config(path: Path) -> Mapping[str, object]:
    """The values of a config file. Raises `CheckpointError`; `OSError` passes through."""
    return Fields.from_json(path, LARGEST_CONFIG).values


def spec_from_config(config: Mapping[str, object], name: str, quant: str) -> ModelSpec:
    """The model that a `config.json` describes, with tensors in the named quantization.

    `quant` may be "default": what the config itself says of its weights. `name` is used in errors
    and for the model. Raises `CheckpointError`.
    """
    shape, family = shape_from_config(config, name)
    chosen = _own_format(Fields(name, config)) if quant == "default" else quant
    return spec_of(shape, name, family, mix(chosen))


def _own_format(whole: Fields) -> str:
    """The quantization that the config says its weights have, or 16 bits."""
    stated = whole.inner("quantization_config")
    if stated is None:
        return "BF16"
    method = stated.text("quant_method") or "none"
    if method in ("awq", "gptq") and stated.integer("bits", default=4) == 4:
        return "INT4-G32" if stated.get("group_size") == 32 else "INT4-G128"
    if method in ("fp8", "mxfp4"):
        return method.upper()
    raise stated.wrong("quant_method", "fp8, mxfp4, or awq or gptq with 4 bits; name a format")


def shape_from_config(config: Mapping[str, object], name: str) -> tuple[Shape, str]:
    """The sizes that a `config.json` states, and its model type."""
    whole = Fields(name, config)
    text = whole.inner("text_config") or whole
    family = text.text("model_type") or whole.text("model_type") or "none"
    kind = _KINDS.get(family.removesuffix("_text"))
    if kind is None:
        known = ", ".join(sorted(_KINDS))
        raise CheckpointError(
            f"{name} is of the type {shown(family)}, whose layers are not known here: "
            f"known are {known}"
        )
    for key, missing in _MISSING.items():
        if text.get(key) not in (None, 0, False):
            raise text.wrong(key, f"0 ({missing} cannot be planned yet)")
    tied = text.flag("tie_word_embeddings", whole.flag("tie_word_embeddings", kind.tied))
    shape = _basic(text, kind, tied)
    if kind.experts:
        shape = _with_experts(text, shape, kind.experts)
    return _checked(name, _with_mixers(text, _compressed(text, shape), kind)), family


def _basic(text: Fields, kind: Kind, tied: bool) -> Shape:
    hidden = _size(text, "hidden_size")
    heads = _size(text, "num_attention_heads")
    return Shape(
        layers=_size(text, "num_hidden_layers", MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=_size(text, "num_key_value_heads", default=heads),
        head_dim=_size(text, "head_dim", default=max(1, hidden // heads)),
        ffn=_count(text, "intermediate_size"),
        vocab=_size(text, "vocab_size", MOST_VOCAB),
        context=text.integer("max_position_embeddings", default=2048),
        tied=tied,
        qkv_bias=text.flag("attention_bias", kind.bias),
        qk_norm=kind.qk_norm or text.flag("use_qk_norm", default=False),
        post_norms=kind.post_norms,
        sinks=kind.sinks,
        output_gate=kind.output_gate,
    )


def _size(fields: Fields, key: str, most: int = MOST_WIDTH, default: int | None = None) -> int:
    value = fields.integer(key, default)
    if value > most:
        raise fields.wrong(key, f"at most {most:,}")
    return value


def _count(fields: Fields, *keys: str, most: int = MOST_WIDTH) -> int:
    """The first of these that is stated, or 0."""
    for key in keys:
        if fields.get(key) is not None:
            value = fields.integer(key, least=0)
            if value > most:
                raise fields.wrong(key, f"at most {most:,}")
            return value
    return 0


def _checked(name: str, shape: Shape) -> Shape:
    """Refuses sizes that no such model can have."""
    if not shape.kv_rank and shape.heads % (shape.kv_heads or shape.heads):
        raise CheckpointError(f"{name}: {shape.heads} query heads over {shape.kv_heads} KV heads")
    if shape.full_kv_heads and shape.heads % shape.full_kv_heads:
        raise CheckpointError(
            f"{name}: {shape.heads} query heads over {shape.full_kv_heads} KV heads of full layers"
        )
    feeds = {shape.kind(layer).feed for layer in range(shape.layers)}
    if "dense" in feeds and not shape.ffn:
        raise CheckpointError(f"{name} does not say intermediate_size, which is needed")
    if "experts" in feeds and not (shape.expert_ffn and 0 < shape.active_experts <= shape.experts):
        raise CheckpointError(
            f"{name}: a token meets {shape.active_experts} of {shape.experts} experts of "
            f"{shape.expert_ffn} columns"
        )
    return shape


# -------------------------------------------------------------------------------- the layers


def _with_mixers(text: Fields, shape: Shape, kind: Kind) -> Shape:
    """Which layers slide and which are recurrent, and the sizes that belong to them."""
    window = _count(text, "sliding_window", most=1 << 30)
    if text.get("use_sliding_window") is False:
        window = 0
    letters = _letters(text, shape.layers, kind, window)
    shape = replace(shape, mixers=letters, window=window if "S" in letters else 0)
    if "R" in letters:
        shape = _with_state(text, shape)
    if text.get("global_head_dim") is not None and "S" in letters:
        shape = replace(
            shape,
            full_head_dim=_size(text, "global_head_dim"),
            full_kv_heads=_count(text, "num_global_key_value_heads") or shape.kv_heads,
            shared_values=text.flag("attention_k_eq_v", default=False),
        )
    return shape


def _letters(text: Fields, layers: int, kind: Kind, window: int) -> str:
    stated = text.texts("layer_types")
    if stated:
        unknown = sorted({t for t in stated if t not in _LETTERS})
        if unknown or len(stated) != layers:
            raise text.wrong("layer_types", f"{layers} of {', '.join(_LETTERS)}")
        letters = "".join(_LETTERS[t] for t in stated)
        return letters if window else letters.replace("S", "F")
    interval = _count(text, "full_attention_interval", most=MOST_LAYERS)
    if interval or kind.output_gate:
        return "R" * ((interval or 4) - 1) + "F"
    every = _count(text, "sliding_window_pattern", most=MOST_LAYERS) or kind.every
    return "S" * (every - 1) + "F" if every > 1 and window else "F"


def _with_state(text: Fields, shape: Shape) -> Shape:
    key, value = _size(text, "linear_key_head_dim"), _size(text, "linear_value_head_dim")
    if key != value:
        raise text.wrong("linear_value_head_dim", f"{key}, as linear_key_head_dim")
    return replace(
        shape,
        recurrent_keys=_size(text, "linear_num_key_heads"),
        recurrent_values=_size(text, "linear_num_value_heads"),
        recurrent_dim=key,
        recurrent_kernel=_size(text, "linear_conv_kernel_dim", most=64, default=4),
    )


def _compressed(text: Fields, shape: Shape) -> Shape:
    if not _count(text, "kv_lora_rank"):
        return shape
    nope, rope = _size(text, "qk_nope_head_dim"), _size(text, "qk_rope_head_dim")
    return replace(
        shape,
        head_dim=nope + rope,
        query_rank=_count(text, "q_lora_rank"),
        kv_rank=_size(text, "kv_lora_rank"),
        nope_dim=nope,
        rope_dim=rope,
        value_dim=_size(text, "v_head_dim"),
    )


# ------------------------------------------------------------------------------- the experts


def _with_experts(text: Fields, shape: Shape, sizes: Callable[[Fields], Experts]) -> Shape:
    found = sizes(text)
    if text.get("enable_moe_block") is False or not found.routed:
        return shape
    first, feeds = _feeds(text, shape.layers)
    return replace(
        shape,
        feeds=feeds,
        first_dense=first,
        ffn=_count(text, "intermediate_size_mlp") or shape.ffn,
        experts=found.routed,
        active_experts=found.active,
        expert_ffn=found.width,
        shared_ffn=found.shared,
    )


def _feeds(text: Fields, layers: int) -> tuple[int, str]:
    """How many dense layers come first, and the letters that repeat after them."""
    stated = text.texts("mlp_layer_types")
    if stated:
        if len(stated) != layers or not set(stated) <= {"dense", "sparse"}:
            raise text.wrong("mlp_layer_types", f"{layers} of dense, sparse")
        return 0, "".join("D" if t == "dense" else "E" for t in stated)
    if text.integers("mlp_only_layers"):
        raise text.wrong("mlp_only_layers", "an empty list")
    if _count(text, "moe_layer_interval", most=MOST_LAYERS) > 1:
        raise text.wrong("moe_layer_interval", "1")
    step = _count(text, "decoder_sparse_step", "interleave_moe_layer_step", most=MOST_LAYERS)
    first = _count(text, "first_k_dense_replace", "moe_layer_start_index", most=MOST_LAYERS)
    return first, "D" * (step - 1) + "E"


def _experts(
    count: str, active: str, width: str, shared: str = "", shared_each: str = ""
) -> Callable[[Fields], Experts]:
    """Reads a family's keys: `shared` is a width, `shared_each` a number of shared experts."""

    def read(text: Fields) -> Experts:
        each = _count(text, width)
        beside = _count(text, shared) if shared else 0
        if shared_each:
            beside = _count(text, shared_each, most=MOST_EXPERTS) * each
        routed = _count(text, count, "num_local_experts", most=MOST_EXPERTS)
        return Experts(routed, _count(text, active, most=MOST_EXPERTS), each, beside)

    return read


_PER_TOKEN, _MOE_WIDTH = "num_experts_per_tok", "moe_intermediate_size"
_QWEN = _experts("num_experts", _PER_TOKEN, _MOE_WIDTH, shared="shared_expert_intermediate_size")
_DEEPSEEK = _experts("n_routed_experts", _PER_TOKEN, _MOE_WIDTH, shared_each="n_shared_experts")
_LOCAL = _experts("num_local_experts", _PER_TOKEN, "intermediate_size")
_LLAMA4 = _experts("num_local_experts", _PER_TOKEN, "intermediate_size", shared="intermediate_size")
_ERNIE = _experts("moe_num_experts", "moe_k", _MOE_WIDTH, shared_each="moe_num_shared_experts")
_GEMMA4 = _experts("num_experts", "top_k_experts", _MOE_WIDTH, shared="intermediate_size")
_OLMOE = _experts("num_experts", _PER_TOKEN, "intermediate_size")

_GEMMA = Kind(tied=True, post_norms=True, qk_norm=True, every=6)
_HYBRID = Kind(qk_norm=True, output_gate=True)

_KINDS: dict[str, Kind] = {
    "llama": Kind(),
    "mistral": Kind(),
    "mistral3": Kind(),
    "ministral": Kind(),
    "ministral3": Kind(),
    "mixtral": Kind(experts=_LOCAL),
    "qwen2": Kind(bias=True),
    "qwen2_moe": Kind(bias=True, experts=_QWEN),
    "qwen3": Kind(qk_norm=True),
    "qwen3_moe": Kind(qk_norm=True, experts=_QWEN),
    "qwen3_next": replace(_HYBRID, experts=_QWEN),
    "qwen3_5": _HYBRID,
    "qwen3_5_moe": replace(_HYBRID, experts=_QWEN),
    "gemma2": Kind(tied=True, post_norms=True, every=2),
    "gemma3": _GEMMA,
    "gemma4": replace(_GEMMA, experts=_GEMMA4),
    "gpt_oss": Kind(bias=True, sinks=True, every=2, experts=_LOCAL),
    "glm4": Kind(post_norms=True),
    "glm4_moe": Kind(experts=_DEEPSEEK),
    "glm4_moe_lite": Kind(experts=_DEEPSEEK),
    "deepseek_v2": Kind(experts=_DEEPSEEK),
    "deepseek_v3": Kind(experts=_DEEPSEEK),
    "kimi_k2": Kind(experts=_DEEPSEEK),
    "llama4": Kind(experts=_LLAMA4),
    "phi3": Kind(),
    "phimoe": Kind(bias=True, experts=_LOCAL),
    "granite": Kind(tied=True),
    "smollm3": Kind(tied=True),
    "cohere": Kind(tied=True),
    "cohere2": Kind(tied=True, every=4),
    "seed_oss": Kind(bias=True),
    "olmo2": Kind(qk_norm=True),
    "olmo3": Kind(qk_norm=True, every=4),
    "olmoe": Kind(qk_norm=True, experts=_OLMOE),
    "ernie4_5_moe": Kind(tied=True, experts=_ERNIE),
    "minimax_m2": Kind(qk_norm=True, experts=_LOCAL),
    "exaone4": Kind(qk_norm=True, post_norms=True, every=4),
}
