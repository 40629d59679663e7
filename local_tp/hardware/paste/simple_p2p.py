"""`simpleP2P` of the CUDA samples: who reaches whom, and whether data arrived between two cards.

Knows nothing of buses: its device numbers are CUDA's. Its GB/s are 2^30 bytes, the mean of copies
there and back. It looks at what arrived, and a rate at which nothing arrived is not told on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from local_tp.facts import CardFacts, P2pStatus, PairFacts, Verdict
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Pairs, Sighting
from local_tp.hardware.paste.text import Line

_TITLE = re.compile(r"simpleP2P\S{0,8}\] - Starting")
_COUNT = re.compile(r"CUDA-capable device count:\s*(\d{1,3})\b")
_ACCESS = re.compile(
    r"[\s>]{0,8}Peer(?:-to-Peer \(P2P\))? access from (\S.{0,100}?) \(GPU(\d{1,3})\) -> "
    r"(\S.{0,100}?) \(GPU(\d{1,3})\)\s{0,4}: (Yes|No)\b"
)
_PAIR = re.compile(r"Enabling peer access between GPU(\d{1,3}) and GPU(\d{1,3})")
_RATE = re.compile(
    r"cudaMemcpyPeer / cudaMemcpy between GPU(\d{1,3}) and GPU(\d{1,3}):\s{0,4}"
    r"(\d{1,6}\.\d{1,4})\s{0,4}GB/s"
)
_NONE = re.compile(
    r"Two or more GPUs with Peer-to-Peer access capability are required"
    r"|Peer to Peer access is not available amongst GPUs"
)
_WRONG = re.compile(r"\s*(?:Verification error @ element|Test failed!)")
_RIGHT = re.compile(r"\s*Test passed\s*\Z")
_FAILED = re.compile(r"\s*CUDA error at .{0,300}code=")
_OTHER = re.compile(
    r"\s*(?:Checking GPU\(s\) for support of peer|Allocating buffers \(|Creating event handles"
    r"|Preparing host buffer and memcpy|Run kernel on GPU\d|Copy data back to host from GPU"
    r"|Disabling peer access|Shutting down\.\.\.|Waiving test)"
)
_GIB = 2**30


def _starts(line: str) -> bool:
    return bool(
        _TITLE.search(line)
        or "Checking for multiple GPUs" in line
        or _COUNT.match(line)
        or "Verification error @ element" in line
        or _ACCESS.match(line)
        or _RATE.search(line)
        or _NONE.search(line)
    )


def _continues(line: str) -> bool:
    return _starts(line) or any(
        pattern.match(line) for pattern in (_PAIR, _WRONG, _RIGHT, _FAILED, _OTHER)
    )


@dataclass(slots=True)
class _Test:
    names: dict[int, str] = field(default_factory=dict)
    reach: dict[tuple[int, int], bool] = field(default_factory=dict)
    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    verdict: Verdict | None = None
    tried: tuple[int, int] | None = None  # the pair that it copies between
    count: int = 0
    none: bool = False  # of all pairs has peer access


def parse(lines: Sequence[Line]) -> Sighting:
    """Cards in CUDA's order, who reaches whom, and of the pair that was tried rate and verdict."""
    test = _Test()
    for line in lines:
        _line(line.text, test)
    if test.none:
        for a, b in combinations(range(min(test.count, MOST_CARDS)), 2):
            test.reach.setdefault((a, b), False)
    numbers = sorted({n for pair in (*test.reach, *test.rates) for n in pair})[:MOST_CARDS]
    place = {number: i for i, number in enumerate(numbers)}
    pairs = Pairs()
    for (a, b), facts in _told(test).items():
        if a in place and b in place:
            pairs.add(place[a], place[b], facts)
    cards = tuple(
        Card(number=number, order="cuda", name=test.names.get(number), facts=_NVIDIA)
        for number in numbers
    )
    return Sighting("simpleP2P", cards, pairs.all(), unread=_unread(test, lines[0].number))


_NVIDIA = CardFacts(vendor="nvidia")


def _line(text: str, test: _Test) -> None:
    if match := _ACCESS.match(text):
        a, b = int(match[2]), int(match[4])
        test.names |= {a: match[1], b: match[3]}
        test.reach[a, b] = match[5] == "Yes"
    elif match := _COUNT.search(text):
        test.count = int(match[1])
    elif match := _PAIR.search(text):
        test.tried = _pair(match[1], match[2])
    elif match := _RATE.search(text):
        test.tried = _pair(match[1], match[2])
        test.rates[test.tried] = float(match[3]) * _GIB
    elif _NONE.search(text):
        test.none = True
    elif _WRONG.match(text):
        test.verdict = "broken"
    elif _FAILED.match(text):
        test.verdict = test.verdict or "failed"
    elif _RIGHT.match(text):
        test.verdict = test.verdict or "good"


def _pair(first: str, second: str) -> tuple[int, int]:
    return min(int(first), int(second)), max(int(first), int(second))


def _told(test: _Test) -> dict[tuple[int, int], PairFacts]:
    """The pairs, lower number first."""
    told: dict[tuple[int, int], PairFacts] = {}
    for a, b in sorted({(min(p), max(p)) for p in (*test.reach, *test.rates)}):
        ways = [test.reach[p] for p in ((a, b), (b, a)) if p in test.reach]
        state: P2pStatus | None = None if not ways else "ok" if all(ways) else "not-supported"
        verdict = test.verdict if test.tried == (a, b) else None
        rate = test.rates.get((a, b)) if verdict in (None, "good") else None
        rate = None if rate is None else float(round(rate))
        told[a, b] = PairFacts(read=state, write=state, forth=rate, back=rate, verdict=verdict)
    return told


def _unread(test: _Test, line: int) -> tuple[str, ...]:
    if test.verdict in ("broken", "failed") and test.tried is None:
        what = "a copy between two cards went wrong, but not which cards"
    elif test.none and not test.reach and test.count != 1:
        what = "no two cards have peer access, but not which cards there are"
    else:
        return ()
    return (f"line {line}: simpleP2P says that {what}: paste all of its output",)


KIND = Kind("simpleP2P", _starts, _continues, parse, again=lambda line: bool(_TITLE.search(line)))
