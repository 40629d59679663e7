"""`rocm-smi`: its tables of several ages, its `GPU[0] : name: value` lines, and its JSON.

Knows nothing of pairs. Columns moved and changed names with every release, so cells are known by
what they look like. What `rocm-smi` complains of is told in its own few words or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from local_tp.facts import CardFacts, Process, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names, rocm_values
from local_tp.hardware.paste.rocm_topology import MatrixReader, weights
from local_tp.hardware.paste.sighting import Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known, number, program, whole

_BANNER = re.compile(
    r"={3,}.{0,10}ROCm System Management Interface|={3,}.{0,20}End of ROCm SMI Log"
)
_SECTION = re.compile(r"={3,}\s{0,4}(?:% )?[A-Za-z][\w ()/&-]{2,60}={3,}\s*\Z")
_VALUE = re.compile(r"\s*(?:ERROR:\s*)?GPU\[(\d{1,3})\]\s*:\s*(\S.{0,300})")
_HEADER = re.compile(r"\s*(?:GPU|Device)\s+(?:DID|Temp|Node|NODE|AvgPwr|\[).{0,300}")
_ROW = re.compile(r"\s*(\d{1,3})\s+(\S.{0,300})")
# Of releases 5.7 to 6.0: half a name below each row.
_NAME = re.compile(
    r"\s{6,}(?:Name \(20 chars\)"
    r"|(?!GPU\d)(?=.{3,20}\Z)[A-Z][\w/\[\]().-]*(?: [\w/\[\]().-]+){0,4}\Z)"
)
_JSON_CARD = re.compile(r'\s*"card(\d{1,3})"\s*:\s*\{')
_JSON_VALUE = re.compile(r'\s*"([^"]{1,80})"\s*:\s*"([^"]{0,200})",?\s*\Z')
_RULE = re.compile(r"\s*[=-]{10,}\s*\Z|\s*\(DID,")
_MATRIX = re.compile(r"\s*GPU\d{1,3}(?:\s+\S{1,12}){0,64}\s*\Z")
_PIDS = re.compile(r"\s*PID\s+PROCESS NAME\s+GPU\(s\)")
_PROCESS = re.compile(r"\s*(\d{1,10})\s+(\S.{0,80}?)\s+(\d{1,3})\s+(\d{1,16})\s+\d")
_NO_PIDS = re.compile(r"\s*(?:KFD process information:|No KFD PIDs currently running)")
_COMPLAINT = re.compile(
    r"(?:PowerPlay not enabled|Not supported on the given system|(?:Unable to|Cannot|Could not) "
    r"(?:get|read|find|display) (?:(?:maximum|average|current|supported|graphics|package|socket"
    r"|power|profile|consumption|gpu|vram|memory|pcie|bandwidth|clocks?|temperature|fan|speed"
    r"|voltage|version|use|usage|levels?|id|name|of|the)\b ?){1,8})",
    re.IGNORECASE,
)


def _starts(line: str) -> bool:
    return bool(
        ("ROCm S" in line and _BANNER.search(line))
        or _VALUE.match(line)
        or _HEADER.match(line)
        or _JSON_CARD.match(line)
        or "between two GPUs" in line
        or "= Concise Info =" in line
        or _PIDS.match(line)
    )


def _continues(line: str) -> bool:
    return bool(
        _starts(line)
        or _SECTION.search(line)
        or _RULE.match(line)
        or _PROCESS.match(line)
        or _NO_PIDS.match(line)
        or re.match(r"\s*\d{1,3}\s+(?:\d+\s+)?(?:\d|\[?0x|[0-9a-f]{4}\b|N/A|None)", line)
        or _NAME.match(line)
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
    header: str = ""  # of the table that is being read
    processes: list[Process] = field(default_factory=list)
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
    elif _HEADER.match(text) or _PIDS.match(text):
        reading.header = text
    elif "PROCESS NAME" in reading.header and (match := _PROCESS.match(text)):
        process = Process(int(match[1]), program(match[2]), int(match[4]))
        reading.processes.append(process)
    elif (match := _ROW.match(text)) and not text.lstrip().startswith("GPU"):
        index = int(match[1])
        told = _row(match[2], "VRAM%" in reading.header)
        before = reading.cards.get(index)
        reading.cards[index] = overlay(before, told) if before else told


def _value(index: int, told: str, line: str, reading: _Reading) -> None:
    values = reading.values.setdefault(index, {})
    name, _, value = told.rpartition(":")
    if line.lstrip().startswith("ERROR") or not name:
        said = _COMPLAINT.search(told)
        words = said[0].strip() if said else "rocm-smi reports an error"
        reading.unknown.append(f"GPU {index}: {words}")
    else:
        values.setdefault(name.strip(), value.strip())
        if name.startswith("PCI Bus"):
            values["PCI Bus"] = told.partition(":")[2].strip()


def _row(cells: str, vram: bool) -> Card:
    """A row of any of the tables; `vram` says that the last column but one is memory in use."""
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
        used_share=int(busy[1]) / 100 if busy and vram else None,
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
        told = rocm_values.card(values or {}) if values or not row else row
        if row:
            told = overlay(told, row)
        cards.append(replace(told, number=index))
    if len(cards) == 1 and reading.processes:
        facts = replace(cards[0].facts, processes=tuple(reading.processes))
        cards[0] = replace(cards[0], facts=facts)
    elif reading.processes:
        reading.unknown.append(
            "rocm-smi: on which card its programs run, which `rocm-smi --showpidgpus` tells"
        )
    return Sighting(
        "rocm-smi",
        cards=tuple(cards),
        pairs=reading.matrix.pairs({number: place for place, number in enumerate(numbers)}),
        software=SoftwareFacts(driver=reading.driver),
        unknown=tuple(dict.fromkeys(reading.unknown)),
    )


KIND = Kind("rocm-smi", _starts, _continues, parse)
