"""Parts of one layer by count of units, and straight lines through them where units are alike.

Knows nothing of what a unit is, nor of how a piece is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import NamedTuple

from local_tp.plan.work import Part, PartName

NUMBERS = tuple(f.name for f in fields(Part) if f.name not in ("name", "held"))
FEW = 8  # units below which each count is asked
MANY = 32  # experts from which on they outweigh their router


class Piece(NamedTuple):
    """One part of one layer at one share: bytes of weights, and the work of a step."""

    nbytes: int
    part: Part
    slack: int = 0


class Line(NamedTuple):
    """A part of one layer where units are alike: `first` of them, and what one more adds."""

    unit: int
    first: int
    start: Piece
    step: Piece
    slack: int

    def holds(self, count: int) -> bool:
        """Whether it says what that count is."""
        return count % self.unit == 0 and count >= self.first * self.unit

    def piece(self, name: PartName, count: int) -> Piece:
        """The part at a count that the line holds."""
        steps = count // self.unit - self.first
        nbytes = self.start.nbytes + steps * self.step.nbytes
        part = extended(name, self.start.part, self.step.part, steps)
        return Piece(nbytes, part, self.slack if nbytes else 0)


numbers_of: Callable[[Part], tuple[float, ...]] = attrgetter(*NUMBERS)


def extended(name: PartName, start: Part, step: Part, steps: int) -> Part:
    """`start` and so many steps more, in the form of `start`."""
    pairs = zip(numbers_of(start), numbers_of(step), strict=True)
    return Part(name, start.held, *(a + steps * b for a, b in pairs))


def added(name: PartName, parts: Sequence[tuple[float, Part]]) -> Part:
    """The sum of parts, each so many times; the form is that of the one with the most weights."""
    present = [(times, part) for times, part in parts if times]
    if not present:
        return Part(name, "bfloat16")
    heaviest = max(present, key=lambda entry: entry[0] * (entry[1].weights + entry[1].pool))[1]
    if len(present) == 1 and present[0][0] == 1:
        return heaviest
    rows = [numbers_of(part) for _, part in present]
    times = [n for n, _ in present]
    return Part(
        name,
        heaviest.held,
        *(
            sum(n * value for n, value in zip(times, column, strict=True))
            for column in zip(*rows, strict=True)
        ),
    )


def line_through(ask: Callable[[int], Piece], unit: int, most: int) -> Line | None:
    """The line on which pieces lie from the first unit on, or from `MANY`, or None.

    `ask` is the piece of a count; `most` is the largest count.
    """
    units = most // unit
    if units < FEW or most % unit:
        return None
    slack = ask(most).slack
    for first in (1, MANY) if units > 3 * MANY else (1,):
        at = (first, first + 1, units // 2, units - 1)
        start, second, *later = (ask(n * unit) for n in at)
        line = Line(unit, first, start, _difference(second, start), slack)
        straight = all(_meets(line, n, p) for n, p in zip(at[1:], (second, *later), strict=True))
        if straight and (first == 1 or start.slack == slack):
            return line
    return None


def _difference(second: Piece, start: Piece) -> Piece:
    """What one unit more adds."""
    a, b = start.part, second.part
    numbers = {key: getattr(b, key) - getattr(a, key) for key in NUMBERS}
    return Piece(second.nbytes - start.nbytes, replace(a, **numbers))


def _meets(line: Line, units: int, piece: Piece) -> bool:
    """Whether a piece of so many units lies on the line."""
    steps = units - line.first
    if piece.part.held != line.start.part.held:
        return False
    if piece.nbytes != line.start.nbytes + steps * line.step.nbytes:
        return False
    for key in NUMBERS:
        expected = getattr(line.start.part, key) + steps * getattr(line.step.part, key)
        if abs(getattr(piece.part, key) - expected) > 1e-9 * max(abs(expected), 1.0):
            return False
    return True
