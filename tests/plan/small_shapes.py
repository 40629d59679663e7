"""Models of a few numbers with every kind of layer, and placements of them by any shares."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import EMPTY, Device, ModelSpec, Placement, Span
from local_tp.plan.partition import cut, cut_heads

GRAIN = 8  # columns of these small feed-forwards


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Dense and expert layers; full, sliding, recurrent and compressed attention; all mixed."""
    kv_heads, group, size = draw(st.integers(1, 4)), draw(st.integers(1, 4)), 8
    heads = kv_heads * group
    experts = draw(st.sampled_from([0, 3, 8]))
    mixers = draw(st.sampled_from(["F", "SSF", "RRF", "SRF"]))
    compressed = mixers == "F" and draw(st.booleans())
    narrow = "S" in mixers and draw(st.booleans())
    keys = draw(st.integers(1, 5))  # of recurrent layers, in no relation to KV heads
    values = keys * draw(st.integers(1, 3))
    return Shape(
        layers=draw(st.integers(2, 5)),
        hidden=32,
        heads=heads,
        head_dim=size,
        kv_heads=kv_heads,
        ffn=draw(st.sampled_from([32, 96, 200])),
        vocab=draw(st.sampled_from([40, 130])),
        context=64,
        tied=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        post_norms=draw(st.booleans()),
        sinks=draw(st.booleans()),
        o_bias=draw(st.booleans()),
        output_gate=draw(st.booleans()),
        mixers=mixers,
        window=16 if "S" in mixers else 0,
        full_kv_heads=1 if narrow else 0,
        full_head_dim=2 * size if narrow else 0,
        shared_values=narrow and draw(st.booleans()),
        feeds=draw(st.sampled_from(["E", "DE"])) if experts else "D",
        first_dense=draw(st.integers(0, 1)) if experts else 0,
        experts=experts,
        active_experts=min(experts, 2),
        expert_ffn=16 if experts else 0,
        shared_ffn=draw(st.sampled_from([0, 24, 64])) if experts else 0,
        shared_router=draw(st.booleans()),
        router_correction=draw(st.booleans()),
        expert_biases=draw(st.booleans()),
        query_rank=draw(st.sampled_from([0, 16])) if compressed else 0,
        kv_rank=16 if compressed else 0,
        nope_dim=8,
        rope_dim=4,
        value_dim=12,
        recurrent_keys=keys if "R" in mixers else 0,
        recurrent_values=values if "R" in mixers else 0,
        recurrent_dim=8,
        values_tiled="R" in mixers and values != keys and draw(st.booleans()),
    )


def spec_like(shape: Shape, quant: str = "BF16") -> ModelSpec:
    return spec_of(shape, "small", "small", mix(quant))


def whole(spec: ModelSpec) -> Placement:
    """The one rank that holds everything."""
    return staged(spec, [Span(0, spec.dimensions.layers)], [[1.0]])[0]


def staged(
    spec: ModelSpec, stages: Sequence[Span], shares: Sequence[Sequence[float]]
) -> tuple[Placement, ...]:
    """Ranks for these stages of layers, each cut by its shares."""
    d, placements = spec.dimensions, list[Placement]()
    for stage, (layers, weights) in enumerate(zip(stages, shares, strict=True)):
        heads = cut_heads(d.query_heads, d.kv_heads, weights)
        ffn = cut(d.ffn, weights, GRAIN)
        experts = cut(d.experts, weights) if d.experts else [EMPTY] * len(weights)
        speaks = layers.start == 0 or layers.stop == d.layers
        vocab = cut(d.vocab, weights) if speaks else [EMPTY] * len(weights)
        placements += [
            Placement(
                len(placements) + i,
                f"card{len(placements) + i}",
                stage,
                layers,
                *heads[i],
                ffn=ffn[i],
                vocab=vocab[i],
                experts=experts[i],
            )
            for i in range(len(weights))
        ]
    return tuple(placements)


def devices_of(placements: Sequence[Placement]) -> list[Device]:
    return [Device(p.device, "cuda", "card", 1 << 40, 1 << 40) for p in placements]


@st.composite
def cases(draw: st.DrawFn) -> tuple[ModelSpec, tuple[Placement, ...]]:
    """Any shape, cut into one or two stages of one to six ranks with any shares."""
    spec = spec_like(draw(shapes()))
    layers = spec.dimensions.layers
    at = draw(st.integers(0, layers - 1))
    stages = [Span(0, at), Span(at, layers)] if at else [Span(0, layers)]
    weights = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6)
    return spec, staged(spec, stages, [draw(weights) for _ in stages])
