"""What a row of the table of families says. Knows nothing of any family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from local_tp.checkpoint.fields import Fields
from local_tp.core import ModelSpec
from local_tp.traits import Activation, Traits

# By the names that configs have for them.
ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu",
}

Adjust = Callable[[Traits, Fields], Traits]
Checked = Literal["not yet", "some splits", "every split"]
SOME: Checked = "some splits"
EVERY: Checked = "every split"
Groups = Callable[[ModelSpec, str], int]  # of a model and the number of a layer


@dataclass(frozen=True, slots=True)
class Naming:
    """How one kind of file calls a family's tensors, and in which order it keeps rows.

    `names` map canonical names to stored ones, `{i}` standing for the layer; `fused` map a stored
    tensor to those that lie in it one above the other. Where it is among `grouped`, its rows are so
    many groups alike, each with a part of every one of those. Matrices of experts or heads that are
    `transposed` are stored as (experts, columns, rows). `paired`: rows of q and k are in the order
    of interleaved rotary pairs. `shifted`: norms are stored less one. `unused` are endings of
    stored names that hold nothing a forward pass needs.
    """

    names: Mapping[str, str]
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    grouped: Mapping[str, Groups] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    paired: bool = False
    shifted: bool = False
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """`model_types` are those of `config.json`, `architectures` GGUF's.

    `adjust` sees what a `config.json` states and makes of its traits what the family means by it,
    `adjust_gguf` does so with a GGUF file's metadata. `theta` is the base of its rotary embedding
    where files do not say it, `rotated` the part of a head that is turned. With `local_theta`
    sliding layers have an embedding of their own, of that base and unscaled, before the others'.
    `folder_checked` and `gguf_checked` say in which splits a small model of the family, in such
    files, gave the logits of transformers (`tests/families`).
    """

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    folder: Naming
    gguf: Naming
    adjust: Adjust = lambda traits, _: traits
    adjust_gguf: Adjust = lambda traits, _: traits
    theta: float = 10000.0
    local_theta: float = 0.0
    rotated: float = 1.0
    activations: Mapping[str, Activation] = field(default_factory=lambda: ACTIVATIONS)
    folder_checked: Checked = "not yet"
    gguf_checked: Checked = "not yet"
