"""The rotary embeddings that a `config.json` states, in the forms of all ages.

`rope_theta` stands in `rope_parameters` since transformers 5, and beside it before; what scales the
frequencies is there too, or in the older `rope_scaling`. Models whose sliding layers turn otherwise
have such values for each type of layer. Knows nothing of families but what their row says.
"""

from __future__ import annotations

import math
from dataclasses import replace

from local_tp.checkpoint.families import Family
from local_tp.checkpoint.families.maths import yarn_attention
from local_tp.checkpoint.fields import Fields, shown
from local_tp.errors import CheckpointError
from local_tp.traits import Rope, RopeScaling

_FULL, _SLIDING = "full_attention", "sliding_attention"
_KINDS = ("linear", "llama3", "yarn", "dynamic", "longrope")
_OLDER = {"su": "longrope"}


def ropes(config: Fields, family: Family, head_dim: int) -> tuple[Rope, ...]:
    """The embedding of sliding layers, where they have one of their own, and that of the others.

    Raises `CheckpointError`.
    """
    stated = config.inner("rope_parameters") or config.inner("rope_scaling")
    full = stated and stated.inner(_FULL)
    rope = _rope(config, full or stated, family.theta, family.rotated, head_dim)
    if not family.local_theta:
        return (rope,)
    local = stated and stated.inner(_SLIDING)
    if local is not None:
        return _rope(config, local, family.local_theta, family.rotated, head_dim), rope
    common = family.local_theta == family.theta
    theta = config.real("rope_local_base_freq", rope.theta if common else family.local_theta)
    return replace(rope, theta=theta, scaling=None), rope


def _rope(
    config: Fields, stated: Fields | None, theta: float, rotated: float, head_dim: int
) -> Rope:
    part = _either(config, stated, "partial_rotary_factor", rotated)
    size = int(head_dim * part)
    if size < 2 or size % 2 or size > head_dim:
        raise config.wrong("partial_rotary_factor", f"an even part of the {head_dim} of a head")
    base = _either(config, stated, "rope_theta", theta)
    if base <= 1.0:
        raise (stated or config).wrong("rope_theta", "a number above 1")
    return Rope(
        base,
        0 if size == head_dim else size,
        scaling(config, stated, size) if stated else None,
    )


def _either(config: Fields, stated: Fields | None, key: str, default: float) -> float:
    older = config.real(key, default)
    return older if stated is None else stated.real(key, older)


def scaling(config: Fields, stated: Fields, size: int) -> RopeScaling | None:
    """How `stated` scales the frequencies of `size` rotated elements. Raises `CheckpointError`."""
    kind = stated.text("rope_type") or stated.text("type") or "default"
    kind = _OLDER.get(kind, kind)
    if kind == "default":
        return None
    if kind not in _KINDS:
        raise CheckpointError(
            f"{stated.source} scales the rotary embedding by {shown(kind)}, which is not supported "
            f"yet: choose a model with {', '.join(_KINDS)} scaling or none"
        )
    context = config.integer("max_position_embeddings", default=2048)
    if kind == "linear":
        return RopeScaling("linear", stated.real("factor"))
    if kind == "dynamic":
        if size < 4:
            raise stated.wrong("rope_type", f"another scaling, for heads of {size} elements,")
        return RopeScaling("dynamic", _factor(stated), original_context=context)
    original = stated.integer("original_max_position_embeddings", default=context)
    if kind == "llama3":
        return _llama3(stated, original)
    # A value beside the scaling is the one its maker means (phi3).
    original = config.integer("original_max_position_embeddings", default=original)
    if kind == "yarn":
        return _yarn(stated, context / original, original)
    return _longrope(stated, context / original, original, size)


def _factor(stated: Fields, default: float | None = None) -> float:
    factor = stated.real("factor", default)
    if factor < 1.0:
        raise stated.wrong("factor", "1 or more")
    return factor


def _llama3(stated: Fields, original: int) -> RopeScaling:
    low, high = stated.real("low_freq_factor"), stated.real("high_freq_factor")
    if low >= high:  # the blend between them divides by their difference
        raise stated.wrong("high_freq_factor", f"a number above low_freq_factor ({low})")
    return RopeScaling("llama3", stated.real("factor"), low, high, original)


def _yarn(stated: Fields, ratio: float, original: int) -> RopeScaling:
    """Yet another RoPE extension (arXiv 2309.00071)."""
    factor = _factor(stated, max(1.0, ratio))
    attention = yarn_attention(factor, 1.0)
    if stated.get("mscale") and stated.get("mscale_all_dim"):
        whole = yarn_attention(factor, stated.real("mscale_all_dim"))
        attention = yarn_attention(factor, stated.real("mscale")) / whole
    fast, slow = stated.real("beta_fast", 32.0), stated.real("beta_slow", 1.0)
    if slow > fast:
        raise stated.wrong("beta_slow", f"at most beta_fast ({fast})")
    return RopeScaling(
        "yarn",
        factor,
        original_context=original,
        beta_fast=fast,
        beta_slow=slow,
        truncate=stated.flag("truncate", default=True),
        attention=stated.real("attention_factor", attention),
    )


def _longrope(stated: Fields, ratio: float, original: int, size: int) -> RopeScaling:
    """A factor for each frequency (arXiv 2402.13753)."""
    factor = stated.real("factor", ratio)
    attention = 1.0
    if factor > 1.0 and original > 1:
        attention = math.sqrt(1 + math.log(factor) / math.log(original))
    return RopeScaling(
        "longrope",
        factor,
        original_context=original,
        short=_factors(stated, "short_factor", size),
        long=_factors(stated, "long_factor", size),
        attention=stated.real("attention_factor", attention),
    )


def _factors(stated: Fields, key: str, size: int) -> tuple[float, ...]:
    given = stated.get(key)
    values = given if isinstance(given, list | tuple) else ()
    numbers = tuple(float(v) for v in values if type(v) in (int, float) and 0 < v < 1e30)
    if len(numbers) != size // 2 or len(values) != len(numbers):
        raise stated.wrong(key, f"{size // 2} positive numbers")
    return numbers
