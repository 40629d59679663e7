"""A GGUF file of any known family as something to plan with: its sizes and its formats.

Knows nothing of metadata that only running needs. Sizes come from the tensors themselves; every
matrix that the resulting shape calls for must be there, and a tensor that nothing here stands for
is refused by name. What is left out: multi-token prediction, rotary factors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path

from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.gguf_header import Entry, format_name
from local_tp.checkpoint.gguf_parts import model_name, parts
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError

MOST_LAYERS = 1024

ROLES = {
    "attn_norm": "attn_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "attn_sinks": "sinks",
    "attn_q_a": "q_down",
    "attn_q_a_norm": "q_down_norm",
    "attn_q_b": "q",
    "attn_kv_a_mqa": "kv_down",
    "attn_kv_a_norm": "kv_down_norm",
    "attn_k_b": "k_up",
    "attn_v_b": "v_up",
    "attn_gate": "mix_z",
    "ssm_beta": "mix_beta",
    "ssm_alpha": "mix_alpha",
    "ssm_norm": "mix_norm",
    "ssm_out": "mix_o",
    "ssm_a": "mix_decay",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
    "ffn_gate_inp": "router",
    "ffn_gate_exps": "experts_gate",
    "ffn_up_exps": "experts_up",
    "ffn_down_exps": "experts_down",
    "ffn_gate_shexp": "shared_gate",
    "ffn_up_shexp": "shared_up",
    "ffn_down_shexp": "shared_down",
}
# Several roles one above the other; `attn_qkv` is that of a recurrent layer where the layer is one.
FUSED = {
    "attn_qkv": ("q", "k", "v"),
    "attn_kv_b": ("k_up", "v_up"),
    "ssm_conv1d": ("mix_conv_q", "mix_conv_k", "mix_conv_v"),
    "ssm_ba": ("mix_beta", "mix_alpha"),
    "ffn_gate_up_exps": ("experts_gate", "experts_up"),
}
SMALL = frozenset(
    {"post_attention_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2", "post_norm",
     "pre_ffw_norm_2", "layer_output_scale", "exp_probs_b", "ffn_gate_inp_shexp", "ssm_dt",
     "rope_freqs", "attn_rot_embd", "rope_factors_long", "rope_factors_short"}
)  # fmt: skip
# One full layer in so many, where the file states a window and no pattern.
_EVERY = {"gemma2": 2, "gemma3": 6, "gemma4": 6, "gpt-oss": 2, "cohere2": 4, "exaone4": 4,
          "phi3": 1}  # fmt: skip
_PARALLEL = frozenset(("cohere2", "command-r"))
# The rotary embedding of full layers, as in `LayerKind`, where sliding ones have another.
_FULL_ROPE = {"gemma3": 1, "olmo2": 1, "cohere2": -1, "exaone4": -1}
_UNROTATED = {"smollm3": 4}  # one layer in so many
# Architectures whose converter puts one value head of every key head before the next of each.
_TILED = frozenset(("qwen35", "qwen35moe"))
_BLOCK = re.compile(r"blk\.(\d{1,4})\.([a-z0-9_.]+?)(?:\.(weight|bias))?")

Layer = dict[str, Entry]  # what one layer of the file holds, by stem


def spec_from_gguf(path: Path) -> ModelSpec:
    """The model in a GGUF file, from its header, to be planned and not run (no `path`).

    Raises `CheckpointError`; `OSError` passes through.
    """
    headers = parts(path)
    metadata = headers[0].metadata
    family = metadata.text("general.architecture") or "none"
    entries = [entry for header in headers for entry in header.entries]
    outside, layers = _sorted(str(path), entries, _layer_count(metadata, family))
    shape = _shape(metadata, family, outside, layers)
    spec = spec_of(shape, model_name(path), family, mix("F32"))
    return _with_formats(str(path), spec, outside, layers)


def shape_from_gguf(source: str, metadata: Fields, entries: Iterable[Entry]) -> Shape:
    """The sizes of the model whose metadata and tensors these are. Raises `CheckpointError`."""
    family = metadata.text("general.architecture") or "none"
    return _shape(metadata, family, *_sorted(source, entries, _layer_count(metadata, family)))


def _layer_count(metadata: Fields, family: str) -> int:
    count = metadata.integer(f"{family}.block_count")
    count -= metadata.integer(f"{family}.nextn_predict_layers", default=0, least=0)
    if not 0 < count <= MOST_LAYERS:
        raise metadata.wrong(f"{family}.block_count", f"1 to {MOST_LAYERS:,} layers")
    return count


def _sorted(source: str, entries: Iterable[Entry], count: int) -> tuple[Layer, list[Layer]]:
    """The tensors outside the layers by name, and those of each layer by stem."""
    outside: Layer = {}
    layers: list[Layer] = [{} for _ in range(count)]
    for entry in entries:
        match = _BLOCK.fullmatch(entry.name)
        if match is None:
            outside[entry.name.removesuffix(".weight")] = entry
        elif int(match[1]) < count and not match[2].startswith("nextn."):
            stem = match[2] + (".bias" if match[3] == "bias" else "")
            if not _known(stem):
                raise CheckpointError(
                    f"{source} has a tensor {shown(entry.name)}, which cannot be planned with yet: "
                    "choose another model, or one of the well-known names"
                )
            layers[int(match[1])][stem] = entry
    return outside, layers


def _known(stem: str) -> bool:
    """Biases are small and never cut apart from their matrix: only those of q, k, v count."""
    plain = stem.removesuffix(".bias")
    return plain in ROLES or plain in FUSED or plain in SMALL


# --------------------------------------------------------------------------------- the sizes


def _rows(entry: Entry) -> int:
    return prod(entry.dims[1:])


def _columns(layer: Layer, stem: str) -> int:
    return layer[stem].dims[0]


def _shape(metadata: Fields, family: str, outside: Layer, layers: list[Layer]) -> Shape:
    source = metadata.source
    if "token_embd" not in outside:
        raise CheckpointError(f"{source} has no tensor 'token_embd.weight': it holds no model")
    embed = outside["token_embd"]
    heads = _heads(metadata, family)
    attention = [layer for layer in layers if "ssm_out" not in layer]
    recurrent = next((layer for layer in layers if "ssm_out" in layer), None)
    expert = next((layer for layer in layers if "ffn_gate_inp" in layer), None)
    dense = next((layer for layer in layers if "ffn_gate_inp" not in layer), None)
    for index, layer in enumerate(layers):
        if "attn_output" not in layer and "ssm_out" not in layer:
            raise CheckpointError(
                f"{source} has no tensor 'blk.{index}.attn_output.weight': the model is "
                "incomplete, download it again"
            )
    if not attention:
        raise CheckpointError(f"{source} has no layer with attention: it cannot be planned with")
    window = metadata.integer(f"{family}.attention.sliding_window", default=0, least=0)
    mixers = _mixers(metadata, family, layers, window)
    base = Shape(
        layers=len(layers),
        hidden=embed.dims[0],
        heads=heads,
        head_dim=max(1, attention[0]["attn_output"].dims[0] // heads),
        vocab=_rows(embed),
        context=metadata.integer(f"{family}.context_length", default=2048),
        tied="output" not in outside,
        qkv_bias="attn_q.bias" in attention[0],
        o_bias="attn_output.bias" in attention[0],
        qk_norm="attn_q_norm" in attention[0],
        wide_norms=_has_wide_norms(attention[0]),
        pre_norms="attn_norm" in attention[0],
        post_norms="post_ffw_norm" in attention[0],
        parallel=family in _PARALLEL,
        sinks="attn_sinks" in attention[0],
        mixers=mixers,
        ropes=_ropes(family, mixers),
        window=window if "S" in mixers else 0,
        feeds="".join("E" if "ffn_gate_inp" in layer else "D" for layer in layers),
        ffn=_columns(dense, "ffn_down") if dense and "ffn_down" in dense else 0,
    )
    shape = _attention(source, base, attention, mixers)
    if recurrent:
        shape = _recurrent(source, shape, recurrent, family in _TILED)
    return _experts(metadata, family, shape, expert) if expert else shape


def _heads(metadata: Fields, family: str) -> int:
    key = f"{family}.attention.head_count"
    if isinstance(metadata.get(key), list | tuple):
        return max((1, *metadata.integers(key)))
    return metadata.integer(key)


def _mixers(metadata: Fields, family: str, layers: list[Layer], window: int) -> str:
    """A letter a layer. A pattern in the file says true for layers that slide."""
    key = f"{family}.attention.sliding_window_pattern"
    stated = metadata.get(key)
    every = stated if type(stated) is int else _EVERY.get(family, 0)
    letters = []
    for index, layer in enumerate(layers):
        if isinstance(stated, list | tuple) and index < len(stated):
            slides = bool(stated[index])
        else:
            slides = every == 1 or (every > 1 and (index + 1) % every != 0)
        letters.append("R" if "ssm_out" in layer else "S" if slides and window else "F")
    return "".join(letters)


def _ropes(family: str, mixers: str) -> tuple[int, ...]:
    if family in _UNROTATED:
        return (0,) * (_UNROTATED[family] - 1) + (-1,)
    if family == "exaone4" and "S" not in mixers:
        return (0,)
    return tuple(0 if letter == "S" else _FULL_ROPE.get(family, 0) for letter in mixers)


def _has_wide_norms(layer: Layer) -> bool:
    return "attn_q_norm" in layer and layer["attn_q_norm"].dims == layer["attn_output"].dims[:1]


def _attention(source: str, shape: Shape, attention: list[Layer], mixers: str) -> Shape:
    first = attention[0]
    if "attn_kv_a_mqa" in first:
        return _compressed(source, shape, first)
    size = shape.head_dim
    if "attn_qkv" in first:
        keys = (_rows(first["attn_qkv"]) - shape.heads * size) // 2
    else:
        keys = _rows(first["attn_k"]) if "attn_k" in first else 0
        gate = _rows(first["attn_q"]) == 2 * shape.heads * size if "attn_q" in first else False
        shape = replace(shape, output_gate=gate)
    shape = replace(shape, kv_heads=keys // size or shape.heads)
    kinds = mixers.replace("R", "")
    other = next((a for a, m in zip(attention, kinds, strict=True) if m == "F"), first)
    wide = other["attn_output"].dims[0] // shape.heads
    if "S" in mixers and "attn_k" in other and wide:
        shape = replace(
            shape,
            full_head_dim=wide,
            full_kv_heads=_rows(other["attn_k"]) // wide,
            shared_values="attn_v" not in other,
        )
    return shape


def _compressed(source: str, shape: Shape, layer: Layer) -> Shape:
    if "attn_kv_a_norm" not in layer:
        raise CheckpointError(f"{source} has no tensor 'attn_kv_a_norm' beside 'attn_kv_a_mqa'")
    rank = layer["attn_kv_a_norm"].dims[0]
    rope = _rows(layer["attn_kv_a_mqa"]) - rank
    query = layer.get("attn_q_b", layer.get("attn_q"))
    nope = (_rows(query) // shape.heads if query else 0) - rope
    if nope < 1 or rope < 2 or rope % 2:
        raise CheckpointError(
            f"{source} is damaged: heads over its compressed rows have {nope} elements and {rope} "
            "rotated ones"
        )
    return replace(
        shape,
        head_dim=nope + rope,
        query_rank=_rows(layer["attn_q_a"]) if "attn_q_a" in layer else 0,
        kv_rank=rank,
        rope_dim=rope,
        nope_dim=nope,
        value_dim=shape.head_dim,
    )


def _recurrent(source: str, shape: Shape, layer: Layer, tiled: bool) -> Shape:
    missing = [stem for stem in ("attn_qkv", "ssm_a", "ssm_conv1d") if stem not in layer]
    if missing:
        raise CheckpointError(
            f"{source} has recurrent layers without {missing[0]}: they cannot be planned with yet"
        )
    values, width = prod(layer["ssm_a"].dims), _columns(layer, "ssm_out")
    size = max(1, width // values)
    keys = (_rows(layer["attn_qkv"]) - width) // 2 // size
    if keys < 1 or values % keys:
        raise CheckpointError(
            f"{source} is damaged: its recurrent layers have {values} value and {keys} key heads"
        )
    return replace(
        shape,
        recurrent_values=values,
        recurrent_dim=size,
        recurrent_keys=keys,
        recurrent_kernel=_columns(layer, "ssm_conv1d"),
        values_tiled=tiled and values != keys,
    )


def _experts(metadata: Fields, family: str, shape: Shape, layer: Layer) -> Shape:
    count = _rows(layer["ffn_gate_inp"])
    active = metadata.integer(f"{family}.expert_used_count")
    if active > count:
        raise metadata.wrong(f"{family}.expert_used_count", f"at most {count}")
    shared = layer.get("ffn_down_shexp", layer.get("ffn_down"))
    return replace(
        shape,
        experts=count,
        active_experts=active,
        expert_ffn=_columns(layer, "ffn_down_exps") if "ffn_down_exps" in layer else 0,
        shared_ffn=shared.dims[0] if shared else 0,
        shared_router="ffn_gate_inp_shexp" in layer,
        router_correction="exp_probs_b.bias" in layer,
        expert_biases="ffn_down_exps.bias" in layer,
    )


# ------------------------------------------------------------------------------- the formats


def _with_formats(source: str, spec: ModelSpec, outside: Layer, layers: list[Layer]) -> ModelSpec:
    """The spec with each matrix's own format. Raises `CheckpointError` for one that is missing."""
    whole = {"embed": "token_embd", "head": "output"}
    stored = {name: outside[stem] for name, stem in whole.items() if stem in outside}
    for index, layer in enumerate(layers):
        for role, entry in _by_role(layer).items():
            stored[f"layers.{index}.{role}"] = entry
    tensors, used = dict(spec.tensors), Counter[str]()
    for name, info in spec.tensors.items():
        if len(info.shape) == 1:
            continue
        if name not in stored:
            raise CheckpointError(f"{source} has no tensor for {name}: it cannot be planned with")
        entry = stored[name]
        form = format_name(entry.kind)
        if form not in FORMATS:
            raise CheckpointError(f"{source} stores {name} as {form}, whose size is not known here")
        used[entry.name] += prod(info.shape)
        tensors[name] = replace(info, format=form, nbytes=FORMATS[form].nbytes(*info.shape))
    for entry in stored.values():
        if entry.name in used and used[entry.name] != prod(entry.dims):
            raise CheckpointError(
                f"{source}: tensor {shown(entry.name)} has {prod(entry.dims):,} numbers and the "
                f"model's sizes call for {used[entry.name]:,}: the file is damaged, or of a "
                "variant that cannot be planned with yet"
            )
    return replace(spec, tensors=tensors)


def _by_role(layer: Layer) -> Mapping[str, Entry]:
    roles = {ROLES[stem]: entry for stem, entry in layer.items() if stem in ROLES}
    for stem, fused in FUSED.items():
        if stem in layer:
            named = fused
            if stem == "attn_qkv" and "ssm_out" in layer:
                named = ("mix_q", "mix_k", "mix_v")
            roles |= dict.fromkeys(named, layer[stem])
    if "up" in roles and "gate" not in roles and "router" not in roles:
        roles["gate"] = roles["up"]  # one matrix holds both
    if "router" in roles and "down" in roles:  # a dense block beside the experts
        roles |= {f"shared_{role}": roles[role] for role in ("gate", "up", "down") if role in roles}
    return roles
