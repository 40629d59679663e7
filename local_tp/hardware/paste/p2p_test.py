"""`p2pBandwidthLatencyTest` of the CUDA samples: who reaches whom, how fast, how soon.

Knows nothing of whether data arrived: the test does not look. Its device numbers are CUDA's,
which are not the driver's; its list of devices says which bus each is on. GB/s are 10^9 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from local_tp.facts import CardFacts, P2pStatus, PairFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Pair, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known

_DEVICE = re.compile(
    r"Device:\s*(\d{1,3}),\s*([^,]{1,100}),\s*pciBusID:\s*([0-9a-fA-F]{1,2}),"
    r"\s*pciDeviceID:\s*([0-9a-fA-F]{1,2}),\s*pciDomainID:\s*([0-9a-fA-F]{1,8})"
)
_ACCESS = re.compile(r"Device=(\d{1,3}) (CANNOT|CAN) Access Peer Device=(\d{1,3})")
_TITLE = re.compile(r"P2P Connectivity Matrix|P2P=(Enabled|Disabled)\b.{0,60}Matrix")
_HEADER = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,3}){1,64})\s*\Z")
_ROW = re.compile(r"\s*(\d{1,3})((?:\s+\d{1,9}(?:\.\d{0,6})?){1,64})\s*\Z")
_REST = re.compile(
    r"\*\*\*NOTE|So you can see lesser|NOTE: The CUDA Samples|\S*p2pBandwidthLatencyTest\S*\s*\Z"
)
_GB = 10**9

What = Literal["reach", "one-way", "both-ways", "latency", "other"]


def _starts(line: str) -> bool:
    return bool(
        "P2P (Peer-to-Peer) GPU Bandwidth" in line
        or _TITLE.search(line)
        or _DEVICE.search(line)
        or _ACCESS.search(line)
    )


def _continues(line: str) -> bool:
    return bool(_starts(line) or _HEADER.match(line) or _ROW.match(line) or _REST.search(line))


@dataclass(slots=True)
class _Matrix:
    """One matrix as it was announced, and how many whole numbers of it are there."""

    line: int
    title: str
    what: What
    peers: bool
    columns: int = 0
    cells: int = 0

    @property
    def whole(self) -> bool:
        return self.columns > 0 and self.cells >= self.columns**2


@dataclass(slots=True)
class _Test:
    cards: dict[int, Card] = field(default_factory=dict)
    reach: dict[tuple[int, int], bool] = field(default_factory=dict)
    # (what, with peer-to-peer) -> (from, to) -> number as printed
    tables: dict[tuple[What, bool], dict[tuple[int, int], float]] = field(default_factory=dict)
    current: tuple[What, bool] = ("other", False)
    columns: list[int] = field(default_factory=list)
    matrices: list[_Matrix] = field(default_factory=list)


def parse(lines: Sequence[Line]) -> Sighting:
    """Cards in CUDA's order, and every number that the test has for their pairs."""
    test = _Test()
    for line in lines:
        _line(line, test)
    numbers = {n for table in test.tables.values() for pair in table for n in pair}
    numbers |= {n for pair in test.reach for n in pair} | set(test.cards)
    order = sorted(numbers)[:MOST_CARDS]
    place = {number: i for i, number in enumerate(order)}
    cards = tuple(_card(number, test) for number in order)
    pairs = [
        _pair(place[a], place[b], a, b, test)
        for a, b in sorted(_told(test))
        if a in place and b in place
    ]
    unread = []
    if len(numbers) > MOST_CARDS:
        number = lines[0].number
        unread.append(
            f"line {number}: only the first {MOST_CARDS} of {len(numbers)} cards were used"
        )
    if test.matrices and not test.matrices[-1].whole:
        unread.append(_cut(test.matrices[-1]))
    return Sighting(
        "p2pBandwidthLatencyTest",
        cards=cards,
        pairs=tuple(filter(None, pairs)),
        unread=tuple(unread),
    )


def _told(test: _Test) -> set[tuple[int, int]]:
    """The pairs, lower number first, of which a table says anything."""
    keys = {*test.reach, *(key for table in test.tables.values() for key in table)}
    return {(min(key), max(key)) for key in keys if key[0] != key[1]}


def _cut(matrix: _Matrix) -> str:
    """Says that the output ends in a matrix, and what that may mean."""
    said = (
        f"line {matrix.line}: p2pBandwidthLatencyTest ends before its matrix {matrix.title!r} is "
        "whole"
    )
    if not matrix.peers:
        return f"{said}: paste all of its output"
    return (
        f"{said}: paste all of its output; a test that itself stops here is the classic sign of "
        "peer-to-peer that hangs, as IOMMU or ACS make it"
    )


def _stops_at_peers(test: _Test) -> bool:
    """Whether the output ends in its first matrix with peer-to-peer, so that none was seen whole.

    The connectivity matrix is no such matrix: it is the driver's word before anything was copied.
    """
    first = next((matrix for matrix in test.matrices if matrix.peers), None)
    return first is not None and first is test.matrices[-1] and not first.whole


def _line(line: Line, test: _Test) -> None:
    text = line.text
    if match := _DEVICE.search(text):
        slot = bus_id(f"{match[5]}:{match[3]:0>2}:{match[4]:0>2}.0")
        test.cards[int(match[1])] = Card(slot=slot, name=known(match[2]))
    elif match := _ACCESS.search(text):
        test.reach[int(match[1]), int(match[3])] = match[2] == "CAN"
    elif match := _TITLE.search(text):
        test.current, test.columns = (_what(text), match[1] == "Enabled"), []
        test.matrices.append(_Matrix(line.number, text.strip()[:80], *test.current))
    elif match := _HEADER.match(text):
        if match[1] == "CPU":
            peers = test.current[1]
            test.current = ("other", False)
            if test.matrices:
                title = test.matrices[-1].title
                test.matrices.append(_Matrix(line.number, title, "other", peers))
        test.columns = [int(word) for word in match[2].split()]
        if test.matrices:
            test.matrices[-1].columns = len(test.columns)
    elif match := _ROW.match(text):
        # A row cut in mid-number would end in a number too small, hence only whole ones.
        table = test.tables.setdefault(test.current, {})
        for column, word in zip(test.columns, match[2].split(), strict=False):
            if test.current[0] == "reach":
                test.reach.setdefault((int(match[1]), column), word == "1")
            elif len(word.partition(".")[2]) == 2:
                table[int(match[1]), column] = float(word)
            else:
                continue
            if test.matrices:
                test.matrices[-1].cells += 1


def _what(title: str) -> What:
    if "Connectivity" in title:
        return "reach"
    if "Latency" in title:
        return "latency"
    return "one-way" if "Unidirectional" in title else "both-ways"


def _card(number: int, test: _Test) -> Card:
    told = test.cards.get(number, Card())
    # A card's copy to itself reads and writes its memory at once, and counts both.
    own = [
        table[number, number] * _GB
        for (what, _), table in test.tables.items()
        if what == "one-way" and (number, number) in table
    ]
    own += [
        table[number, number] * _GB
        for (what, _), table in test.tables.items()
        if what == "both-ways" and (number, number) in table and not own
    ]
    return replace(
        told,
        number=number,
        order="cuda",
        bandwidth=max(own, default=None),
        facts=CardFacts(vendor="nvidia"),
    )


def _pair(i: int, j: int, a: int, b: int, test: _Test) -> Pair | None:
    def told(what: What, peers: bool, x: int, y: int) -> float | None:
        return test.tables.get((what, peers), {}).get((x, y))

    reach = [test.reach[key] for key in ((a, b), (b, a)) if key in test.reach]
    state = None if not reach else all(reach)
    both = _least(told("both-ways", True, a, b), told("both-ways", True, b, a))
    forth, back = told("one-way", True, a, b), told("one-way", True, b, a)
    staged = _least(told("one-way", False, a, b), told("one-way", False, b, a))
    staged_both = _least(told("both-ways", False, a, b), told("both-ways", False, b, a))
    direct = _most(told("latency", True, a, b), told("latency", True, b, a))
    through = _most(told("latency", False, a, b), told("latency", False, b, a))
    # Where any peer rate is known, what is measured through memory does not stand in for others.
    peers = any(rate is not None for rate in (forth, back, both))
    if not peers:
        forth, back, both = told("one-way", False, a, b), told("one-way", False, b, a), staged_both
    latency = None if state is False else direct
    if latency is None and (state is False or not peers):
        latency = through
    status: P2pStatus | None = None if state is None else "ok" if state else "not-supported"
    if status == "ok" and _stops_at_peers(test):
        status = "unknown"
    facts = PairFacts(
        read=status,
        write=status,
        forth=_rate(forth),
        back=_rate(back),
        both=_rate(both),
        staged=_rate(staged),
        staged_both=_rate(staged_both),
    )
    seconds = None if latency is None else round(latency / 1e6, 12)
    return Pair(i, j, latency=seconds, facts=facts) if facts != PairFacts() or seconds else None


def _rate(value: float | None) -> float | None:
    return None if value is None else float(round(value * _GB))


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


KIND = Kind("p2pBandwidthLatencyTest", _starts, _continues, parse)
