"""JSON in a pasted text: our own report, whose rig reads back exactly, and that of other tools.

Knows nothing of text around it. Numbers of attempts and depth are bounded: a text of nothing but
braces costs no more than any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from local_tp.codec import decode
from local_tp.core import Rig
from local_tp.errors import InputError
from local_tp.hardware.paste.amd_smi_json import LIST
from local_tp.hardware.paste.sighting import Sighting
from local_tp.hardware.paste.text import Line

_ATTEMPTS = 8
_BEGINS = re.compile(r"\s*(?:\{|\[\s*(?:\{|\Z))")
_PART = r"[a-z_]{1,40}(?:\[\d{1,6}\])?"
_PLACE = re.compile(rf"{_PART}(?:\.{_PART}){{0,8}}\Z")


class Found(NamedTuple):
    """An object, and the places [start, stop) of its lines."""

    start: int
    stop: int
    value: Mapping[str, Any]


def objects(lines: Sequence[Line]) -> Iterator[Found]:
    """The JSON objects that begin a line and end one; a list of some stands under `LIST`."""
    decoder = json.JSONDecoder()
    attempts, place = 0, 0
    while place < len(lines) and attempts < _ATTEMPTS:
        if not _BEGINS.match(lines[place].text):
            place += 1
            continue
        attempts += 1
        rest = "\n".join(line.text for line in lines[place:]).lstrip()
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            place += 1
            continue
        stop = place + rest.count("\n", 0, end) + 1
        if isinstance(value, list):
            value = {LIST: value}
        if isinstance(value, dict):
            yield Found(place, stop, value)
        place = stop


def read_rig(found: Found, lines: Sequence[Line]) -> Sighting | None:
    """Our own report, or None if the object is something else."""
    told = found.value.get("rig", found.value)
    if not isinstance(told, dict) or "devices" not in told:
        return None
    number = lines[found.start].number
    try:
        rig = decode(Rig, told)
    except InputError as error:
        return Sighting("local-tp doctor --json", unread=(f"line {number}: {_why(error)}",))
    return Sighting("local-tp doctor --json", rig=rig)


def _why(error: InputError) -> str:
    """What is wrong, by place alone: keys and values that are not ours may name anybody."""
    place = str(error).partition(": ")[0]
    at = f" at {place}" if _PLACE.match(place) else ""
    return (
        f"a report of local-tp that cannot be read{at}: it is of another version or was changed; "
        "write a new one with `local-tp doctor --json`"
    )
