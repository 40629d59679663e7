"""`amd-smi`: its sections of `NAME: value` a card, its tables, and its matrices between cards.

Knows nothing of `rocm-smi`. A card is known by its bus id where the output has one, else by its
number; sections of `list`, `static`, `metric` and `process` may come in any order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from local_tp.core import Pcie
from local_tp.facts import CardFacts, PcieReading, Process, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import rocm_values
from local_tp.hardware.paste.rocm_topology import MatrixReader
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import generation, known, number, program, size, whole

_GPU = re.compile(r"\s*GPU:\s*(\d{1,3})\s*\Z")
_ENTRY = re.compile(r"(\s+)([A-Z][A-Z0-9_ ]{1,60}):(?:\s+(\S.{0,300}))?\s*\Z")
_BANNER = re.compile(r"\|?\s*AMD-SMI\s+\d|AMDSMI Tool:")
_VERSIONS = re.compile(r"(?:amdgpu version:|amdgpu)\s*([\d.]{3,20})")
_TABLE = re.compile(r"\s*(ACCESS|WEIGHT|HOPS|LINK TYPE|COHERENCY) TABLE:")
_TITLES = {"ACCESS": "link accessibility", "HOPS": "hops", "LINK TYPE": "link type"}
_BDF = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_MATRIX_ROW = re.compile(rf"\s*({_BDF})((?:\s+\S{{1,12}}){{0,64}})\s*\Z")
_MONITOR = re.compile(r"\s*GPU\s+(?:XCP\s+)?POWER\s")
_MONITOR_ROW = re.compile(r"\s*(\d{1,3})\s+(?:\d{1,2}\s+)?(?:[\d.]{1,8} W|N/A)\s")
_PAIR = re.compile(r"([\d.]{1,10})\s*/\s*([\d.]{1,10})\s*(GB|MB)")
_SIZES = re.compile(r"([\d.]{1,10}) (MB|GB)")
_CARD_ROW = re.compile(rf"\|\s*({_BDF})\s+(\S.{{1,60}}?)\s*\|(.{{0,80}})\|")
_SECOND_ROW = re.compile(r"\|\s*(\d{1,3})\s+\S.{0,60}?\|(.{0,80})\|")
_PROCESS_ROW = re.compile(
    r"\|\s*(\d{1,3})\s+(\d{1,10})\s+(\S.{0,60}?)\s+[\d.]+ [KMG]?B\s+([\d.]+ [KMG]?B)\s"
)


def _starts(line: str) -> bool:
    return bool(
        _GPU.match(line) or _BANNER.match(line) or _TABLE.match(line) or _MONITOR.match(line)
    )


def _continues(line: str) -> bool:
    text = line.strip()
    return bool(
        _starts(line)
        or _ENTRY.match(line)
        or _MATRIX_ROW.match(line)
        or re.match(rf"\s*(?:{_BDF}\s*){{1,64}}\Z", line)
        or _MONITOR_ROW.match(line)
        or (text.startswith(("|", "+-", "+=")) and "NVIDIA-SMI" not in text)
    )


@dataclass(slots=True)
class _Reading:
    values: dict[int, dict[str, str]] = field(default_factory=dict)
    cards: dict[int, Card] = field(default_factory=dict)
    processes: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    matrix: MatrixReader = field(default_factory=MatrixReader)
    labels: list[str] = field(default_factory=list)
    gpu: int | None = None
    sections: list[tuple[int, str]] = field(default_factory=list)
    title: str = ""
    pending: Card | None = None  # of the table, whose second row has the number
    driver: str | None = None


def parse(lines: Sequence[Line]) -> Sighting:
    """Every card by number, with what any of the outputs tells of it, and their pairs."""
    reading = _Reading()
    for line in lines:
        _line(line.text[:2000], reading)
    more = {place: Card(slot=slot) for place, slot in enumerate(reading.labels)}
    for index, card in reading.cards.items():
        _add(more, index, card)
    told = sighting(reading.values, reading.processes, more)
    places = {
        card.number: place for place, card in enumerate(told.cards) if card.number is not None
    }
    return replace(
        told,
        pairs=reading.matrix.pairs(places),
        software=SoftwareFacts(driver=reading.driver),
    )


def sighting(
    values: Mapping[int, Mapping[str, str]],
    processes: Mapping[int, Sequence[Mapping[str, str]]],
    more: Mapping[int, Card] = MappingProxyType({}),
) -> Sighting:
    """The cards that these are about, by number: entries, programs, and what else is known."""
    cards = {index: _card(told) for index, told in values.items()}
    for index, card in more.items():
        _add(cards, index, card)
    for index, running in processes.items():
        _add(cards, index, Card(facts=CardFacts(processes=tuple(map(_process, running)))))
    numbers = sorted(cards)[: MOST_CARDS + 1]
    vendor = Card(facts=CardFacts(vendor="amd"))
    return Sighting(
        "amd-smi", cards=tuple(overlay(replace(cards[n], number=n), vendor) for n in numbers)
    )


def _add(cards: dict[int, Card], index: int, card: Card) -> None:
    cards[index] = overlay(cards[index], card) if index in cards else card


def _line(text: str, reading: _Reading) -> None:
    if match := _GPU.match(text):
        reading.gpu, reading.sections, reading.title = int(match[1]), [], ""
        reading.values.setdefault(reading.gpu, {})
    elif match := _TABLE.match(text):
        reading.title, reading.gpu = _TITLES.get(match[1], "other"), None
        reading.labels = []
    elif reading.title and (match := _MATRIX_ROW.match(text)):
        _matrix_row(match[1], match[2].split(), reading)
    elif reading.gpu is not None and (match := _ENTRY.match(text)):
        _entry(len(match[1].expandtabs()), match[2], match[3], reading)
    elif match := _VERSIONS.search(text):
        reading.driver = reading.driver or match[1].strip(".")
    elif text.lstrip().startswith("|"):
        _table_row(text.strip(), reading)
    elif match := _MONITOR_ROW.match(text):
        _add(reading.cards, int(match[1]), _monitored(text))


def _matrix_row(slot: str, cells: list[str], reading: _Reading) -> None:
    if not reading.labels or all(re.fullmatch(_BDF, cell) for cell in cells):
        reading.labels = [slot, *cells]
        return
    if slot not in reading.labels:
        return
    row = reading.labels.index(slot)
    for column, word in enumerate(cells[: len(reading.labels)]):
        reach = {"ENABLED": "true", "DISABLED": "false"}
        reading.matrix.say(reading.title, row, column, reach.get(word, word))


def _entry(indent: int, name: str, value: str | None, reading: _Reading) -> None:
    while reading.sections and reading.sections[-1][0] >= indent:
        reading.sections.pop()
    section = reading.sections[-1][1] if reading.sections else ""
    if reading.gpu is None:
        return
    if any(part == "PROCESS_INFO" for _, part in reading.sections) and value:
        told = reading.processes.setdefault(reading.gpu, [])
        if name == "NAME" or not told:
            told.append({})
        told[-1].setdefault(name, value)
    elif value:
        values = reading.values[reading.gpu]
        values.setdefault(name, value)
        values.setdefault(f"{section}.{name}", value)
    if not value:
        reading.sections.append((indent, name))


def _table_row(text: str, reading: _Reading) -> None:
    if match := _CARD_ROW.match(text):
        watts = re.search(r"([\d.]+|N/A)/([\d.]+|N/A) W", match[3])
        degrees = re.search(r"([\d.]+) °C", match[3])
        facts = CardFacts(
            power_draw=number(watts[1]) if watts else None,
            power_limit=number(watts[2]) if watts else None,
            temperature=whole(degrees[1]) if degrees else None,
        )
        reading.pending = Card(slot=bus_id(match[1]), name=_whole_name(match[2]), facts=facts)
    elif reading.pending and (match := _SECOND_ROW.match(text)):
        _add(reading.cards, int(match[1]), overlay(reading.pending, _memory(match[2])))
        reading.pending = None
    elif match := _PROCESS_ROW.match(text):
        told = {"PID": match[2], "NAME": match[3], "VRAM_MEM": match[4]}
        reading.processes.setdefault(int(match[1]), []).append(told)


def _monitored(text: str) -> Card:
    watts = re.search(r"([\d.]+) W", text)
    card = _memory(text)
    return replace(card, facts=replace(card.facts, power_draw=number(watts[1]) if watts else None))


def _memory(text: str) -> Card:
    """Used and total, as `285/196592 MB` or in columns of their own, the last two or three."""
    if match := _PAIR.search(text):
        used, total = size(f"{match[1]} {match[3]}"), size(f"{match[2]} {match[3]}")
    elif len(columns := _SIZES.findall(text)) >= 2:
        used, total = (size(" ".join(columns[place])) for place in (0, -1))
    else:
        return Card()
    free = total - used if total is not None and used is not None else None
    return Card(total=total, free=free, facts=CardFacts(used=used))


def _card(values: Mapping[str, str]) -> Card:
    def first(*names: str) -> str | None:
        return next((text for name in names if (text := known(values.get(name)))), None)

    device = first("DEVICE_ID") or ""
    name = rocm_values.called(first("MARKET_NAME"), device)
    target = first("TARGET_GRAPHICS_VERSION")
    total = size(first("TOTAL_VRAM", "VRAM.SIZE"), "MB")
    used = size(first("USED_VRAM"), "MB")
    fastest = generation(first("MAX_PCIE_SPEED")) or whole(
        (first("PCIE_INTERFACE_VERSION") or "").removeprefix("Gen ")
    )
    widest = whole(first("MAX_PCIE_WIDTH"))
    return Card(
        slot=bus_id(first("BDF") or ""),
        name=name,
        total=total,
        free=total - used if total is not None and used is not None else None,
        uuid=first("UUID"),
        pcie=Pcie(
            generation(first("PCIE.SPEED", "CURRENT_SPEED", "CURRENT_PCIE_SPEED")),
            whole(first("PCIE.WIDTH", "CURRENT_LANES", "CURRENT_PCIE_WIDTH")),
            fastest,
            widest,
        ),
        facts=CardFacts(
            architecture=target,
            used=used,
            pcie_card=PcieReading(fastest, widest) if fastest or widest else None,
            replays=whole(first("PCIE.REPLAY_COUNT")),
            power_draw=number(first("POWER.SOCKET_POWER", "AVERAGE_SOCKET_POWER")),
            power_limit=number(
                first("LIMIT.SOCKET_POWER", "SOCKET_POWER_LIMIT", "CURRENT_POWER_LIMIT")
            ),
            power_max=number(first("LIMIT.MAX_POWER", "MAX_POWER_LIMIT")),
            temperature=whole(first("TEMPERATURE.HOTSPOT", "TEMPERATURE.EDGE")),
            utilization=whole(first("USAGE.GFX_ACTIVITY")),
            numa=_node(first("NUMA.NODE")),
            integrated=True if rocm_values.is_inside(name, device, target) else None,
        ),
    )


def _process(told: Mapping[str, str]) -> Process:
    memory = size(told.get("VRAM_MEM") or told.get("MEM_USAGE"))
    return Process(whole(told.get("PID")), program(told.get("NAME")), memory)


def _whole_name(text: str) -> str | None:
    """A card's name, whose beginning the table cuts off where it is long."""
    name = known(text)
    return rocm_values.called(name.lstrip("."), "") if name else None


def _node(text: str | None) -> int | None:
    node = whole(text)
    return node if node is not None and node >= 0 else None


KIND = Kind("amd-smi", _starts, _continues, parse)
