"""The maths that a `config.json` states, family by family the same keys.

Knows nothing of tensors. What only one family does stands in its row of `families`, which gets to
change what is read here.
"""

from __future__ import annotations

from local_tp.checkpoint.config_rope import ropes
from local_tp.checkpoint.families import Family
from local_tp.checkpoint.fields import Fields
from local_tp.checkpoint.shapes import Shape
from local_tp.core import LayerKind
from local_tp.traits import Activation, Traits


def config_traits(config: Fields, family: Family, shape: Shape) -> Traits:
    """The traits of a model whose sizes are `shape`. Raises `CheckpointError`."""
    if config.flag("mlp_bias", default=False):
        raise config.wrong("mlp_bias", "false (biases in the MLP are not supported yet)")
    traits = Traits(
        norm_eps=config.real("rms_norm_eps", config.real("layer_norm_eps", 1e-6)),
        ropes=ropes(config, family, shape.rope_dim or shape.head_dim),
        activation=_activation(config, family),
        parallel=shape.parallel,
        qkv_bias=shape.qkv_bias,
        tied_head=shape.tied,
    )
    return family.adjust(traits, config)


def layer_kinds(config: Fields, shape: Shape) -> tuple[LayerKind, ...]:
    """Every layer's kind; none where all are plain."""
    kinds = tuple(shape.kind(layer) for layer in range(shape.layers))
    return () if all(kind == LayerKind() for kind in kinds) else kinds


def _activation(config: Fields, family: Family) -> Activation:
    key = "hidden_activation" if config.get("hidden_activation") is not None else "hidden_act"
    stated = config.text(key) or "silu"
    if stated not in family.activations:
        raise config.wrong(key, " or ".join(map(repr, family.activations)))
    return family.activations[stated]
