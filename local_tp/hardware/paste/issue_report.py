"""Reports in Markdown lists, `- **GPU 0:** name | 24576 MiB | driver …`, as issue forms ask for.

Knows nothing of who wrote them: bold names and what stands behind them, in any order. Tables of
all-reduce times by size are read too where they say bus bandwidths, which tell the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from local_tp.core import Pcie
from local_tp.facts import CardFacts, Collective, HostFacts, PcieReading, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.nccl_tests import ranks_of
from local_tp.hardware.paste.sighting import Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import answer, number, size

_GPU = re.compile(r"\s*[-*]?\s*\*\*GPU (\d{1,3}):?\*\*:?\s*([^|]{2,100})(\|.{0,300})?")
_ENTRY = re.compile(r"\s*[-*]\s+\*\*([A-Za-z][\w /+]{1,30}):?\*\*:?\s*(\S.{0,400})")
_ENTRIES = frozenset(
    {"cpu", "ram", "swap", "power", "pcie", "driver", "os", "kernel", "memory", "vram", "wsl"}
)
_SIZED = re.compile(r"\|\s*Size\s*\|", re.IGNORECASE)
_SIZE_ROW = re.compile(r"\|\s*(\d{1,9})\s*(B|KB|KiB|MB|MiB|GB|GiB)\s*\|")
_TIME = re.compile(r"\A\**(\d{1,9}(?:\.\d{1,4})?)\s*(?:µs|μs|us)\**\Z")
_RATE = re.compile(r"\A\**(\d{1,6}(?:\.\d{1,4})?)\s*GB/s\**\Z")


def _starts(line: str) -> bool:
    match = _ENTRY.match(line)
    return bool(
        _GPU.match(line) or (match and match[1].lower() in _ENTRIES) or _SIZED.match(line.strip())
    )


def _continues(line: str) -> bool:
    text = line.strip()
    return (
        _starts(line)
        or bool(_SIZE_ROW.match(text))
        or text.startswith(("|--", "| --", "|:-"))
        or text.lower() in ("## gpu hardware", "## cpu + ram", "## hardware", "## gpu")
    )


@dataclass(slots=True)
class _Report:
    cards: list[Card] = field(default_factory=list)
    host: HostFacts = field(default_factory=HostFacts)
    software: SoftwareFacts = field(default_factory=SoftwareFacts)
    ram: int | None = None
    available: int | None = None
    titles: list[str] = field(default_factory=list)
    # nbytes and seconds by column, and the bus bandwidth of the last row
    times: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    ratio: float | None = None


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards with their links and power, the processor and its memory."""
    report = _Report()
    for line in lines:
        text = line.text.strip()
        if match := _GPU.match(text):
            _gpu(match, report)
        elif match := _ENTRY.match(text):
            _entry(match[1].lower(), match[2], report)
        elif text.startswith("|"):
            _table_row(text, report)
    ranks = ranks_of(report.ratio) if report.ratio else None
    unread: tuple[str, ...] = ()
    if report.times and not ranks:
        unread = (f"line {lines[0].number}: times by size that do not tell how many cards ran",)
    elif len(report.times) > 1:
        unread = (f"line {lines[0].number}: {len(report.times)} columns of times: took the first",)
    first = report.times[min(report.times)] if report.times and ranks else []
    return Sighting(
        "report",
        cards=tuple(report.cards),
        collectives=tuple(Collective("nccl", ranks or 0, n, seconds) for n, seconds in first),
        host=report.host,
        software=report.software,
        ram=report.ram,
        available_ram=report.available,
        unread=unread,
    )


def _gpu(match: re.Match[str], report: _Report) -> None:
    name, rest = match[2].strip(), match[3] or ""
    memory = re.search(r"(\d{1,9})\s*Mi?B", rest)
    driver = re.search(r"driver ([\d.]{3,20})", rest)
    persistence = re.search(r"persistence=(\w{2,10})", rest)
    facts = CardFacts(
        vendor=pci_names.vendor(name),
        persistence=answer(persistence[1]) if persistence else None,
    )
    card = Card(number=int(match[1]), name=name, facts=facts)
    report.cards.append(replace(card, total=size(memory[0]) if memory else None))
    if driver:
        report.software = overlay(report.software, SoftwareFacts(driver=driver[1]))


def _entry(name: str, told: str, report: _Report) -> None:
    if name in ("power", "pcie") and report.cards:
        read = _power if name == "power" else _pcie
        report.cards[-1] = read(report.cards[-1], told)
    elif name == "cpu":
        threads = re.search(r"\((\d{1,4}) threads\)", told)
        report.host = replace(
            report.host,
            processor=re.sub(r"\s*\(\d{1,4} threads\)", "", told).strip(),
            logical_cores=int(threads[1]) if threads else None,
        )
    elif name == "ram":
        amounts = [size(word, "G") for word in re.findall(r"[\d.]{1,10}\s?[KMGT]i?B?", told)]
        report.ram = amounts[0] if amounts else None
        report.available = amounts[1] if len(amounts) > 1 else None
    elif name == "swap":
        report.host = replace(report.host, swap=size(told, "G"))


def _power(card: Card, told: str) -> Card:
    def watts(name: str) -> float | None:
        match = re.search(rf"\b{name}=([\d.]{{1,8}})", told)
        return number(match[1]) if match else None

    facts = replace(
        card.facts,
        power_limit=watts("limit"),
        power_default=watts("default"),
        power_max=watts("max"),
        power_draw=watts("current_draw") if told.rstrip().endswith("W") else None,
    )
    return replace(card, facts=facts)


def _pcie(card: Card, told: str) -> Card:
    width = re.search(r"\bx(\d{1,2}) lanes negotiated", told)
    most = re.search(r"max x(\d{1,2})", told)
    fastest = re.search(r"Gen up to (\d)", told)
    slot = re.search(r"bus ([0-9A-Fa-f:.]{7,16})", told)
    card_width = int(most[1]) if most else None
    pcie = Pcie(
        width=int(width[1]) if width else None,
        max_generation=int(fastest[1]) if fastest else None,
        max_width=card_width,
    )
    facts = replace(card.facts, pcie_card=PcieReading(width=card_width) if card_width else None)
    return replace(card, slot=bus_id(slot[1]) if slot else None, pcie=pcie, facts=facts)


def _table_row(text: str, report: _Report) -> None:
    cells = [cell.strip() for cell in text.strip("|").split("|")]
    if _SIZED.match(text):
        report.titles = [cell.lower() for cell in cells]
        return
    match = _SIZE_ROW.match(text)
    if not match:
        return
    nbytes = size(f"{match[1]} {match[2]}") or 0
    first: float | None = None
    for column, cell in enumerate(cells[1:], 1):
        title = report.titles[column] if column < len(report.titles) else ""
        if time := _TIME.match(cell):
            seconds = round(float(time[1]) / 1e6, 12)
            first = first or seconds
            report.times.setdefault(column, []).append((nbytes, seconds))
        elif (rate := _RATE.match(cell)) and "busbw" in title and first:
            # The largest message tells the ratio best: its bandwidth has the most digits.
            report.ratio = float(rate[1]) * 1e9 / (nbytes / first)
            first = None


KIND = Kind("report", _starts, _continues, parse)
