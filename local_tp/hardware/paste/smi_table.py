"""The table that `nvidia-smi` prints without arguments, of drivers from 340 to 610.

Knows nothing of other outputs. A card has two or three rows; it is known by the bus id in its
first. Long names are cut short by the driver and stay so until another output tells them whole.
MIG slices have a table of their own below the cards'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from local_tp.core import Pcie
from local_tp.facts import CardFacts, DriverModel, HostFacts, Process, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import mig
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting, Slice
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import answer, known, number, program, size, whole

_BANNER = re.compile(r"NVIDIA-SMI\s+(\d[\d.]{1,20})")
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*([\d.]{1,20})")
_CUDA = re.compile(r"CUDA (?:UMD |Driver )?Version:\s*([\d.]{1,20})")
_SLOT = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:\s+(\S+))?")
_MEMORY = re.compile(r"(\d{1,12})\s*MiB\s*/\s*(\d{1,12})\s*MiB")
_POWER = re.compile(r"(\S{1,12})\s*/\s*(\S{1,12})\s*\Z")
_TEMPERATURE = re.compile(r"(?:^|\s)(\d{1,3})\s?C(?:\s|\Z)")
_STATE = re.compile(r"(?:^|\s)(P\d{1,2})(?:\s|\Z)")
_PROCESS = re.compile(
    r"\s*(\d{1,3})\s+(?:(N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(\d{1,10})\s+([CGM+]{1,5})\s+(\S.*)"
)
_NO_SLOT = re.compile(r"\s*N/A\s+(?:N/A|On|Off)\s*\Z")
_MODES = re.compile(r"\s+(On|Off|N/A|WDDM|TCC|MCDM)\s*\Z")
_COMPUTE_MODES: Mapping[str, str] = MappingProxyType(
    {
        "E. Process": "Exclusive_Process",
        "E. Thread": "Exclusive_Thread",
        "Prohibi...": "Prohibited",
    }
)
_MOST_ROWS = 4000  # far more than any machine's cards and processes
_BROKEN = ("ERR!", "Unknown Error", "GPU is lost")


def _starts(line: str) -> bool:
    return bool(_BANNER.search(line)) or bool(
        line.lstrip().startswith("|") and ("Bus-Id" in line or _SLOT.search(line))
    )


def _continues(line: str) -> bool:
    text = line.strip()
    if "AMD-SMI" in text:
        return False
    return text.startswith(("|", "+-", "+=")) or text == "+" or "Processes:" in text


@dataclass(slots=True)
class _Reading:
    cards: list[Card]
    processes: dict[int, list[tuple[int | None, Process]]]
    driver: str | None = None
    cuda: str | None = None
    tool: str | None = None  # its own version
    linux: bool = False
    row: int = 99  # of the last card


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards, their processes and the driver's versions."""
    reading = _Reading([], {})
    unread: tuple[str, ...] = ()
    for line in lines[:_MOST_ROWS]:
        text = line.text.strip()
        if match := _BANNER.search(text):
            reading.tool = reading.tool or match[1].strip(".")
        reading.linux = reading.linux or "Persistence-M" in text
        if match := _DRIVER.search(text):
            reading.driver = reading.driver or match[1].strip(".")
        if match := _CUDA.search(text):
            reading.cuda = reading.cuda or match[1].strip(".")
        if text.startswith("|"):
            _row(text.strip("|"), reading)
            if len(reading.cards) > MOST_CARDS:
                reading.cards.pop()
                unread = (f"line {line.number}: more than {MOST_CARDS} cards: read no further",)
                break
        elif text.startswith("+"):
            reading.row = 99
    cards = tuple(
        mig.with_processes(card, reading.processes.get(card.number or 0, ()))
        for card in reading.cards
    )
    software = SoftwareFacts(driver=reading.driver, cuda_driver=reading.cuda)
    # Under WSL2 a tool of Linux's asks a driver of Windows', which has a number of its own.
    other = None not in (reading.tool, reading.driver) and reading.tool != reading.driver
    host = HostFacts(wsl=True if other and reading.linux else None)
    return Sighting("nvidia-smi", cards=cards, software=software, host=host, unread=unread)


def _row(text: str, reading: _Reading) -> None:
    cells = text.split("|")
    if len(cells) >= 2 and (card := _first_row(cells)):
        reading.cards.append(card)
        reading.row = 1
    elif found := mig.row(cells):
        _slice(*found, reading)
    elif len(cells) >= 2 and reading.cards and reading.row == 1:
        reading.cards[-1] = _second_row(reading.cards[-1], cells)
        reading.row = 2
    elif len(cells) >= 3 and reading.cards and reading.row == 2:
        on = answer(cells[2].strip().rstrip("*"))  # the mark: another state after a restart
        reading.cards[-1] = replace(
            reading.cards[-1], facts=replace(reading.cards[-1].facts, mig=on)
        )
        reading.row = 3
    elif len(cells) == 1 and (told := _process(cells[0])):
        index, instance, process = told
        reading.processes.setdefault(index, []).append((instance, process))


def _slice(number: int, part: Slice, reading: _Reading) -> None:
    for place, card in enumerate(reading.cards):
        if card.number == number:
            reading.cards[place] = replace(card, slices=mig.joined(card.slices, (part,)))


def _first_row(cells: Sequence[str]) -> Card | None:
    slot = _SLOT.search(cells[1])
    index = re.match(r"\s*(\d{1,3})\s+(\S.*)", cells[0])
    if not index or not (slot or (len(cells) > 2 and _NO_SLOT.match(cells[1]))):
        return None  # a part of a board rather than of a PC has no bus id
    name, mode = index[2].strip(), ""
    if match := _MODES.search(" " + name):
        name, mode = name[: match.start() - 1].strip(), match[1]
    ecc = cells[2].strip() if len(cells) > 2 else ""
    models: dict[str, DriverModel] = {"WDDM": "WDDM", "TCC": "TCC", "MCDM": "MCDM"}
    return Card(
        slot=bus_id(slot[1]) if slot else None,
        number=int(index[1]),
        name=known(name),
        display=answer(slot[2]) if slot else None,
        facts=CardFacts(
            vendor="nvidia",
            persistence=answer(mode),
            driver_model=models.get(mode),
            # The column holds "Off", or the count of errors since the driver was loaded.
            ecc=True if ecc.isdecimal() else answer(ecc),
            ecc_uncorrected=whole(ecc),
            lost=any(word in cell for cell in cells for word in _BROKEN),
        ),
    )


def _second_row(card: Card, cells: Sequence[str]) -> Card:
    left = cells[0]
    memory = _MEMORY.search(cells[1])
    power = _POWER.search(left)
    temperature, state = _TEMPERATURE.search(left), _STATE.search(left)
    used = size(memory[1]) if memory else None
    total = size(memory[2]) if memory else None
    usage, _, mode = cells[2].strip().partition(" ") if len(cells) > 2 else ("", "", "")
    facts = replace(
        card.facts,
        used=used,
        power_draw=number(power[1]) if power else None,
        power_limit=number(power[2]) if power else None,
        temperature=int(temperature[1]) if temperature else None,
        integrated=True if "Not Supported" in cells[1] else card.facts.integrated,
        performance_state=state[1] if state else None,
        utilization=whole(usage),
        compute_mode=_COMPUTE_MODES.get(mode.strip()) or known(mode),
        lost=card.facts.lost or left.count("ERR!") > 1,
    )
    free = total - used if total is not None and used is not None else None
    return replace(card, total=total, free=free, pcie=Pcie(), facts=facts)


def _process(text: str) -> tuple[int, int | None, Process] | None:
    """The card's number, the GPU instance, and what runs there."""
    match = _PROCESS.match(text)
    if not match:
        return None
    name, _, used = match[5].strip().rpartition(" ")
    if not name:
        return None
    process = Process(int(match[3]), program(name), size(used))
    return int(match[1]), whole(match[2]), process


KIND = Kind("nvidia-smi", _starts, _continues, parse, again=lambda line: bool(_BANNER.search(line)))
