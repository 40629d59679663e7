"""How the picture's lines show a speed, and the legend that says so.

Knows nothing of machines. The legend names what is in the picture and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

# GB/s from which each colour counts; all six are readable on white and on near-black.
BUCKETS = (
    (0.0, "#dc3a2f", "under 2 GB/s"),
    (2.0, "#e87524", "2 to 6 GB/s"),
    (6.0, "#c79a00", "6 to 12 GB/s"),
    (12.0, "#4f9d3a", "12 to 24 GB/s"),
    (24.0, "#159aa8", "24 to 50 GB/s"),
    (50.0, "#4a74f0", "50 GB/s and more"),
)
UNKNOWN = "#8a94a3"
BROKEN = BUCKETS[0][1]

CELL, ROW = 130, 20
NOMINAL = "nominal only"


@dataclass(frozen=True, slots=True)
class Line:
    """How to draw a speed: bytes a second, and whether somebody measured it."""

    rate: float | None
    measured: bool
    broken: bool = False

    @property
    def promised(self) -> bool:
        """Whether the hardware promises it and nobody measured it."""
        return self.rate is not None and not self.measured and not self.broken

    @property
    def style(self) -> str:
        rank = bucket(self.rate)
        colour = BROKEN if self.broken else UNKNOWN if rank is None else BUCKETS[rank][1]
        width = 2.0 if rank is None else 2.0 + 0.7 * rank
        dash = ' stroke-dasharray="5 4"' if self.promised else ""
        return f'fill="none" stroke="{colour}" stroke-width="{width:.1f}"{dash}'


def bucket(rate: float | None) -> int | None:
    """The index in `BUCKETS` of a speed in bytes a second; None if it is not known."""
    if rate is None:
        return None
    return max(i for i, (least, _, _) in enumerate(BUCKETS) if i == 0 or rate / 1e9 >= least)


def legend_entries(lines: Collection[Line]) -> tuple[tuple[Line, str], ...]:
    """A sample and its words for every kind of line among `lines`, slow to fast."""
    ranks = {bucket(line.rate) for line in lines if not line.broken}
    entries = [
        (Line(least * 1e9, measured=True), text)
        for rank, (least, _, text) in enumerate(BUCKETS)
        if rank in ranks
    ]
    if None in ranks:
        entries.append((Line(None, measured=True), "not known"))
    if any(line.promised for line in lines):
        entries.append((Line(0.0, measured=False), NOMINAL))
    if any(line.broken for line in lines):
        entries.append((Line(None, measured=True, broken=True), "✕ fails"))
    return tuple(entries)


def legend(lines: Collection[Line], left: float, top: float, width: float) -> Iterator[str]:
    """The legend of `lines` as SVG, from `top` on in rows of cells."""
    columns = max(1, int(width // CELL))
    for number, (line, text) in enumerate(legend_entries(lines)):
        x = left + number % columns * CELL
        y = top + number // columns * ROW
        style = line.style
        if text == NOMINAL:  # a way of drawing, of no one colour
            style = f'fill="none" stroke="{UNKNOWN}" stroke-width="3" stroke-dasharray="5 4"'
        yield f'<path d="M{x} {y - 4:.1f}h22" {style}/>'
        yield f'<text x="{x + 29}" y="{y:.1f}" font-size="11">{text}</text>'


def legend_height(lines: Collection[Line], width: float) -> float:
    columns = max(1, int(width // CELL))
    return -(-len(legend_entries(lines)) // columns) * ROW
