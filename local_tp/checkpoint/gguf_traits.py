"""The maths that a GGUF file's metadata states, under the keys of its architecture.

Knows nothing of tensors. What only one family does stands in its row of `families`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from local_tp.checkpoint.families import Family
from local_tp.checkpoint.families.maths import yarn_attention
from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.shapes import Shape
from local_tp.errors import CheckpointError
from local_tp.traits import Rope, RopeScaling, Traits


def gguf_traits(metadata: Fields, prefix: str, family: Family, shape: Shape) -> Traits:
    """The traits of a model whose sizes are `shape`. Raises `CheckpointError`."""
    traits = Traits(
        norm_eps=_epsilon(metadata, f"{prefix}.attention"),
        ropes=_ropes(metadata, f"{prefix}.rope", family, shape),
        parallel=shape.parallel,
        attention_scale=1.0 / math.sqrt(shape.head_dim) if shape.kv_rank else 0.0,
        values_tiled=shape.values_tiled,
        qkv_bias=shape.qkv_bias,
        tied_head=shape.tied,
    )
    return family.adjust_gguf(traits, metadata)


def _epsilon(metadata: Fields, at: str) -> float:
    if metadata.get(f"{at}.layer_norm_rms_epsilon") is None:
        return metadata.real(f"{at}.layer_norm_epsilon")
    return metadata.real(f"{at}.layer_norm_rms_epsilon")


def _ropes(metadata: Fields, at: str, family: Family, shape: Shape) -> tuple[Rope, ...]:
    """The embedding of sliding layers, where they have one of their own, and that of the others."""
    head = shape.rope_dim or shape.head_dim
    size = metadata.integer(f"{at}.dimension_count", default=head)
    if size > head or size % 2:
        raise metadata.wrong(f"{at}.dimension_count", f"an even number up to {head}")
    theta = _base(metadata, f"{at}.freq_base", family.theta)
    rope = Rope(theta, 0 if size == shape.head_dim else size, _scaling(metadata, at, shape))
    if not family.local_theta:
        return (rope,)
    local = theta if family.local_theta == family.theta else family.local_theta
    return replace(rope, theta=_base(metadata, f"{at}.freq_base_swa", local), scaling=None), rope


def _base(metadata: Fields, key: str, default: float) -> float:
    theta = metadata.real(key, default)
    if theta <= 1.0:
        raise metadata.wrong(key, "a number above 1")
    return theta


def _scaling(metadata: Fields, at: str, shape: Shape) -> RopeScaling | None:
    """(llama3's and longrope's factors come as tensors, and need nothing here.)"""
    kind = metadata.text(f"{at}.scaling.type")
    older = metadata.real(f"{at}.scale_linear", default=1.0)
    factor = metadata.real(f"{at}.scaling.factor", default=older)
    if kind not in (None, "none", "linear", "yarn", "longrope"):
        raise CheckpointError(
            f"{metadata.source} scales its rotary embedding by {shown(kind)}, which is not "
            "supported yet: choose a model with linear, yarn, longrope or llama3 scaling"
        )
    if kind == "yarn" and factor > 1.0:
        return _yarn(metadata, f"{at}.scaling", factor, shape.context)
    return RopeScaling("linear", factor) if kind in (None, "linear") and factor != 1.0 else None


def _yarn(metadata: Fields, at: str, factor: float, context: int) -> RopeScaling:
    whole = 1.0
    if metadata.get(f"{at}.yarn_log_multiplier") is not None:
        whole = yarn_attention(factor, metadata.real(f"{at}.yarn_log_multiplier"))
    fast = metadata.real(f"{at}.yarn_beta_fast", 32.0)
    slow = metadata.real(f"{at}.yarn_beta_slow", 1.0)
    if slow > fast:
        raise metadata.wrong(f"{at}.yarn_beta_slow", f"at most yarn_beta_fast ({fast})")
    return RopeScaling(
        "yarn",
        factor,
        original_context=metadata.integer(f"{at}.original_context_length", context),
        beta_fast=fast,
        beta_slow=slow,
        attention=yarn_attention(factor, 1.0) / whole,
    )
