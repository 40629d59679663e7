"""The table that `nvidia-smi` prints without arguments, of drivers from 340 to 610.

Knows nothing of other outputs. A card has two or three rows; it is known by the bus id in its
first. Long names are cut short by the driver and stay so until another output tells them whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from local_tp.core import Pcie
from local_tp.facts import CardFacts, DriverModel, Process, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import answer, known, number, program, size, whole

_BANNER = re.compile(r"NVIDIA-SMI\s+\d")
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*([\d.]{1,20})")
_CUDA = re.compile(r"CUDA (?:UMD |Driver )?Version:\s*([\d.]{1,20})")
_SLOT = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:\s+(\S+))?")
_MEMORY = re.compile(r"(\d{1,12})\s*MiB\s*/\s*(\d{1,12})\s*MiB")
_POWER = re.compile(r"(\S{1,12})\s*/\s*(\S{1,12})\s*\Z")
_TEMPERATURE = re.compile(r"(?:^|\s)(\d{1,3})\s?C(?:\s|\Z)")
_STATE = re.compile(r"(?:^|\s)(P\d{1,2})(?:\s|\Z)")
_PROCESS = re.compile(
    r"\s*(\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(\d{1,10})\s+([CGM+]{1,5})\s+(\S.*)"
)
_MODES = re.compile(r"\s+(On|Off|N/A|WDDM|TCC|MCDM)\s*\Z")
_MOST_ROWS = 4000  # far more than any machine's cards and processes
_BROKEN = ("ERR!", "Unknown Error", "GPU is lost")


def _starts(line: str) -> bool:
    return bool(_BANNER.search(line)) or bool(
        line.lstrip().startswith("|") and ("Bus-Id" in line or _SLOT.search(line))
    )


def _continues(line: str) -> bool:
    text = line.strip()
    return text.startswith(("|", "+-", "+=")) or text == "+" or "Processes:" in text


@dataclass(slots=True)
class _Reading:
    cards: list[Card]
    processes: dict[int, list[Process]]
    driver: str | None = None
    cuda: str | None = None
    row: int = 99  # of the last card


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards, their processes and the driver's versions."""
    reading = _Reading([], {})
    unread: tuple[str, ...] = ()
    for line in lines[:_MOST_ROWS]:
        text = line.text.strip()
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
        replace(
            card,
            facts=replace(card.facts, processes=tuple(reading.processes.get(card.number or 0, ()))),
        )
        for card in reading.cards
    )
    software = SoftwareFacts(driver=reading.driver, cuda_driver=reading.cuda)
    return Sighting("nvidia-smi", cards=cards, software=software, unread=unread)


def _row(text: str, reading: _Reading) -> None:
    cells = text.split("|")
    if len(cells) >= 2 and (card := _first_row(cells)):
        reading.cards.append(card)
        reading.row = 1
    elif len(cells) >= 2 and reading.cards and reading.row == 1:
        reading.cards[-1] = _second_row(reading.cards[-1], cells)
        reading.row = 2
    elif len(cells) >= 3 and reading.cards and reading.row == 2:
        mig = answer(cells[2])
        reading.cards[-1] = replace(
            reading.cards[-1], facts=replace(reading.cards[-1].facts, mig=mig)
        )
        reading.row = 3
    elif len(cells) == 1 and (found := _process(cells[0])):
        index, process = found
        reading.processes.setdefault(index, []).append(process)


def _first_row(cells: Sequence[str]) -> Card | None:
    slot = _SLOT.search(cells[1])
    index = re.match(r"\s*(\d{1,3})\s+(\S.*)", cells[0])
    if not slot or not index:
        return None
    name, mode = index[2].strip(), ""
    if match := _MODES.search(" " + name):
        name, mode = name[: match.start() - 1].strip(), match[1]
    ecc = cells[2].strip() if len(cells) > 2 else ""
    models: dict[str, DriverModel] = {"WDDM": "WDDM", "TCC": "TCC", "MCDM": "MCDM"}
    return Card(
        slot=bus_id(slot[1]),
        number=int(index[1]),
        name=known(name),
        display=answer(slot[2]),
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
        performance_state=state[1] if state else None,
        utilization=whole(usage),
        compute_mode=known(mode),
        lost=card.facts.lost or left.count("ERR!") > 1,
    )
    free = total - used if total is not None and used is not None else None
    return replace(card, total=total, free=free, pcie=Pcie(), facts=facts)


def _process(text: str) -> tuple[int, Process] | None:
    match = _PROCESS.match(text)
    if not match:
        return None
    name, _, used = match[4].strip().rpartition(" ")
    if not name:
        return None
    return int(match[1]), Process(int(match[2]), program(name), size(used))


KIND = Kind("nvidia-smi", _starts, _continues, parse)
