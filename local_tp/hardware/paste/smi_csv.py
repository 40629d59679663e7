"""`nvidia-smi --query-gpu=… --format=csv`, with or without header and units.

Knows nothing of what the values mean. The columns are named by the header or by the command in
front; without either, only what can be nothing else is taken, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from local_tp.facts import CardFacts, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import smi_fields, smi_times
from local_tp.hardware.paste.kernel_log import lost_card
from local_tp.hardware.paste.samples import identity
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import gone, size

_COMMAND = re.compile(r"--query-gpu[= ]\s*[\"']?([\w.,]{1,20000})")
_FIELDS = frozenset(
    {
        "index", "name", "gpu_name", "count", "timestamp", "uuid", "gpu_uuid", "serial", "pstate",
        "pci.bus_id", "gpu_bus_id", "driver_version", "memory.total", "memory.used", "memory.free",
        "temperature.gpu", "power.draw", "power.limit", "compute_cap", "utilization.gpu",
        "utilization.memory", "pcie.link.gen.current", "pcie.link.width.current", "fan.speed",
        "pcie.link.gen.max", "pcie.link.width.max", "clocks.sm", "vbios_version",
        "clocks_event_reasons.active", "clocks_throttle_reasons.active",
    }
)  # fmt: skip
_ROW = re.compile(
    r"\s*(?:\d{1,3},\s*)?[^,|:<>{}]{0,30}"
    r"\b(?:GeForce|RTX|GTX|Quadro|Tesla|TITAN|NVIDIA [A-Z]{1,2}\d{1,4}\w*)\b[^,|]{0,60},"
)
_MOST_ROWS = 4000  # of all looks at the cards
_MOST_COLUMNS = 400  # the driver knows about 200
_HANDLE = "Unable to determine the device handle"


def _header(line: str) -> bool:
    cells = line[:20000].split(",")
    if not any(cell.strip().split(" ")[0].lower() in _FIELDS for cell in cells[:60]):
        return False
    names = [smi_fields.key(cell) for cell in cells]
    if any(name in _FIELDS for name in names) and len(names) == 1:
        return "." in names[0]  # a single word is more likely prose
    return sum(name in _FIELDS for name in names) >= 2 and names[0] == names[0].replace(" ", "")


def _starts(line: str) -> bool:
    if "--query-gpu" in line:
        return True
    return "," in line and (bool(_ROW.match(line)) or _header(line))


def _continues(line: str) -> bool:
    row = "," in line and not re.match(r"\s*(?:#|\$|[-*|]\s|//)", line)
    return row or _HANDLE in line


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards of the rows, and the driver's version."""
    names: list[str] | None = None
    cards: list[Card] = []
    software, unread = SoftwareFacts(), []
    seen: set[Hashable] = set()
    times: list[float | None] = []
    for line in lines[:_MOST_ROWS]:
        if "--query-gpu" in line.text:
            match = _COMMAND.search(line.text)
            asked = [smi_fields.key(name) for name in match[1].split(",")] if match else []
            names = asked if _FIELDS.intersection(asked) else None
        elif _HANDLE in line.text:
            if found := lost_card(line.text):
                cards.append(found)
                seen.add(identity(found))
                times.append(None)
        elif _header(line.text):
            names = [smi_fields.key(name) for name in line.text.split(",")]
        else:
            if len(seen) > MOST_CARDS:
                unread.append(f"line {line.number}: more than {MOST_CARDS} cards: read no further")
                break
            cells = [cell.strip().strip('"') for cell in line.text.split(",", _MOST_COLUMNS)]
            if names:
                if len(cells) < len(names):
                    unread.append(f"line {line.number}: {len(cells)} of {len(names)} columns")
                values = dict(zip(names, cells, strict=False))
                software = overlay(software, smi_fields.software(values))
                cards.append(_card(values))
                seen.add(identity(cards[-1]) or len(cards))
                times.append(smi_times.seconds(values.get("timestamp")))
            else:
                card, rest = _guess(cells)
                if card:
                    cards.append(card)
                    seen.add(identity(card) or len(cards))
                    times.append(None)
                if rest:
                    unread.append(
                        f"line {line.number}: columns without a header: {', '.join(rest)[:100]}"
                    )
    told = smi_times.numbered(cards, times)
    return Sighting("nvidia-smi --query-gpu", cards=told, software=software, unread=tuple(unread))


def _card(values: Mapping[str, str]) -> Card:
    """A card from named cells. What of power and fans cannot be read is no sign of a lost card."""
    card = smi_fields.card(values)
    lost = any(
        gone(cell) for name, cell in values.items() if not name.startswith(("power.", "fan."))
    )
    return replace(card, facts=replace(card.facts, lost=True)) if lost else card


def _guess(cells: Sequence[str]) -> tuple[Card | None, list[str]]:
    """A card from cells whose columns have no name, and the cells that stay in the dark."""
    card, rest, memory = Card(facts=CardFacts(vendor="nvidia")), [], []
    lost = any(map(gone, cells))
    for place, cell in enumerate(cells):
        if place == 0 and cell.isdecimal() and len(cell) < 4:
            card = replace(card, number=int(cell))
        elif slot := bus_id(cell):
            card = replace(card, slot=slot)
        elif card.name is None and _ROW.match(cell + ","):
            card = replace(card, name=cell)
        elif cell.endswith("MiB"):
            memory.append(size(cell) or 0)
        elif not gone(cell):
            rest.append(cell)
    if memory:  # a card's total is the largest of its memory figures
        card = replace(card, total=max(memory))
    if lost:
        card = replace(card, facts=replace(card.facts, lost=True))
    known = card.name or card.slot or (lost and card.number is not None)
    return (card if known else None), rest


KIND = Kind(
    "nvidia-smi --query-gpu",
    _starts,
    _continues,
    parse,
    again=lambda line: "--query-gpu" in line,
)
