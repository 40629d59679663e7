"""The refusal of a family that has no row: the nearest that has one, and what differs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from local_tp.checkpoint.families.row import Naming
from local_tp.checkpoint.fields import shown
from local_tp.errors import CheckpointError

LIKE = 0.5  # of difflib's ratio: below it names have nothing in common
NAMED = 3  # tensors of those that differ

_NUMBER = re.compile(r"\.\d+\.")


def unknown_family(
    source: str, stated: str, known: Mapping[str, Naming], tensors: Iterable[str]
) -> CheckpointError:
    """What to say of the family `stated`, where `known` names have rows.

    `tensors` are the names in the files' headers, as far as these can be read.
    """
    refusal = f"{source} is of the family {shown(stated)}, which is not supported yet: "
    nearest = difflib.get_close_matches(stated, known, 1, LIKE)
    if not nearest:
        return CheckpointError(f"{refusal}choose a model of the family {' or '.join(known)}")
    found = sorted(set(_without(known[nearest[0]], tensors)))
    differs = ""
    if found:
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        names = ", ".join(shown(name) for name in found[:NAMED])
        differs = f", which has no {names}{more}"
    return CheckpointError(
        f"{refusal}the nearest that is supported is {nearest[0]}{differs}; choose a model of one "
        "of the families in docs/models.md"
    )


def _without(naming: Naming, tensors: Iterable[str]) -> Iterator[str]:
    """The names of `tensors` that a family does not know, `{i}` for the number of a layer."""
    has = {*naming.names.values(), *naming.fused}
    for name in tensors:
        template = _NUMBER.sub(".{i}.", name, count=1)
        if template not in has and not name.endswith(naming.unused):
            yield template
