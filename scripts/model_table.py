"""The families that can be run, as docs/models.md: everything in it comes from their rows.

    python scripts/model_table.py

To be run when a row changes; a test compares the page with the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

from local_tp.checkpoint.families import FAMILIES, Family
from local_tp.traits import RopeScaling

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"

OPENING = """\
# Models

Written by `scripts/model_table.py` from `local_tp/checkpoint/families`.

A model runs if its family is here: `model_type` in the `config.json` of a folder, or
`general.architecture` in a GGUF file. *Checked* says in which splits a small random model of the
family, in such files, gave the logits of transformers to one part in ten thousand of the largest:
in float32, with prompts read in chunks, while writing, and with two texts of unequal length at
once. *Every split* is one rank, three stages, two, three and five ranks in a stage, and both
together; *some splits* is fewer of these. Of models that see or hear the text part runs.
"""

HEADER = """\
| family | `model_type` | folders checked | `general.architecture` | GGUF files checked |
|---|---|---|---|---|"""


def page() -> str:
    """The whole text of docs/models.md."""
    kinds = get_args(get_type_hints(RopeScaling)["kind"])
    scalings = f"Rotary scalings: {', '.join(kinds)}, and factors that a GGUF file lists."
    return "\n".join((OPENING, HEADER, *rows(), "", scalings, ""))


def rows() -> Iterator[str]:
    """A line of the table for each family, by name."""
    for family in sorted(FAMILIES, key=lambda family: family.name):
        yield f"| {' | '.join(cells(family))} |"


def cells(family: Family) -> tuple[str, ...]:
    """A family's name, and for each kind of file its names there and how far it is checked."""
    folder = family.folder_checked if family.model_types else "-"
    gguf = family.gguf_checked if family.architectures else "-"
    return family.name, _names(family.model_types), folder, _names(family.architectures), gguf


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
