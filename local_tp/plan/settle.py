"""What a goal leaves open and no search decides: the usual context, the types of keys and products.

Pure arithmetic over what is known of the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import Device, Goal, KvFormat, ModelSpec, Product
from local_tp.errors import PlanError

DEFAULT_CONTEXT = 4096


def context_of(spec: ModelSpec, goal: Goal, notes: list[str]) -> int:
    """The context that is asked for, or the usual one with a note. Raises `PlanError`."""
    most = spec.dimensions.context
    if goal.context is None:
        chosen = min(most, DEFAULT_CONTEXT)
        if chosen < most:
            notes.append(f"context {chosen:,} of the model's {most:,}: raise it with --context")
        return chosen
    if goal.context < 1:
        raise PlanError(f"--context {goal.context} is not a length: give at least 1")
    if goal.context > most:
        raise PlanError(
            f"--context {goal.context:,} is more than the model's {most:,}: lower it to {most:,}"
        )
    return goal.context


def settled(goal: Goal, devices: Sequence[Device]) -> Goal:
    """The goal with what it leaves open, and with what was measured of the processor."""
    return replace(
        goal,
        kv_format=goal.kv_format or default_kv_format(devices),
        product=measured_product(devices),
    )


def measured_product(devices: Sequence[Device]) -> Product | None:
    """The type in which the processor among `devices` multiplies fastest; None if unknown."""
    for device in devices:
        rates = dict(device.facts.matmul)
        if device.kind == "cpu" and "float32" in rates and "bfloat16" in rates:
            return "bfloat16" if rates["bfloat16"] > rates["float32"] else "float32"
    return None


def default_kv_format(devices: Sequence[Device]) -> KvFormat:
    """float32 on the CPU, where torch attends fastest in it; 16 bits as soon as a card takes part.

    bfloat16 needs compute capability 8.0, which an unknown one is not assumed to have.
    """
    cards = [d for d in devices if d.kind != "cpu"]
    if not cards:
        return "float32"
    modern = all(d.kind != "cuda" or (d.capability or (0, 0)) >= (8, 0) for d in cards)
    return "bfloat16" if modern else "float16"
