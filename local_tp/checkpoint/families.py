"""The model families that can be read, a row each, and the tensors a model of a family must have.

Knows nothing of file layouts. A new family is a new row; `arrange` then checks that a checkpoint
has exactly the tensors its dimensions call for, so that no weight is missing or silently unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from local_tp.checkpoint.fields import shown
from local_tp.core import Dimensions, TensorInfo, Traits
from local_tp.errors import CheckpointError

Source = Literal["gguf", "folder"]


@dataclass(frozen=True, slots=True)
class Family:
    """`gguf` is GGUF's architecture, `architecture` and `model_type` those of `config.json`.

    `*_names` map canonical names to stored ones, `{i}` standing for the layer. `gguf_paired` says
    that the GGUF conversion stores q and k rows as interleaved rotary pairs. `unused` are endings
    of stored names that hold nothing a forward pass needs.
    """

    name: str
    gguf: str
    architecture: str
    model_type: str
    gguf_paired: bool
    gguf_names: Mapping[str, str]
    folder_names: Mapping[str, str]
    unused: tuple[str, ...] = ()


_GGUF_NAMES = {
    "embed": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "rope_factors": "rope_freqs.weight",
    "layers.{i}.attn_norm": "blk.{i}.attn_norm.weight",
    "layers.{i}.q": "blk.{i}.attn_q.weight",
    "layers.{i}.k": "blk.{i}.attn_k.weight",
    "layers.{i}.v": "blk.{i}.attn_v.weight",
    "layers.{i}.q_bias": "blk.{i}.attn_q.bias",
    "layers.{i}.k_bias": "blk.{i}.attn_k.bias",
    "layers.{i}.v_bias": "blk.{i}.attn_v.bias",
    "layers.{i}.o": "blk.{i}.attn_output.weight",
    "layers.{i}.ffn_norm": "blk.{i}.ffn_norm.weight",
    "layers.{i}.gate": "blk.{i}.ffn_gate.weight",
    "layers.{i}.up": "blk.{i}.ffn_up.weight",
    "layers.{i}.down": "blk.{i}.ffn_down.weight",
}

_FOLDER_NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "layers.{i}.attn_norm": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.q": "model.layers.{i}.self_attn.q_proj.weight",
    "layers.{i}.k": "model.layers.{i}.self_attn.k_proj.weight",
    "layers.{i}.v": "model.layers.{i}.self_attn.v_proj.weight",
    "layers.{i}.q_bias": "model.layers.{i}.self_attn.q_proj.bias",
    "layers.{i}.k_bias": "model.layers.{i}.self_attn.k_proj.bias",
    "layers.{i}.v_bias": "model.layers.{i}.self_attn.v_proj.bias",
    "layers.{i}.o": "model.layers.{i}.self_attn.o_proj.weight",
    "layers.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.gate": "model.layers.{i}.mlp.gate_proj.weight",
    "layers.{i}.up": "model.layers.{i}.mlp.up_proj.weight",
    "layers.{i}.down": "model.layers.{i}.mlp.down_proj.weight",
}

FAMILIES = (
    Family(
        name="llama",
        gguf="llama",
        architecture="LlamaForCausalLM",
        model_type="llama",
        gguf_paired=True,
        gguf_names=_GGUF_NAMES,
        folder_names=_FOLDER_NAMES,
        unused=(".rotary_emb.inv_freq",),  # written by old exporters; follows from rope_theta
    ),
)


def gguf_family(source: str, architecture: str) -> Family:
    """The family of a GGUF architecture, or an error that names it and those there are."""
    for family in FAMILIES:
        if family.gguf == architecture:
            return family
    known = " or ".join(family.gguf for family in FAMILIES)
    raise _unknown(source, architecture, known)


def folder_family(source: str, architecture: str | None, model_type: str | None) -> Family:
    """The family of a `config.json`: by its architecture or, where that is absent, its type."""
    for family in FAMILIES:
        stated = architecture if architecture is not None else model_type
        if stated in (family.architecture, family.model_type):
            return family
    known = " or ".join(family.architecture for family in FAMILIES)
    raise _unknown(source, architecture or model_type or "none", known)


def _unknown(source: str, stated: str, known: str) -> CheckpointError:
    return CheckpointError(
        f"{source} is of the family {shown(stated)}, which is not supported yet: choose a model of "
        f"the family {known}"
    )


def check_dimensions(source: str, dimensions: Dimensions) -> Dimensions:
    """Refuses head counts and sizes that no attention can have."""
    d = dimensions
    if d.query_heads % d.kv_heads:
        raise CheckpointError(
            f"{source} is damaged: {d.query_heads} query heads over {d.kv_heads} KV heads"
        )
    if d.head_dim % 2:
        raise CheckpointError(f"{source} is damaged: an odd head size of {d.head_dim}")
    return dimensions


def arrange(
    source: str,
    family: Family,
    layout: Source,
    stored: Mapping[str, TensorInfo],
    dimensions: Dimensions,
    traits: Traits,
) -> dict[str, TensorInfo]:
    """The stored tensors by canonical name, in the order of the forward pass.

    Each must be there in the shape that `dimensions` call for, and no other tensor may be there:
    an unknown one would be left out of the maths. Raises `CheckpointError` for the first wrong one.
    """
    names = family.gguf_names if layout == "gguf" else family.folder_names
    arranged: dict[str, TensorInfo] = {}
    used: set[str] = set()
    for template, layer, shape in _expected(dimensions, traits, _has_rope_factors(names, stored)):
        name = names[template].format(i=layer)
        tensor = _checked(source, name, stored, shape)
        paired = layout == "gguf" and family.gguf_paired and template in _ROTATED
        arranged[template.format(i=layer)] = replace(tensor, paired=paired)
        used.add(name)
    if traits.tied_head:
        used.add(names["head"])  # some exporters write the embedding a second time
    for name in stored:
        if name not in used and not name.endswith(family.unused):
            raise CheckpointError(
                f"{source} has a tensor {shown(name)}, which the family {family.name} "
                "does not use: this variant is not supported yet, choose another model"
            )
    return arranged


_ROTATED = frozenset(f"layers.{{i}}.{name}" for name in ("q", "k", "q_bias", "k_bias"))


def _has_rope_factors(names: Mapping[str, str], stored: Mapping[str, TensorInfo]) -> bool:
    return names.get("rope_factors") in stored


def _expected(
    d: Dimensions, traits: Traits, rope_factors: bool
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """(canonical template, layer, shape) of every tensor. Lazy: `d.layers` may be absurd."""
    yield "embed", 0, (d.vocab, d.hidden)
    if rope_factors:
        yield "rope_factors", 0, (d.head_dim // 2,)
    layer_shapes = _layer_shapes(d, traits)
    for layer in range(d.layers):
        for name, shape in layer_shapes.items():
            yield f"layers.{{i}}.{name}", layer, shape
    yield "norm", 0, (d.hidden,)
    if not traits.tied_head:
        yield "head", 0, (d.vocab, d.hidden)


def _layer_shapes(d: Dimensions, traits: Traits) -> dict[str, tuple[int, ...]]:
    query, key = d.query_heads * d.head_dim, d.kv_heads * d.head_dim
    biases: dict[str, tuple[int, ...]] = {"q_bias": (query,), "k_bias": (key,), "v_bias": (key,)}
    return {
        "attn_norm": (d.hidden,),
        "q": (query, d.hidden),
        "k": (key, d.hidden),
        "v": (key, d.hidden),
        **(biases if traits.qkv_bias else {}),
        "o": (d.hidden, query),
        "ffn_norm": (d.hidden,),
        "gate": (d.ffn, d.hidden),
        "up": (d.ffn, d.hidden),
        "down": (d.hidden, d.ffn),
    }


def _checked(
    source: str, name: str, stored: Mapping[str, TensorInfo], shape: tuple[int, ...]
) -> TensorInfo:
    tensor = stored.get(name)
    if tensor is None:
        raise CheckpointError(
            f"{source} has no tensor {name!r}: the model is incomplete, download it again"
        )
    if tensor.shape != shape:
        raise CheckpointError(
            f"{source}: tensor {name!r} has the shape {tensor.shape} and the model's dimensions "
            f"call for {shape}: the file is damaged, download it again"
        )
    return tensor
