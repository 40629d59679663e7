"""`all_reduce_perf` of nccl-tests: how long an all-reduce of each size takes.

Knows nothing of how NCCL moves the data. Takes the out-of-place time. Where the header is
missing, the number of ranks follows from the two bandwidths, whose ratio is 2(n-1)/n.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from local_tp.facts import CardFacts, Collective, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste.sighting import Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import number

_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,4})\b.{0,120}?\bdevice\s+(\d{1,3})\s+\[([0-9a-fA-Fx:.]{2,16})\]\s*(.{0,80})"
)
_SETTINGS = re.compile(r"#\s*nThreads?\s+\d{1,4}\s+nGpus\s+(\d{1,4})")
_ROW = re.compile(
    r"\s*(\d{1,16})\s+\d{1,16}\s+(?:float|double|half|bfloat16|u?int\d{1,2}|u?int8|fp8\S{0,8})\s+"
    r"(\w{3,8})\s+(?:(-?\d{1,4})\s+)?(\d{1,12}(?:\.\d{1,4})?)(?:\s+(.{0,200}))?\s*\Z"
)
_VERSION = re.compile(r"NCCL version\s+(\d[\d.]{2,12})|nccl-library=(\d{5})")
_FAILURE = re.compile(r"Test NCCL failure|Test failure|Test CUDA failure|NCCL WARN")
# What NCCL and CUDA call their failures: only these words are told of a line.
_ERRORS = re.compile(
    r"unhandled (?:cuda|system) error|internal error|invalid (?:argument|usage)|remote process "
    r"exited|network error|out of memory|illegal memory access|no kernel image is available"
    r"|invalid device ordinal|peer access is not supported|unspecified launch failure",
    re.IGNORECASE,
)
_UNNAMED = "an error that is not named"
_REST = re.compile(r"#(?:\s|\Z)")
_MARKS = re.compile(
    r"#\s*(?:nThread|Using devices|\s{0,80}size\s+count\s+type|Avg bus bandwidth|Out of bounds"
    r"|Collective test|nccl-tests version)"
)


def _starts(line: str) -> bool:
    return bool(
        _SETTINGS.match(line) or _RANK.match(line) or _ROW.match(line) or _MARKS.match(line)
    )


def _continues(line: str) -> bool:
    return bool(
        _starts(line) or _REST.match(line) or _FAILURE.search(line) or _VERSION.search(line)
    )


@dataclass(slots=True)
class _Run:
    ranks: int | None = None
    cards: dict[int, Card] = field(default_factory=dict)
    rows: list[tuple[int, float, bool | None]] = field(default_factory=list)
    ratio: float | None = None  # of bus to algorithm bandwidth, of the largest message
    other: str | None = None  # what the test is, if it is no all-reduce
    nccl: str | None = None
    failed: str | None = None


def parse(lines: Sequence[Line]) -> Sighting:
    """Cards in rank order, and a timing for each size."""
    run = _Run()
    for line in lines:
        _line(line.text, run)
    ranks = len(run.cards) or run.ranks
    expected = None if run.ratio is None else ranks_of(run.ratio)
    if ranks is None or (expected is not None and ranks == 1):
        ranks = expected or ranks
    unread, unknown = [], []
    if run.rows and (run.other or ranks is None):
        what = run.other or "a test whose number of ranks is not told"
        unread.append(f"line {lines[0].number}: nccl-tests: {what}, not an all-reduce: not used")
    elif run.ratio is not None and ranks and ranks > 2 and run.ratio < 1:
        run.other = "another collective"
        unread.append(f"line {lines[0].number}: nccl-tests: not an all-reduce: not used")
    if run.failed:
        unknown.append(f"nccl-tests failed: {run.failed}")
    timed = () if run.other or ranks is None else run.rows
    return Sighting(
        "nccl-tests",
        cards=tuple(run.cards[rank] for rank in sorted(run.cards)),
        collectives=tuple(
            Collective("nccl", ranks or 0, nbytes, seconds, correct)
            for nbytes, seconds, correct in timed
        ),
        software=SoftwareFacts(nccl=run.nccl),
        unknown=tuple(unknown),
        unread=tuple(unread),
    )


def ranks_of(ratio: float) -> int | None:
    """How many ranks an all-reduce has whose bus bandwidth is `ratio` times its algorithm's."""
    if not 0.95 <= ratio < 1.99:
        return None
    return max(2, round(2 / (2 - ratio)))


def _line(text: str, run: _Run) -> None:
    if match := _RANK.match(text):
        run.cards[int(match[1])] = _card(match[2], match[3], match[4])
    elif match := _SETTINGS.match(text):
        run.ranks = int(match[1])
    elif match := _ROW.match(text):
        _timing(match, run)
    elif match := _VERSION.search(text):
        run.nccl = match[1] or _dotted(int(match[2]))
    elif "Collective test" in text and "all_reduce" not in text:
        run.other = text.rpartition(":")[2].strip()[:40] or "another collective"
    elif _FAILURE.search(text) and run.failed in (None, _UNNAMED):
        said = _ERRORS.search(text)
        run.failed = said[0].lower() if said else _UNNAMED


def _timing(match: re.Match[str], run: _Run) -> None:
    nbytes, operation, root = int(match[1]), match[2], match[3]
    if operation == "none" or (root is not None and root != "-1"):
        run.other = run.other or "another collective"
    rest = (match[5] or "").split()
    wrong = rest[2] if len(rest) > 2 else "N/A"
    correct = (
        None if not wrong.replace("e+", "").isalnum() or wrong == "N/A" else number(wrong) == 0
    )
    run.rows.append((nbytes, round(float(match[4]) / 1e6, 12), correct))
    algorithm, bus = (number(word) for word in [*rest, "", ""][:2])
    if algorithm and bus and algorithm > 0.2:
        run.ratio = bus / algorithm


def _card(device: str, place: str, name: str) -> Card:
    text = place.lower().removeprefix("0x")
    slot = bus_id(text if text.count(":") == 2 and "." in text else f"{text}.0")
    bus = int(text, 16) if not slot and re.fullmatch(r"[0-9a-f]{1,2}", text) else None
    facts = CardFacts(vendor="nvidia")
    told = name.strip() or None
    return Card(slot=slot, bus=bus, number=int(device), order="cuda", name=told, facts=facts)


def _dotted(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


KIND = Kind("nccl-tests", _starts, _continues, parse)
