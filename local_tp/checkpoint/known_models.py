"""Well-known models by name: the table `presets/models.toml`, for planning before a download.

Knows nothing of files of models. What comes from here has no path, so it can be planned and not
run. Every row's sizes add up to the number of parameters its publisher states.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local_tp import settings
from local_tp.checkpoint.fields import shown
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.codec import decode
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError, InputError

_ADDED = re.compile(r"(instruct|chat|it|base|thinking|latest|hf|gguf|awq|gptq|fp8|bf16|int4)+$")
DEFAULT = "default"  # what a program picks for somebody who names no quantization


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A row. `parameters` and `active` are thousands of millions, as published."""

    name: str
    family: str
    source: str
    parameters: float
    shape: Shape
    active: float | None = None
    native: str = "BF16"
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Table:
    model: tuple[KnownModel, ...]


def names() -> tuple[str, ...]:
    """Every model's name, in the order of the table."""
    return tuple(row.name for row in table())


def find(name: str) -> KnownModel | None:
    """The row of that name or alias, however spaces, hyphens, colons and capitals are set.

    What repositories add to a name (an owner, -Instruct, -GGUF, …) may be there or not.
    """
    spelled = _spelling(name)
    return _by_spelling().get(spelled) or _by_spelling().get(_ADDED.sub("", spelled))


def known_model(name: str, quant: str) -> ModelSpec:
    """A well-known model in the named quantization, with tensors as a file of it would hold.

    `quant` is a name such as Q4_K_M, or "default": the maker's own format where that is quantized,
    else Q4_K_M. Raises `CheckpointError`, with the nearest names.
    """
    row = find(name)
    if row is None:
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.3) or names()[:3]
        raise CheckpointError(
            f"no model is known by the name {shown(name)}: use one such as {', '.join(near)}, "
            "or give its config.json with --model-config"
        )
    if quant.lower() in (DEFAULT, "ollama default tag"):
        quant = "Q4_K_M" if row.native == "BF16" else row.native
    return spec_of(row.shape, row.name, row.family, mix(quant))


@cache
def table(path: Path | None = None) -> tuple[KnownModel, ...]:
    """Every row of the table. Raises `InputError` where the table is damaged."""
    path = path or settings.presets() / "models.toml"
    try:
        return decode(_Table, tomllib.loads(path.read_text(encoding="utf-8"))).model
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{path.name}: {error}") from error


@cache
def _by_spelling() -> dict[str, KnownModel]:
    return {_spelling(name): row for row in table() for name in (row.name, *row.aliases)}


def _spelling(name: str) -> str:
    """What is left of a name without the owner before a slash, capitals and separators."""
    return re.sub(r"[^a-z0-9.+]", "", name.rsplit("/", 1)[-1].lower())
