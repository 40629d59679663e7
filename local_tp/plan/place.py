"""Placements by a ratio: a person's shares, or the devices' bandwidths, at each part's grain.

Looks at neither memory nor time; `plan.search` does. Every unit has one owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from local_tp.core import EMPTY, Device, Goal, ModelSpec, Placement, Span, Split
from local_tp.plan.costs import GRAIN, NOTHING, tables_of
from local_tp.plan.layout import column_grain
from local_tp.plan.partition import cut, cut_heads, cut_layers, grain_of


def place(
    spec: ModelSpec, devices: Sequence[Device], split: Split, goal: Goal
) -> tuple[Placement, ...]:
    """Placements for one named split over `devices`, one rank each, in proportion."""
    ranks = len(devices)
    groups = {
        "single": [range(1)],
        "layer": [range(i, i + 1) for i in range(ranks)],
        "tensor": [range(ranks)],
        "hybrid": [range(ranks - 1), range(ranks - 1, ranks)],
    }[split]
    weights = goal.shares or _bandwidth_weights(devices)
    costs = _layer_costs(spec, goal)
    grain = column_grain(spec, goal.dtype)
    stages = cut_layers(costs, [sum(weights[i] for i in group) for group in groups])
    return tuple(
        placement
        for stage, (group, layers) in enumerate(zip(groups, stages, strict=True))
        for placement in _place_stage(spec, devices, weights, stage, group, layers, grain)
    )


def _place_stage(
    spec: ModelSpec,
    devices: Sequence[Device],
    weights: Sequence[float],
    stage: int,
    group: range,
    layers: Span,
    grain: int,
) -> list[Placement]:
    d = spec.dimensions
    shares = [weights[i] for i in group]
    heads = cut_heads(d.query_heads, d.kv_heads, shares)
    ffn = cut(d.ffn, shares, grain_of(d.ffn, grain, len(group)))
    experts = cut(d.experts, shares)
    speaks = layers.start == 0 or layers.stop == d.layers
    vocab = cut(d.vocab, shares, GRAIN) if speaks else [EMPTY] * len(group)
    return [
        Placement(
            rank,
            devices[rank].id,
            stage,
            layers,
            *heads[i],
            ffn=ffn[i],
            vocab=vocab[i],
            experts=experts[i],
        )
        for i, rank in enumerate(group)
    ]


def _bandwidth_weights(devices: Sequence[Device]) -> list[float]:
    """Shares by memory bandwidth where all are known and of one kind, else equal."""
    known = [d.bandwidth for d in devices if d.bandwidth]
    if len(known) == len(devices) and all(d.kind != "cpu" for d in devices):
        return known
    return [1.0] * len(devices)


def _layer_costs(spec: ModelSpec, goal: Goal) -> list[float]:
    """Bytes of each layer that a token reads; the head counts with the last."""
    d, tables = spec.dimensions, tables_of(spec, goal)
    whole = NOTHING._replace(
        query=d.query_heads, kv=d.kv_heads, ffn=d.ffn, experts=d.experts, vocab=d.vocab
    )
    costs = [float(tables.layer_bytes("cpu", index, whole)) for index in tables.of_layer]
    costs[-1] += float(tables.edge_bytes("cpu", whole, False, True))
    return costs
