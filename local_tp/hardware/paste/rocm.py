"""`rocm-smi`: its tables of several ages, its `GPU[0] : name: value` lines, and its JSON.

Knows nothing of pairs. Columns moved and changed names with every release, so cells are known by
what they look like. Graphics inside a processor is told apart by its device id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from local_tp.core import Pcie
from local_tp.facts import CardFacts, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.rocm_topology import MatrixReader, weights
from local_tp.hardware.paste.sighting import Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import generation, known, number, size, whole

_BANNER = re.compile(
    r"={3,}.{0,10}ROCm System Management Interface|={3,}.{0,20}End of ROCm SMI Log"
)
_SECTION = re.compile(r"={3,}\s{0,4}[A-Z][\w ()/&-]{2,60}={3,}\s*\Z")
_VALUE = re.compile(r"\s*(?:ERROR:\s*)?GPU\[(\d{1,3})\]\s*:\s*(\S.{0,300})")
_HEADER = re.compile(r"\s*(?:GPU|Device)\s+(?:DID|Temp|Node|NODE|AvgPwr|\[).{0,300}")
_ROW = re.compile(r"\s*(\d{1,3})\s+(\S.{0,300})")
_JSON_CARD = re.compile(r'\s*"card(\d{1,3})"\s*:\s*\{')
_JSON_VALUE = re.compile(r'\s*"([^"]{1,80})"\s*:\s*"([^"]{0,200})",?\s*\Z')
_RULE = re.compile(r"\s*[=-]{10,}\s*\Z|\s*\(DID,")
_MATRIX = re.compile(r"\s*GPU\d{1,3}(?:\s+\S{1,12}){0,64}\s*\Z")
_NAMES = ("Card Series", "Card series", "Device Name", "Card Model", "Card model", "Marketing Name")


def _starts(line: str) -> bool:
    return bool(
        ("ROCm S" in line and _BANNER.search(line))
        or _VALUE.match(line)
        or _HEADER.match(line)
        or _JSON_CARD.match(line)
        or "between two GPUs" in line
    )


def _continues(line: str) -> bool:
    return bool(
        _starts(line)
        or _SECTION.search(line)
        or _RULE.match(line)
        or re.match(r"\s*\d{1,3}\s+(?:\d+\s+)?(?:\d|0x|[0-9a-f]{4}\b|N/A|None)", line)
        or (_MATRIX.match(line) and "NV" not in line)
        or _JSON_VALUE.match(line)
        or line.strip() in ("}", "},", "{")
        or (line.startswith(("WARNING", "driver:", "Driver")) and "not initialized" not in line)
    )


@dataclass(slots=True)
class _Reading:
    values: dict[int, dict[str, str]] = field(default_factory=dict)
    cards: dict[int, Card] = field(default_factory=dict)
    matrix: MatrixReader = field(default_factory=MatrixReader)
    driver: str | None = None
    json_card: int | None = None
    unknown: list[str] = field(default_factory=list)


def parse(lines: Sequence[Line]) -> Sighting:
    """Every card that the text knows by number, and their pairs."""
    reading = _Reading()
    for line in lines:
        _line(line.text, reading)
    return _sighting(reading)


def parse_json(value: Mapping[str, Any]) -> Sighting | None:
    """`rocm-smi --json`; None if the object is something else."""
    reading = _Reading()
    for name, told in value.items():
        match = re.fullmatch(r"card(\d{1,3})", name)
        if match and isinstance(told, dict):
            reading.values[int(match[1])] = {k: str(v)[:500] for k, v in told.items()}
    system = value.get("system")
    if not reading.values and not (isinstance(system, dict) and "DRM devices" in str(system)):
        return None
    if isinstance(system, dict):
        reading.driver = known(str(system.get("Driver version", "")))
        for name, told in system.items():
            weights(str(name), str(told), reading.matrix)
    return _sighting(reading, whole_list=bool(reading.values))


def _line(text: str, reading: _Reading) -> None:
    if match := _JSON_CARD.match(text):
        reading.json_card = int(match[1])
        reading.values.setdefault(reading.json_card, {})
    elif reading.json_card is not None and (match := _JSON_VALUE.match(text)):
        reading.values[reading.json_card].setdefault(match[1], match[2])
    elif match := _VALUE.match(text):
        _value(int(match[1]), match[2], text, reading)
    elif reading.matrix.line(text):
        return
    elif (match := _ROW.match(text)) and not text.lstrip().startswith("GPU"):
        index = int(match[1])
        told = _row(match[2])
        before = reading.cards.get(index)
        reading.cards[index] = overlay(before, told) if before else told


def _value(index: int, told: str, line: str, reading: _Reading) -> None:
    values = reading.values.setdefault(index, {})
    name, _, value = told.rpartition(":")
    if line.lstrip().startswith("ERROR") or not name:
        reading.unknown.append(f"GPU {index}: {told.strip()}"[:160])
    else:
        values.setdefault(name.strip(), value.strip())
        if name.startswith("PCI Bus"):
            values["PCI Bus"] = told.partition(":")[2].strip()


def _row(cells: str) -> Card:
    """A row of any of the tables."""
    words = cells.replace(",", " ").split()
    device = next(
        (word for word in words[:3] if re.fullmatch(r"0x[0-9a-f]{4}|[0-9a-f]{4}", word)), None
    )
    slot = next((found for word in words if (found := bus_id(word))), None)
    watts = [number(word) for word in words if re.fullmatch(r"\d+(?:\.\d+)?W", word)]
    degrees = next((w for w in words if re.fullmatch(r"\d+(?:\.\d+)?(?:c|°C)", w)), None)
    clocks = [whole(word) for word in words if re.fullmatch(r"\d+Mhz", word)]
    busy = re.search(r"(\d{1,3})%\s+(\d{1,3})%\s*\Z", cells)
    return Card(
        slot=slot,
        name=pci_names.name_of(device) if device else None,
        facts=CardFacts(
            vendor=pci_names.vendor((device and pci_names.name_of(device)) or "AMD"),
            integrated=True if device and pci_names.integrated(device) else None,
            power_draw=watts[0] if watts else None,
            power_limit=watts[1] if len(watts) > 1 else None,
            temperature=whole(degrees),
            clock=clocks[0] if len(clocks) > 1 else None,
            memory_clock=clocks[1] if len(clocks) > 1 else None,
            utilization=int(busy[2]) if busy else None,
        ),
    )


def _sighting(reading: _Reading, whole_list: bool = False) -> Sighting:
    listed = {*reading.values, *reading.cards}
    if whole_list and reading.matrix.numbers - listed:
        names = ", ".join(str(number) for number in sorted(reading.matrix.numbers - listed))
        reading.unknown.append(f"rocm-smi tells only distances of cards {names}: left out")
    numbers = sorted(listed if whole_list else listed | reading.matrix.numbers)
    cards = []
    for index in numbers:
        values, row = reading.values.get(index), reading.cards.get(index)
        told = _from_values(values or {}) if values or not row else row
        if row:
            told = overlay(told, row)
        cards.append(replace(told, number=index))
    return Sighting(
        "rocm-smi",
        cards=tuple(cards),
        pairs=reading.matrix.pairs({number: place for place, number in enumerate(numbers)}),
        software=SoftwareFacts(driver=reading.driver),
        unknown=tuple(dict.fromkeys(reading.unknown)),
    )


def _from_values(values: Mapping[str, str]) -> Card:
    def first(*names: str) -> str | None:
        return next((text for name in names if (text := known(values.get(name)))), None)

    device = first("Device ID", "GPU ID", "Card Model", "Card model") or ""
    names = [text for name in _NAMES if (text := known(values.get(name)))]
    name = next((text for text in names if not text.startswith("0x")), None)
    total = size(first("VRAM Total Memory (B)"), "B")
    used = size(first("VRAM Total Used Memory (B)"), "B")
    link = first("pcie clock level") or first("PCIe speed", "pcie clock speed") or ""
    speed = re.search(r"([\d.]{3,5})GT/s", link)
    width = re.search(r"x(\d{1,2})\b", link)
    fastest, widest = _levels(values)
    limits = first("Max Graphics Package Power (W)")
    draws = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
    return Card(
        slot=bus_id(first("PCI Bus", "PCI bus") or ""),
        name=_tidy(name) if name else pci_names.name_of(device),
        total=total,
        free=total - used if total is not None and used is not None else None,
        pcie=Pcie(
            generation(speed[1] if speed else None),
            int(width[1]) if width else None,
            fastest,
            widest,
        ),
        facts=CardFacts(
            vendor="amd",
            architecture=first("GFX Version"),
            used=used,
            bar1_total=size(first("VIS_VRAM Total Memory (B)"), "B"),
            bar1_used=size(first("VIS_VRAM Total Used Memory (B)"), "B"),
            replays=whole(first("PCIe Replay Count")),
            power_draw=number(first(*draws)),
            power_limit=number(limits),
            clock=whole((first("sclk clock speed:") or "").strip("()")),
            memory_clock=whole((first("mclk clock speed:") or "").strip("()")),
            temperature=whole(
                first("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
            ),
            utilization=whole(first("GPU use (%)")),
            numa=_node(first("(Topology) Numa Node")),
            integrated=True if pci_names.integrated(name or device) else None,
        ),
    )


def _levels(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The fastest level of the link: levels are numbered, their speeds end in GT/s."""
    found = [
        (generation(text) or 0, int(text.split("x")[1].split()[0]))
        for name, text in values.items()
        if name.isdecimal() and re.match(r"[\d.]{3,5}GT/s x\d{1,2}\b", text)
    ]
    return max(found) if found else (None, None)


def _node(text: str | None) -> int | None:
    node = whole(text)
    return node if node is not None and node >= 0 else None


def _tidy(name: str) -> str:
    """`AMD Radeon RX 6700/6700 XT` of `Navi 22 [Radeon RX 6700/6700 XT]`."""
    match = re.search(r"\[([^\[\]]{3,100})\]", name)
    plain = (match[1] if match else name).strip()
    return plain if plain.startswith("AMD") else f"AMD {plain}"


KIND = Kind("rocm-smi", _starts, _continues, parse)
