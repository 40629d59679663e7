"""`amd-smi list|static|metric|process --json`: the entries of the tool's text, as JSON.

Knows nothing of their meaning, which `amd_smi` has: they are given its names. Releases differ in
whether the list of cards stands alone or under a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from local_tp.hardware.paste import amd_smi
from local_tp.hardware.paste.sighting import Sighting

LIST = "gpu_data"  # what newer releases call the list of cards
_DEEPEST = 6


def parse(value: Mapping[str, Any]) -> Sighting | None:
    """The cards of a list; None if it is something else."""
    listed = value.get(LIST)
    if not isinstance(listed, list):
        return None
    values: dict[int, dict[str, str]] = {}
    processes: dict[int, list[dict[str, str]]] = {}
    for card in listed:
        number = card.get("gpu") if isinstance(card, dict) else None
        if not isinstance(number, int):
            continue
        told = values.setdefault(number, {})
        for section, name, text in _entries(card, ""):
            told.setdefault(name, text)
            told.setdefault(f"{section}.{name}", text)
        running = card.get("process_list")
        if isinstance(running, list):
            processes[number] = [found for entry in running if (found := _process(entry))]
    return amd_smi.sighting(values, processes) if values else None


def _entries(told: Mapping[str, Any], section: str, depth: int = 0) -> Iterator[tuple[str, ...]]:
    """(section, name, value) as the text has them; an amount and its unit are one value."""
    for name, value in told.items():
        upper = str(name).upper()
        if not isinstance(value, dict):
            yield section, upper, str(value)[:300]
        elif "value" in value and "unit" in value:
            yield section, upper, _amount(value)
        elif depth < _DEEPEST:
            yield from _entries(value, upper, depth + 1)


def _amount(told: Mapping[str, Any]) -> str:
    return f"{str(told['value'])[:40]} {str(told['unit'])[:10]}"


def _process(entry: object) -> dict[str, str] | None:
    """A running program; in its place stand words where there is none."""
    told = entry.get("process_info", entry) if isinstance(entry, dict) else None
    if not isinstance(told, dict) or "pid" not in told:
        return None
    return {name: text for _, name, text in _entries(told, "")}
