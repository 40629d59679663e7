"""The model families that can be run, a row each: what their files call things, how rows lie.

Knows nothing of file layouts. The sizes of a family's layers are in `shapes`, its maths come from
`config_traits` and `gguf_traits`. A new family is a new row, in the module of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from local_tp.checkpoint.families.dense import DENSE
from local_tp.checkpoint.families.experts import EXPERTS
from local_tp.checkpoint.families.hybrid import HYBRID
from local_tp.checkpoint.families.latent import LATENT
from local_tp.checkpoint.families.nearest import unknown_family
from local_tp.checkpoint.families.row import Family, Naming

__all__ = ["FAMILIES", "Family", "Naming", "folder_family", "gguf_family", "runs"]

FAMILIES = (*DENSE, *EXPERTS, *HYBRID, *LATENT)


def runs(family: str) -> bool:
    """Whether a decoder is there for a family by its name, a config's or GGUF's."""
    return any(family in (row.name, *row.model_types, *row.architectures) for row in FAMILIES)


def gguf_family(source: str, architecture: str, tensors: Iterable[str] = ()) -> Family:
    """The family of a GGUF architecture, or an error that names it and the nearest there is.

    `tensors` are the names of what the file has.
    """
    for family in FAMILIES:
        if architecture in family.architectures:
            return family
    known = {name: family.gguf for family in FAMILIES for name in family.architectures}
    raise unknown_family(source, architecture, known, tensors)


def folder_family(
    source: str, model_type: str | None, tensors: Callable[[], Iterable[str]] = tuple
) -> Family:
    """The family of a `config.json` by its `model_type`; otherwise as `gguf_family`."""
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = {name: family.folder for family in FAMILIES for name in family.model_types}
    raise unknown_family(source, model_type or "none", known, tensors())
