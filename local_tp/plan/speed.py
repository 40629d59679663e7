"""Predicted tokens a second, from bytes, rates and counts of operations.

A first model, stated so that it can be wrong in one place: a token costs each stage the larger of
its ranks' memory time, plus a launch for every operation and a reduction for every half layer.
Constants are of the torch operations of this version; `docs/performance.md` has what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import Device, ModelSpec, Placement, Plan

CPU_BANDWIDTH = 20e9  # bytes a second where it was not measured
CPU_FLOPS = 1.8e11  # operations a second of large products where it was not measured
GPU_BANDWIDTH = 300e9
GPU_FLOPS = 2e13
CPU_EFFICIENCY = 0.75  # share of the memory bandwidth that the packed kernels reach
OPERATIONS_PER_LAYER = 22
OPERATION_SECONDS = {"cpu": 9e-6, "cuda": 5e-6}
REDUCTION_SECONDS = {"none": 0.0, "shared-memory": 25e-6, "gloo": 1e-3, "nccl": 30e-6}
STEP_SECONDS = 5e-4  # scheduling and the way to the workers and back
PREFILL_TOKENS = 512


def predict(spec: ModelSpec, plan: Plan, devices: Sequence[Device]) -> Plan:
    """`plan` with `prefill`, `decode` and `bound` filled in."""
    shared = {id: sum(p.device == id for p in plan.placements) for id in {d.id for d in devices}}
    memory = launch = compute = reduction = 0.0
    for stage in range(plan.stages):
        ranks = plan.stage(stage)
        memory += max(_memory_seconds(p, devices[p.rank], shared[p.device]) for p in ranks)
        compute += max(_compute_seconds(spec, p, devices[p.rank], shared[p.device]) for p in ranks)
        layers = ranks[0].layers.size
        kind = "cpu" if devices[ranks[0].rank].kind == "cpu" else "cuda"
        launch += layers * OPERATIONS_PER_LAYER * OPERATION_SECONDS[kind]
        if len(ranks) > 1:
            reduction += 2 * layers * REDUCTION_SECONDS[plan.transport]
    handover = (plan.stages - 1) * REDUCTION_SECONDS[plan.transport]
    terms = {
        "memory bandwidth": memory,
        "operation launches": launch,
        "exchange between ranks": reduction + handover,
    }
    decode = 1.0 / (sum(terms.values()) + STEP_SECONDS)
    prefill = PREFILL_TOKENS / (compute * PREFILL_TOKENS + launch + reduction + STEP_SECONDS)
    bound = max(terms, key=lambda name: terms[name])
    return replace(plan, decode=decode, prefill=prefill, bound=bound)


def _memory_seconds(p: Placement, device: Device, sharers: int) -> float:
    if device.kind == "cpu":
        return p.weights * sharers / ((device.bandwidth or CPU_BANDWIDTH) * CPU_EFFICIENCY)
    return p.weights * sharers / (device.bandwidth or GPU_BANDWIDTH)


def _compute_seconds(spec: ModelSpec, p: Placement, device: Device, sharers: int) -> float:
    """Seconds of arithmetic for one prompt token: two operations a weight of the layers."""
    d = spec.dimensions
    heads = (2 * p.query_heads.size + 2 * p.kv_heads.size) * d.head_dim
    weights = p.layers.size * d.hidden * (heads + 3 * p.ffn.size)
    fallback = CPU_FLOPS if device.kind == "cpu" else GPU_FLOPS
    return 2 * weights * sharers / (device.flops or fallback)
