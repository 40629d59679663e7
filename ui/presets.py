"""Named sampling presets, read from a TOML table.

Knows nothing of Gradio or engines. A preset states every option: an unknown, missing or
out-of-range one is an error that names the file, the preset and the option.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from local_tp.core import Sampling
from local_tp.errors import InputError

# Inclusive bounds of each option; the page's sliders have the same ends.
LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.01, 1.0),
    "top_k": (0, 200),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.5, 2.0),
    "max_tokens": (1, 131072),
}
WHOLE = frozenset({"top_k", "max_tokens"})


@dataclass(frozen=True, slots=True)
class Preset:
    """One named way to choose tokens. `max_tokens` bounds an answer."""

    name: str
    description: str
    sampling: Sampling
    max_tokens: int


def read_presets(path: Path) -> tuple[Preset, ...]:
    """The presets of a TOML file, in its order. Raises `InputError`."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as sampling presets: {error}") from error
    if not tables:
        raise InputError(f"{path} has no presets: add a table such as [Balanced]")
    return tuple(_preset(path, name, table) for name, table in tables.items())


def _preset(path: Path, name: str, table: object) -> Preset:
    where = f"{path}, preset {name}"
    if not isinstance(table, dict):
        raise InputError(f"{where}: write its options under a heading [{name}]")
    expected = {"description", *LIMITS}
    if unknown := sorted(table.keys() - expected):
        raise InputError(f"{where}: {unknown[0]} is not an option: remove it")
    if missing := sorted(expected - table.keys()):
        raise InputError(f"{where}: {missing[0]} is missing: add it")
    if not isinstance(table["description"], str):
        raise InputError(f"{where}: description must be text in quotes")
    for option in LIMITS:
        _check(where, option, table[option])
    return Preset(
        name=name,
        description=table["description"],
        sampling=Sampling(
            temperature=float(table["temperature"]),
            top_p=float(table["top_p"]),
            top_k=table["top_k"],
            min_p=float(table["min_p"]),
            repetition_penalty=float(table["repetition_penalty"]),
        ),
        max_tokens=table["max_tokens"],
    )


def _check(where: str, option: str, value: object) -> None:
    low, high = LIMITS[option]
    kinds = (int,) if option in WHOLE else (int, float)
    # bool is an int to Python, and never a number to a person.
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        kind = "a whole number" if option in WHOLE else "a number"
        raise InputError(f"{where}: {option} must be {kind} from {low:g} to {high:g}")
