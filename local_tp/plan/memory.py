"""Predicted bytes of one rank: weights, KV pages, workspace.

The weights come from the layout that loading iterates; the KV figure is the size of the tensors
that the cache allocates; the workspace is an upper bound on what one step of a full chunk holds at
once. None of them shrinks below what every rank keeps whole (residual stream, logits).
"""

from __future__ import annotations

from dataclasses import replace

from local_tp.core import DeviceKind, Goal, KvFormat, ModelSpec, Placement
from local_tp.plan.layout import weight_bytes

KV_ELEMENT_BYTES: dict[KvFormat, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
SCORED_ROWS = 16  # most prompt tokens of one step whose logits are all wanted
FLOAT = 4


def with_memory(
    spec: ModelSpec, placement: Placement, goal: Goal, tokens: int, kind: DeviceKind
) -> Placement:
    """The placement with its three predictions filled in, for a cache of `tokens` places."""
    return replace(
        placement,
        weights=weight_bytes(spec, placement, goal.dtype, kind),
        kv=kv_bytes(spec, placement, goal.kv_format or "float32", tokens),
        workspace=workspace_bytes(spec, placement, goal.chunk, goal.streams),
    )


def kv_bytes(spec: ModelSpec, placement: Placement, kv_format: KvFormat, tokens: int) -> int:
    """Bytes of the keys and values of `tokens` places in this rank's layers and heads."""
    per_layer = 2 * placement.kv_heads.size * spec.dimensions.head_dim
    return tokens * placement.layers.size * per_layer * KV_ELEMENT_BYTES[kv_format]


def workspace_bytes(spec: ModelSpec, placement: Placement, chunk: int, streams: int) -> int:
    """An upper bound on activations and scratch of one step.

    Counted at the widest point of a layer: residual, normed copy and projection output of the
    chunk, the gate-up product twice over, a matrix unpacked to float32, and the logits of every
    stream, or of the scored rows of a prompt, with one working copy for sampling.
    """
    d = spec.dimensions
    qkv = (placement.query_heads.size + 2 * placement.kv_heads.size) * d.head_dim
    residual = chunk * d.hidden * FLOAT * 3
    attention = chunk * qkv * FLOAT * 2
    feed_forward = chunk * placement.ffn.size * FLOAT * 3
    unpacked = d.hidden * max(2 * placement.ffn.size, qkv) * FLOAT * 2
    last = placement.layers.stop == d.layers
    logits = 2 * max(streams, SCORED_ROWS) * d.vocab * FLOAT if last else 0
    return residual + max(attention, feed_forward) + unpacked + logits
