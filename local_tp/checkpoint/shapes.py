"""A model as a table of sizes, and the tensors that a file of it would hold.

Knows nothing of where the sizes come from. What is made here has the canonical names of a read
checkpoint, without a path: it can be planned and not run. Routed experts of a layer are one stacked
tensor of (experts x rows, columns).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.mixes import Mix, Place
from local_tp.core import Dimensions, Feed, LayerKind, Mixer, ModelSpec, TensorInfo
from local_tp.errors import CheckpointError
from local_tp.traits import Traits

_MIXERS: dict[str, Mixer] = {"F": "full", "S": "sliding", "R": "recurrent"}
_FEEDS: dict[str, Feed] = {"D": "dense", "E": "experts"}

Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder-only transformer. 0 where it has no such thing.

    `mixers` has a letter a layer (Full, Sliding, Recurrent) and `feeds` too (Dense, Experts); both
    repeat to the end of the layers, feeds after `first_dense` dense ones. `full_*` are those of
    full layers where they differ from sliding ones. With `kv_rank`, keys and values are compressed
    to `kv_rank` + `rope_dim` elements, and heads have `nope_dim` + `rope_dim` for keys and
    `value_dim`. `recurrent_*` are of gated delta nets: `recurrent_dim` is the size of their heads.
    """

    layers: int
    hidden: int
    heads: int
    head_dim: int
    vocab: int
    context: int
    kv_heads: int = 0
    ffn: int = 0
    tied: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    wide_norms: bool = False  # of q and k are over all heads together
    pre_norms: bool = True  # of what attention and feed-forward get
    post_norms: bool = False  # of what they give
    parallel: bool = False  # both get the same, of one norm
    sinks: bool = False
    output_gate: bool = False  # the query projection makes a gate, too
    shared_values: bool = False  # full layers use their keys as values
    mixers: str = "F"
    ropes: tuple[int, ...] = (0,)  # of each layer, as `mixers`: see `LayerKind`
    feeds: str = "D"
    first_dense: int = 0
    window: int = 0
    full_kv_heads: int = 0
    full_head_dim: int = 0
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_router: bool = False  # a gate weighs what shared experts give
    router_correction: bool = False  # of scores, where experts are compared with one another
    expert_biases: bool = False  # of the router, too
    query_rank: int = 0
    kv_rank: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    recurrent_keys: int = 0
    recurrent_values: int = 0
    recurrent_dim: int = 128
    recurrent_kernel: int = 4
    values_tiled: bool = False  # value head v belongs to key head v modulo their number

    def kind(self, layer: int) -> LayerKind:
        dense = layer < self.first_dense
        feed = "D" if dense else self.feeds[(layer - self.first_dense) % len(self.feeds)]
        return LayerKind(
            _MIXERS[self.mixers[layer % len(self.mixers)]],
            _FEEDS[feed],
            self.ropes[layer % len(self.ropes)],
        )


def spec_of(shape: Shape, name: str, family: str, mix: Mix) -> ModelSpec:
    """The model as planning sees it, every tensor in the format that `mix` gives it."""
    kinds = tuple(shape.kind(layer) for layer in range(shape.layers))
    plain = all(kind == LayerKind() for kind in kinds)
    return ModelSpec(
        name=name,
        path="",
        family=family,
        dimensions=dimensions_of(shape),
        traits=Traits(
            qkv_bias=shape.qkv_bias,
            tied_head=shape.tied,
            values_tiled=shape.values_tiled,
            parallel=shape.parallel,
        ),
        tensors=_tensors(shape, kinds, mix),
        kinds=() if plain else kinds,
    )


def dimensions_of(shape: Shape) -> Dimensions:
    """The nouns' sizes. Shared experts stand in for dense columns where no layer is dense."""
    kv_heads = shape.heads if shape.kv_rank else shape.kv_heads or shape.heads
    if shape.heads % kv_heads:
        raise CheckpointError(f"{shape.heads} query heads cannot share {kv_heads} KV heads evenly")
    dense = any(shape.kind(layer).feed == "dense" for layer in range(shape.layers))
    return Dimensions(
        layers=shape.layers,
        hidden=shape.hidden,
        query_heads=shape.heads,
        kv_heads=kv_heads,
        head_dim=shape.nope_dim + shape.rope_dim if shape.kv_rank else shape.head_dim,
        ffn=shape.ffn if dense else shape.shared_ffn,
        vocab=shape.vocab,
        context=shape.context,
        window=shape.window,
        experts=shape.experts,
        active_experts=shape.active_experts,
        expert_ffn=shape.expert_ffn,
        shared_ffn=shape.shared_ffn,
        kv_row=shape.kv_rank + shape.rope_dim if shape.kv_rank else 0,
        state=_state(shape),
    )


def _state(shape: Shape) -> int:
    """A matrix for each value head, and the convolution's last inputs."""
    size = shape.recurrent_dim
    inputs = (2 * shape.recurrent_keys + shape.recurrent_values) * size
    return shape.recurrent_values * size * size + inputs * (shape.recurrent_kernel - 1)


def parameter_count(spec: ModelSpec) -> int:
    """Numbers in all tensors."""
    return sum(prod(info.shape) for info in spec.tensors.values())


def active_count(spec: ModelSpec) -> int:
    """Numbers that one token meets: of the routed experts only those it is sent to."""
    d = spec.dimensions
    idle = sum(
        prod(info.shape) * (d.experts - d.active_experts) // d.experts
        for name, info in spec.tensors.items()
        if ".experts_" in name
    )
    return parameter_count(spec) - idle


# ----------------------------------------------------------------------------- the tensors


def _tensors(shape: Shape, kinds: tuple[LayerKind, ...], mix: Mix) -> dict[str, TensorInfo]:
    sizes = {kind: _layer_sizes(shape, kind) for kind in set(kinds)}
    counts = Counter(role for kind in kinds for role in sizes[kind])
    seen: Counter[str] = Counter()
    tensors = {"embed": _info(shape, mix, "embed", (shape.vocab, shape.hidden))}
    for layer, kind in enumerate(kinds):
        for role, size in sizes[kind].items():
            name = f"layers.{layer}.{role}"
            tensors[name] = _info(shape, mix, role, size, seen[role], counts[role])
            seen[role] += 1
    tensors["norm"] = _info(shape, mix, "norm", (shape.hidden,))
    if not shape.tied:
        tensors["head"] = _info(shape, mix, "head", (shape.vocab, shape.hidden))
    return tensors


def _info(
    shape: Shape, mix: Mix, role: str, size: tuple[int, ...], index: int = 0, count: int = 1
) -> TensorInfo:
    if len(size) == 1:
        return TensorInfo(size, "F32", 4 * size[0], "", 0)
    groups = shape.heads // (shape.kv_heads or shape.heads)
    place = Place(role, index, count, size[1], groups, shape.experts)
    name = mix.format_of(place, shape.tied)
    return TensorInfo(size, name, FORMATS[name].nbytes(*size), "", 0)


def _layer_sizes(shape: Shape, kind: LayerKind) -> Sizes:
    """Every tensor of one layer by role, in the order of the forward pass."""
    hidden = (shape.hidden,)
    mixer = {
        "full": _compressed if shape.kv_rank else _attention,
        "sliding": _attention,
        "recurrent": _recurrent,
    }[kind.mixer]
    post: Mapping[str, tuple[int, ...]] = (
        {"post_attn_norm": hidden, "post_ffn_norm": hidden} if shape.post_norms else {}
    )
    before: Mapping[str, tuple[int, ...]] = {"attn_norm": hidden} if shape.pre_norms else {}
    between = {"ffn_norm": hidden} if shape.pre_norms and not shape.parallel else {}
    return {
        **before,
        **dict(mixer(shape, kind)),
        **between,
        **dict(_experts(shape) if kind.feed == "experts" else _dense(shape)),
        **post,
    }


Roles = Iterator[tuple[str, tuple[int, ...]]]


def _attention(shape: Shape, kind: LayerKind) -> Roles:
    full = kind.mixer == "full"
    size = (full and shape.full_head_dim) or shape.head_dim
    query = shape.heads * size
    key = ((full and shape.full_kv_heads) or shape.kv_heads or shape.heads) * size
    rows = {"q": query * (2 if shape.output_gate else 1), "k": key}
    if not (full and shape.shared_values):
        rows["v"] = key
    yield from ((role, (count, shape.hidden)) for role, count in rows.items())
    if shape.qkv_bias:
        yield from ((f"{role}_bias", (count,)) for role, count in rows.items())
    if shape.qk_norm:
        wide = shape.wide_norms
        yield from (("q_norm", (query if wide else size,)), ("k_norm", (key if wide else size,)))
    if shape.sinks:
        yield "sinks", (shape.heads,)
    yield "o", (shape.hidden, query)
    if shape.o_bias:
        yield "o_bias", (shape.hidden,)


def _compressed(shape: Shape, kind: LayerKind) -> Roles:
    query = shape.heads * (shape.nope_dim + shape.rope_dim)
    if shape.query_rank:
        yield "q_down", (shape.query_rank, shape.hidden)
        yield "q_down_norm", (shape.query_rank,)
    yield "q", (query, shape.query_rank or shape.hidden)
    yield "kv_down", (shape.kv_rank + shape.rope_dim, shape.hidden)
    yield "kv_down_norm", (shape.kv_rank,)
    yield "k_up", (shape.heads * shape.nope_dim, shape.kv_rank)
    yield "v_up", (shape.heads * shape.value_dim, shape.kv_rank)
    yield "o", (shape.hidden, shape.heads * shape.value_dim)


def _recurrent(shape: Shape, kind: LayerKind) -> Roles:
    key, value = (n * shape.recurrent_dim for n in (shape.recurrent_keys, shape.recurrent_values))
    kernel = shape.recurrent_kernel
    yield from ((f"mix_{name}", (key, shape.hidden)) for name in "qk")
    yield from ((f"mix_{name}", (value, shape.hidden)) for name in "vz")
    yield from (
        (f"mix_{name}", (shape.recurrent_values, shape.hidden)) for name in ("beta", "alpha")
    )
    yield from ((f"mix_conv_{name}", (key, kernel)) for name in "qk")
    yield "mix_conv_v", (value, kernel)
    yield from ((f"mix_{name}", (shape.recurrent_values,)) for name in ("decay", "step"))
    yield "mix_norm", (shape.recurrent_dim,)
    yield "mix_o", (shape.hidden, value)


def _dense(shape: Shape) -> Roles:
    yield "gate", (shape.ffn, shape.hidden)
    yield "up", (shape.ffn, shape.hidden)
    yield "down", (shape.hidden, shape.ffn)


def _experts(shape: Shape) -> Roles:
    rows = shape.experts * shape.expert_ffn
    yield "router", (shape.experts, shape.hidden)
    if shape.router_correction:
        yield "router_correction", (shape.experts,)
    yield "experts_gate", (rows, shape.hidden)
    yield "experts_up", (rows, shape.hidden)
    yield "experts_down", (shape.experts * shape.hidden, shape.expert_ffn)
    if shape.expert_biases:
        yield "router_bias", (shape.experts,)
        yield from ((f"experts_{role}_bias", (rows,)) for role in ("gate", "up"))
        yield "experts_down_bias", (shape.experts * shape.hidden,)
    if shape.shared_ffn:
        if shape.shared_router:
            yield "shared_router", (shape.hidden,)
        yield "shared_gate", (shape.shared_ffn, shape.hidden)
        yield "shared_up", (shape.shared_ffn, shape.hidden)
        yield "shared_down", (shape.hidden, shape.shared_ffn)
