"""Takes off the line numbers that `cat -n`, `grep -n`, `nl` and editors put in front of lines.

Knows nothing of any tool's output, which begins with numbers too: what is taken off rises from
line to line behind one kind of sign, in a run of lines one after another or in all of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

# Bus ids and times of day begin with a number and a colon too, and with zeros no line number does.
_COLON = r":(?![0-9a-fA-F]{2}\.[0-7](?:\s|\Z))(?!\d\d:\d\d(?:[.,]\d{2,9})?(?:\s|\Z))"
_NUMBERED = re.compile(
    rf"(?P<number> {{0,9}}[1-9]\d{{0,5}})"
    rf"(?:(?P<tab>\t)|(?P<arrow> ?(?:→|->)(?: |\Z)?)|(?P<stroke> ?[|│](?: |\Z))"
    rf"|(?P<colon>(?:{_COLON}|-)[ ]?)|(?P<gap>  )|(?P<bare>\Z))"
)
_SEPARATOR = re.compile(r"-{2,3}\Z")  # of grep, between its finds
_LEAST_RUN = 4
_NEARLY_ALL = 0.9


class _Numbered(NamedTuple):
    place: int  # among the lines
    number: int
    width: int  # up to the number's end
    sign: str
    text: str


def without_numbers(lines: Sequence[str]) -> list[str]:
    """The lines without numbers in front, where those are surely line numbers."""
    plain = list(lines)
    filled = sum(1 for line in lines if line.strip() and not _SEPARATOR.match(line))
    for run in _runs(lines):
        in_turn = all(b.number == a.number + 1 for a, b in pairwise(run))
        long = in_turn and len(run) >= _LEAST_RUN
        everywhere = len(run) >= 2 and len(run) >= _NEARLY_ALL * filled
        if run[0].sign == "gap":  # as rows of a table begin
            sure = long and everywhere and len({line.width for line in run}) == 1
        else:
            sure = long or everywhere
        if sure:
            for line in run:
                plain[line.place] = line.text
    return plain


def _runs(lines: Sequence[str]) -> Iterator[list[_Numbered]]:
    """Lines whose numbers rise behind the same sign, with nothing between them."""
    run: list[_Numbered] = []
    for place, line in enumerate(lines):
        if not line.strip() or (_SEPARATOR.match(line) and run):
            continue
        found = _read(place, line)
        if found and run and found.number > run[-1].number and found.sign in (run[0].sign, "bare"):
            run.append(found)
            continue
        if run:
            yield run
        run = [found] if found and found.sign != "bare" else []
    if run:
        yield run


def _read(place: int, line: str) -> _Numbered | None:
    """The line as one with a number; a blank one of a numbered text has nothing behind it."""
    if not (match := _NUMBERED.match(line)):
        return None
    number = match["number"]
    return _Numbered(place, int(number), len(number), match.lastgroup or "", line[match.end() :])
