"""Models and machines of a few bytes, built in memory for the tests of the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import (
    EMPTY,
    Device,
    DeviceKind,
    Dimensions,
    ModelSpec,
    Placement,
    Split,
    TensorInfo,
)
from local_tp.plan.partition import cut, cut_heads, cut_layers
from local_tp.traits import Traits

MIB = 1 << 20
SMALL = Dimensions(
    layers=6, hidden=64, query_heads=6, kv_heads=2, head_dim=32, ffn=256, vocab=512, context=8192
)


def small_spec(
    dimensions: Dimensions = SMALL,
    matrices: str = "Q4_0",
    changes: dict[str, str] | None = None,
    tied: bool = True,
    bias: bool = False,
) -> ModelSpec:
    """A model whose matrices are all stored as `matrices`, but for `changes` by tensor name."""
    tensors: dict[str, TensorInfo] = {}
    for name, shape in _shapes(dimensions, tied, bias).items():
        form = (changes or {}).get(name, "F32" if len(shape) == 1 else matrices)
        nbytes = FORMATS[form].nbytes(*(shape if len(shape) == 2 else (shape[0], 1)))
        tensors[name] = TensorInfo(shape, form, nbytes, "model.gguf", 0)
    traits = Traits(qkv_bias=bias, tied_head=tied)
    return ModelSpec("small", "model.gguf", "llama", dimensions, traits, tensors)


def _shapes(d: Dimensions, tied: bool, bias: bool) -> dict[str, tuple[int, ...]]:
    query, key = d.query_heads * d.head_dim, d.kv_heads * d.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (d.hidden,),
        "q": (query, d.hidden),
        "k": (key, d.hidden),
        "v": (key, d.hidden),
        "o": (d.hidden, query),
        "ffn_norm": (d.hidden,),
        "gate": (d.ffn, d.hidden),
        "up": (d.ffn, d.hidden),
        "down": (d.hidden, d.ffn),
    }
    if bias:
        layer |= {"q_bias": (query,), "k_bias": (key,), "v_bias": (key,)}
    shapes: dict[str, tuple[int, ...]] = {"embed": (d.vocab, d.hidden), "norm": (d.hidden,)}
    if not tied:
        shapes["head"] = (d.vocab, d.hidden)
    for i in range(d.layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes


def processors(count: int, free: int = 1 << 40) -> list[Device]:
    """The CPU, named once for each rank that is to run there."""
    return [Device("cpu", "cpu", "processor", free, free)] * count


def cards(
    *bandwidths: float, kind: DeviceKind = "cuda", free: int = 1 << 40, reserve: int = 0
) -> list[Device]:
    """One card for each bandwidth in bytes a second."""
    card = Device("", kind, "card", free, free, reserve=reserve)
    return [
        replace(card, id=f"0000:0{i}:00.0", bandwidth=bandwidth)
        for i, bandwidth in enumerate(bandwidths)
    ]


def placed(spec: ModelSpec, devices: Sequence[Device], split: Split) -> tuple[Placement, ...]:
    """A dense model over these devices, one rank each: shares by bandwidth, no memory in mind."""
    count, d = len(devices), spec.dimensions
    groups = {
        "single": [range(1)],
        "layer": [range(i, i + 1) for i in range(count)],
        "tensor": [range(count)],
        "hybrid": [range(count - 1), range(count - 1, count)],
    }[split]
    weights = [device.bandwidth or 1.0 for device in devices]
    stages = cut_layers([1.0] * d.layers, [sum(weights[i] for i in group) for group in groups])
    placements: list[Placement] = []
    for stage, (group, layers) in enumerate(zip(groups, stages, strict=True)):
        shares = [weights[i] for i in group]
        heads = cut_heads(d.query_heads, d.kv_heads, shares)
        grain = 64 if d.ffn >= 64 * len(group) else 1
        ffn, vocab = cut(d.ffn, shares, grain), cut(d.vocab, shares)
        speaks = layers.start == 0 or layers.stop == d.layers
        placements += [
            Placement(
                rank,
                devices[rank].id,
                stage,
                layers,
                *heads[i],
                ffn=ffn[i],
                vocab=vocab[i] if speaks else EMPTY,
            )
            for i, rank in enumerate(group)
        ]
    return tuple(placements)
