"""`xpu-smi discovery`: Intel's cards by number, as a table or as JSON.

Knows nothing of what runs on them: the tool tells it elsewhere. Entries are known by their names,
which the table spells out and the JSON writes with underscores. Of graphics inside a processor it
says that they have no memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from local_tp.facts import CardFacts, PcieReading
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known, size, whole

_HEADER = re.compile(r"\|\s*Device ID\s*\|\s*Device Information\s*\|")
_ROW = re.compile(r"\|\s*(\d{0,3})\s*\|\s*(?:([A-Z][\w ]{1,40}?)\s*:\s*(.{0,120}?))?\s*\|\s*\Z")
_RULE = re.compile(r"\+-{4,20}\+-{20,120}\+\s*\Z")
_FIRST = re.compile(r"\|\s*\d{1,3}\s*\|\s*Device (?:Name|Type)\s*:")
_DEVICE = re.compile(r"\[0x([0-9a-f]{4})\]")
_MARKS = re.compile(r"\((?:R|TM)\)|\s+Graphics\Z")
_INNER = PcieReading(1, 1)  # of the link inside a card behind its own switch


def _starts(line: str) -> bool:
    return bool(_HEADER.match(line) or _FIRST.match(line))


def _continues(line: str) -> bool:
    return bool(_starts(line) or _ROW.match(line) or _RULE.match(line))


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards of a table; a row with a number begins one."""
    cards: list[dict[str, str]] = []
    for line in lines:
        if not (match := _ROW.match(line.text)):
            continue
        if match[1]:
            cards.append({"device_id": match[1]})
        if cards and match[2]:
            cards[-1].setdefault(match[2].lower().replace(" ", "_"), match[3])
    return _sighting(cards)


def parse_json(value: Mapping[str, Any]) -> Sighting | None:
    """`xpu-smi discovery -j`, of all cards or of one; None if the object is something else."""
    listed = value.get("device_list", [value])
    if not isinstance(listed, list):
        return None
    cards = [
        {name: str(told)[:200] for name, told in card.items()}
        for card in listed
        if isinstance(card, dict) and "device_id" in card and "pci_bdf_address" in card
    ]
    return _sighting(cards) if cards else None


def _sighting(cards: Sequence[Mapping[str, str]]) -> Sighting:
    return Sighting("xpu-smi", cards=tuple(map(_card, cards[: MOST_CARDS + 1])))


def _card(values: Mapping[str, str]) -> Card:
    told = known(values.get("device_name"))
    device = _DEVICE.search(told or "")
    name = pci_names.name_of(device[1]) if device else None
    total = size(values.get("memory_physical_size"))
    if (exact := whole(values.get("memory_physical_size_byte"))) is not None:
        total = exact
    link = PcieReading(
        _above_zero(values.get("pcie_generation")), _above_zero(values.get("pcie_max_link_width"))
    )
    inside = pci_names.integrated(told or "") or bool(device and pci_names.integrated(device[1]))
    return Card(
        slot=bus_id(values.get("pci_bdf_address", "")),
        number=whole(values["device_id"]),
        name=name or (" ".join(_MARKS.sub("", told).split()) if told else None),
        total=total or None,
        facts=CardFacts(
            vendor="intel",
            pcie_card=None if link in (PcieReading(), _INNER) else link,
            integrated=True if inside or total == 0 else None,
        ),
    )


def _above_zero(text: str | None) -> int | None:
    value = whole(text)
    return value if value and value > 0 else None


KIND = Kind("xpu-smi", _starts, _continues, parse)
