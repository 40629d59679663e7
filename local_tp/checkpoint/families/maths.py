"""What single dense families do with the numbers in their configs and GGUF metadata.

Each function takes the traits that all families have in common and gives those of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from local_tp.checkpoint.fields import Fields
from local_tp.traits import Growth, RopeScaling, Traits


def yarn_attention(factor: float, weight: float) -> float:
    """What a context `factor` times longer makes of attention (arXiv 2309.00071, 3.4)."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def gemma(traits: Traits, config: Fields) -> Traits:
    """Embeddings are scaled by the root of their size."""
    if config.get("use_bidirectional_attention") not in (None, False):
        raise config.wrong("use_bidirectional_attention", "false")
    return replace(traits, embed_scale=math.sqrt(config.integer("hidden_size")))


def gemma2(traits: Traits, config: Fields) -> Traits:
    """Scores and logits are capped; a null switches that off, and silence does not."""
    return replace(
        gemma(traits, config),
        attention_scale=1.0 / math.sqrt(config.real("query_pre_attn_scalar", 256.0)),
        attention_cap=_cap(config, "attn_logit_softcapping", 50.0),
        logit_cap=_cap(config, "final_logit_softcapping", 30.0),
    )


def gemma3(traits: Traits, config: Fields) -> Traits:
    return replace(
        gemma(traits, config),
        attention_scale=1.0 / math.sqrt(config.real("query_pre_attn_scalar", 256.0)),
        attention_cap=_cap(config, "attn_logit_softcapping", 0.0),
        logit_cap=_cap(config, "final_logit_softcapping", 0.0),
    )


def _cap(config: Fields, key: str, default: float) -> float:
    if config.get(key) is None:
        return 0.0 if key in config.values else default
    return config.real(key)


def granite(traits: Traits, config: Fields) -> Traits:
    return replace(
        traits,
        embed_scale=config.real("embedding_multiplier", 1.0),
        residual_scale=config.real("residual_multiplier", 1.0),
        attention_scale=config.real("attention_multiplier", 1.0),
        logit_scale=1.0 / config.real("logits_scaling", 1.0),
    )


def cohere2(traits: Traits, config: Fields) -> Traits:
    return replace(
        traits,
        norm="layer",
        norm_eps=config.real("layer_norm_eps", 1e-5),
        logit_scale=config.real("logit_scale", 0.0625),
    )


def ministral3(traits: Traits, config: Fields) -> Traits:
    rope = config.inner("rope_parameters")
    if rope is None or rope.get("llama_4_scaling_beta") in (None, 0):
        return traits
    every = rope.integer("original_max_position_embeddings")
    return replace(traits, query_growth=Growth(rope.real("llama_4_scaling_beta"), every))


# ------------------------------------------------------------------------ the same from GGUF


def _said(metadata: Fields, key: str, default: float | None = None) -> float:
    return metadata.real(_key(metadata, key), default)


def _key(metadata: Fields, key: str) -> str:
    return f"{metadata.text('general.architecture')}.{key}"


def gguf_gemma(traits: Traits, metadata: Fields) -> Traits:
    hidden = metadata.integer(_key(metadata, "embedding_length"))
    return replace(traits, activation="gelu", embed_scale=math.sqrt(hidden))


def gguf_gemma2(traits: Traits, metadata: Fields) -> Traits:
    return replace(
        _gguf_scaled(traits, metadata, 46),
        attention_cap=_said(metadata, "attn_logit_softcapping", 50.0),
        logit_cap=_said(metadata, "final_logit_softcapping", 30.0),
    )


def gguf_gemma3(traits: Traits, metadata: Fields) -> Traits:
    return _gguf_scaled(traits, metadata, 62)


def _gguf_scaled(traits: Traits, metadata: Fields, layers: int) -> Traits:
    """Files do not say by what scores are scaled: the model of so many layers, the 27B, goes by the
    hidden size of a head, the others by a head's own size."""
    traits = gguf_gemma(traits, metadata)
    if metadata.integer(_key(metadata, "block_count")) != layers:
        return traits
    hidden = metadata.integer(_key(metadata, "embedding_length"))
    heads = metadata.integer(_key(metadata, "attention.head_count"))
    return replace(traits, attention_scale=1.0 / math.sqrt(hidden / heads))


def gguf_phi3(traits: Traits, metadata: Fields) -> Traits:
    """The factors of longrope are tensors; metadata has the rest of it."""
    context = metadata.integer(_key(metadata, "context_length"), default=4096)
    original = metadata.integer(_key(metadata, "rope.scaling.original_context_length"), context)
    attention = _said(metadata, "rope.scaling.attn_factor", 1.0)
    scaling = RopeScaling("longrope", 1.0, original_context=original, attention=attention)
    return replace(traits, ropes=(replace(traits.ropes[0], scaling=scaling),))


def gguf_granite(traits: Traits, metadata: Fields) -> Traits:
    return replace(
        traits,
        embed_scale=_said(metadata, "embedding_scale", 1.0),
        residual_scale=_said(metadata, "residual_scale", 1.0),
        attention_scale=_said(metadata, "attention.scale", 1.0),
        logit_scale=1.0 / _said(metadata, "logit_scale", 1.0),
    )


def gguf_cohere2(traits: Traits, metadata: Fields) -> Traits:
    return replace(traits, norm="layer", logit_scale=_said(metadata, "logit_scale"))


def gguf_mistral3(traits: Traits, metadata: Fields) -> Traits:
    key = "attention.temperature_scale"
    if metadata.get(_key(metadata, key)) is None:
        return traits
    every = metadata.integer(_key(metadata, "rope.scaling.original_context_length"))
    return replace(traits, query_growth=Growth(_said(metadata, key), every))
