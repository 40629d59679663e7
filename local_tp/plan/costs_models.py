"""Small models that stand for one class of layers, so that asking about a layer is quick.

A class is what `plan.layout` calls layers that are alike. Knows nothing of shares or devices.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from local_tp.core import ModelSpec, TensorInfo
from local_tp.plan.layer_cut import SHARED_GRAIN


def both_grains(spec: ModelSpec, grain: int) -> int:
    """Dense columns at whose multiples shared experts are cut at their own grain, too."""
    d = spec.dimensions
    if not d.shared_ffn or d.ffn * SHARED_GRAIN % d.shared_ffn:
        return grain
    both = lcm(grain, d.ffn * SHARED_GRAIN // d.shared_ffn)
    return both if d.ffn % both == 0 else grain


def fewest_columns(model: ModelSpec, columns: int, grain: int) -> int:
    """The least dense columns, at a grain, with which a rank holds as much of a layer.

    Columns of shared experts alone follow at their own grain, so that many counts are alike.
    `model` has that layer in its middle.
    """
    dense, shared = model.dimensions.ffn, model.tensors.get("layers.1.shared_gate")
    if shared is None or dense == shared.shape[0] or columns == dense:
        return columns
    total = shared.shape[0]
    grains = columns * total // dense // SHARED_GRAIN
    least = -(-grains * SHARED_GRAIN * dense // total)
    return min(columns, -(-least // grain) * grain)


def tensors_of_layers(spec: ModelSpec) -> list[dict[str, TensorInfo]]:
    """Each layer's tensors by role."""
    layers: list[dict[str, TensorInfo]] = [{} for _ in range(spec.dimensions.layers)]
    for name, info in spec.tensors.items():
        if name.startswith("layers."):
            _, index, role = name.split(".", 2)
            layers[int(index)][role] = info
    return layers


def model_of(spec: ModelSpec, layer: int, tensors: dict[str, TensorInfo]) -> ModelSpec:
    """A model of three layers, all as this one: a first, a middle and a last."""
    edges = {n: info for n, info in spec.tensors.items() if not n.startswith("layers.")}
    copied = {f"layers.{i}.{role}": info for i in range(3) for role, info in tensors.items()}
    return replace(
        spec,
        dimensions=replace(spec.dimensions, layers=3),
        kinds=(spec.kind(layer),) * 3,
        tensors=edges | copied,
    )


def middle_of(model: ModelSpec) -> ModelSpec:
    """The same model with the tensors of its middle layer alone."""
    tensors = {n: info for n, info in model.tensors.items() if n.startswith("layers.1.")}
    return replace(model, tensors=tensors)
