"""The shape of a model from its Hugging Face `config.json` alone, for planning before a download.

Knows nothing of weights. A family is a row: what its layers have that the config does not state.
Nothing in a config is trusted: sizes are bounded, and a family or a value that would make another
model is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from local_tp.checkpoint import config_experts
from local_tp.checkpoint.config_sizes import MOST_LAYERS, MOST_VOCAB, count, size
from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError

LARGEST_CONFIG = 1 << 24

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


@dataclass(frozen=True, slots=True)
class Kind:
    """What a family's layers have that its config does not say.

    `bias`, `tied` and `every` are defaults for what a config may say: one layer in so many is full,
    the others slide; 1 where all slide. `full_rope` is the rotary embedding of full layers, as in
    `LayerKind`, or the first if no layer slides and `some_rope` is needed; `unrotated` says that
    one layer in so many has none. `o_bias`: where q, k and v
    have biases, the output has one, too. The last three are of layers with experts, as in `Shape`.
    """

    bias: bool = False
    tied: bool = False
    qk_norm: bool = False
    wide_norms: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool = False
    full_rope: int = 0
    some_rope: bool = False
    unrotated: int = 0
    sinks: bool = False
    every: int = 0
    output_gate: bool = False
    experts: Callable[[Fields], config_experts.Experts] | None = None
    o_bias: bool = False
    shared_router: bool = False
    correction: bool = False
    expert_biases: bool = False


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
    tied = whole.flag("tie_word_embeddings", text.flag("tie_word_embeddings", kind.tied))
    shape = _basic(text, kind, tied)
    if kind.experts:
        shape = _with_experts(text, shape, kind, kind.experts)
    return _checked(name, _with_mixers(text, _compressed(text, shape), kind)), family


def _basic(text: Fields, kind: Kind, tied: bool) -> Shape:
    hidden = size(text, "hidden_size")
    heads = size(text, "num_attention_heads")
    qkv_bias = text.flag("attention_bias", text.flag("qkv_bias", kind.bias))
    return Shape(
        layers=size(text, "num_hidden_layers", MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=size(text, "num_key_value_heads", default=heads),
        head_dim=size(text, "head_dim", default=max(1, hidden // heads)),
        ffn=count(text, "intermediate_size"),
        vocab=size(text, "vocab_size", MOST_VOCAB),
        context=text.integer("max_position_embeddings", default=2048),
        tied=tied,
        qkv_bias=qkv_bias,
        o_bias=kind.o_bias and qkv_bias,
        qk_norm=kind.qk_norm or text.flag("use_qk_norm", default=False),
        wide_norms=kind.wide_norms,
        pre_norms=kind.pre_norms,
        post_norms=kind.post_norms,
        parallel=kind.parallel,
        sinks=kind.sinks,
        output_gate=kind.output_gate,
    )


def _checked(name: str, shape: Shape) -> Shape:
    """Refuses sizes that no such model can have."""
    if shape.head_dim % 2 or shape.full_head_dim % 2:
        raise CheckpointError(f"{name} is damaged: an odd head size of {shape.head_dim}")
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
    window = count(text, "sliding_window", most=1 << 30)
    if text.get("use_sliding_window") is False:
        window = 0
    letters = _letters(text, shape.layers, kind, window)
    shape = replace(
        shape,
        mixers=letters,
        ropes=_ropes(text, shape.layers, kind, letters),
        window=window if "S" in letters else 0,
    )
    if "R" in letters:
        shape = _with_state(text, shape)
    if text.get("global_head_dim") is not None and "S" in letters:
        shape = replace(
            shape,
            full_head_dim=size(text, "global_head_dim"),
            full_kv_heads=count(text, "num_global_key_value_heads") or shape.kv_heads,
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
    interval = count(text, "full_attention_interval", most=MOST_LAYERS)
    if interval or kind.output_gate:
        return "R" * ((interval or 4) - 1) + "F"
    first = count(text, "max_window_layers", most=MOST_LAYERS)
    if first and window and text.get("use_sliding_window") is True:
        return "F" * min(first, layers) + "S" * max(0, layers - first)
    every = _every(text, kind)
    if every < 1 or not window:
        return "F"
    return "S" * (every - 1) + "F" if every > 1 else "S"


def _every(text: Fields, kind: Kind) -> int:
    """One full layer in so many. Some configs spell the pattern in letters, LLLG."""
    key = "sliding_window_pattern"
    stated = text.get(key)
    if isinstance(stated, str):
        if stated != "L" * (len(stated) - 1) + "G" or len(stated) > MOST_LAYERS:
            raise text.wrong(key, "a number, or letters L and a last G")
        return len(stated)
    return count(text, key, most=MOST_LAYERS) or kind.every


def _ropes(text: Fields, layers: int, kind: Kind, letters: str) -> tuple[int, ...]:
    """The rotary embedding of each layer, as in `LayerKind`."""
    if kind.unrotated:
        stated = text.integers("no_rope_layers")
        if stated:
            if len(stated) != layers or not set(stated) <= {0, 1}:
                raise text.wrong("no_rope_layers", f"a 1 or a 0 for each of {layers} layers")
            return tuple(rotated - 1 for rotated in stated)
        every = count(text, "no_rope_layer_interval", most=MOST_LAYERS) or kind.unrotated
        return (0,) * (every - 1) + (-1,)
    if kind.some_rope and "S" not in letters:
        return (0,)
    return tuple(0 if letter == "S" else kind.full_rope for letter in letters)


def _with_state(text: Fields, shape: Shape) -> Shape:
    key, value = size(text, "linear_key_head_dim"), size(text, "linear_value_head_dim")
    if key != value:
        raise text.wrong("linear_value_head_dim", f"{key}, as linear_key_head_dim")
    keys, values = size(text, "linear_num_key_heads"), size(text, "linear_num_value_heads")
    if values % keys:
        raise text.wrong("linear_num_value_heads", f"a multiple of {keys}, the key heads")
    return replace(
        shape,
        recurrent_keys=keys,
        recurrent_values=values,
        recurrent_dim=key,
        recurrent_kernel=size(text, "linear_conv_kernel_dim", most=64, default=4),
    )


def _compressed(text: Fields, shape: Shape) -> Shape:
    if not count(text, "kv_lora_rank"):
        return shape
    nope, rope = size(text, "qk_nope_head_dim"), size(text, "qk_rope_head_dim")
    if rope % 2:
        raise text.wrong("qk_rope_head_dim", "an even number")
    return replace(
        shape,
        head_dim=nope + rope,
        query_rank=count(text, "q_lora_rank"),
        kv_rank=size(text, "kv_lora_rank"),
        nope_dim=nope,
        rope_dim=rope,
        value_dim=size(text, "v_head_dim"),
    )


# ------------------------------------------------------------------------------- the experts


def _with_experts(
    text: Fields, shape: Shape, kind: Kind, sizes: Callable[[Fields], config_experts.Experts]
) -> Shape:
    found = sizes(text)
    if text.get("enable_moe_block") is False or not found.routed:
        return shape
    first, letters = config_experts.feeds(text, shape.layers)
    return replace(
        shape,
        feeds=letters,
        first_dense=first,
        ffn=count(text, "intermediate_size_mlp") or shape.ffn,
        experts=found.routed,
        active_experts=found.active,
        expert_ffn=found.width,
        shared_ffn=found.shared,
        shared_router=kind.shared_router,
        router_correction=kind.correction,
        expert_biases=kind.expert_biases,
    )


_GEMMA = Kind(tied=True, post_norms=True, qk_norm=True, every=6, full_rope=1)
_OLMO = Kind(qk_norm=True, wide_norms=True, pre_norms=False, post_norms=True, full_rope=1)
_HYBRID = Kind(qk_norm=True, output_gate=True)

_KINDS: dict[str, Kind] = {
    "llama": Kind(),
    "mistral": Kind(every=1),
    "mistral3": Kind(every=1),
    "ministral": Kind(),
    "ministral3": Kind(every=1),
    "mixtral": Kind(experts=config_experts.LOCAL),
    "qwen2": Kind(bias=True),
    "qwen2_moe": Kind(bias=True, experts=config_experts.QWEN, shared_router=True),
    "qwen3": Kind(qk_norm=True),
    "qwen3_moe": Kind(qk_norm=True, experts=config_experts.QWEN),
    "qwen3_next": replace(_HYBRID, experts=config_experts.QWEN, shared_router=True),
    "qwen3_5": _HYBRID,
    "qwen3_5_moe": replace(_HYBRID, experts=config_experts.QWEN, shared_router=True),
    "gemma": Kind(tied=True),
    "gemma2": Kind(tied=True, post_norms=True, every=2),
    "gemma3": _GEMMA,
    "gemma4": replace(_GEMMA, experts=config_experts.GEMMA4),
    "gpt_oss": Kind(
        bias=True,
        o_bias=True,
        sinks=True,
        every=2,
        experts=config_experts.LOCAL,
        expert_biases=True,
    ),
    "glm": Kind(bias=True),
    "glm4": Kind(bias=True, post_norms=True),
    "glm4_moe": Kind(experts=config_experts.DEEPSEEK, correction=True),
    "glm4_moe_lite": Kind(experts=config_experts.DEEPSEEK, correction=True),
    "deepseek_v2": Kind(experts=config_experts.DEEPSEEK),
    "deepseek_v3": Kind(experts=config_experts.DEEPSEEK, correction=True),
    "kimi_k2": Kind(experts=config_experts.DEEPSEEK, correction=True),
    "llama4": Kind(experts=config_experts.LLAMA4),
    "phi3": Kind(every=1),
    "phimoe": Kind(bias=True, experts=config_experts.LOCAL),
    "granite": Kind(tied=True),
    "granitemoe": Kind(tied=True, experts=config_experts.LOCAL),
    "smollm3": Kind(tied=True, unrotated=4),
    "cohere": Kind(tied=True, parallel=True),
    "cohere2": Kind(tied=True, every=4, parallel=True, full_rope=-1),
    "seed_oss": Kind(bias=True),
    "olmo2": _OLMO,
    "olmo3": replace(_OLMO, every=4),
    "olmoe": Kind(qk_norm=True, wide_norms=True, experts=config_experts.OLMOE),
    "ernie4_5": Kind(tied=True),
    "ernie4_5_moe": Kind(tied=True, experts=config_experts.ERNIE, correction=True),
    "minimax_m2": Kind(
        qk_norm=True, wide_norms=True, experts=config_experts.LOCAL, correction=True
    ),
    "exaone4": Kind(
        qk_norm=True, pre_norms=False, post_norms=True, every=4, full_rope=-1, some_rope=True
    ),
}
