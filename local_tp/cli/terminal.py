"""What an output can show: its width, colours, and characters beyond ASCII; and text laid out so.

Knows nothing of what is printed. Colours only where a person reads on a terminal; where the
encoding is not UTF-8 every character is ASCII, and no line is wider than the output.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from local_tp import settings
from local_tp.hardware.report.report import printable

NARROWEST, WIDEST = 60, 110
Colour = Literal["weights", "kv", "workspace", "reserve", "left", "others", "strong", "quiet"]
CODES: dict[Colour, str] = {
    "weights": "34",
    "kv": "36",
    "workspace": "33",
    "reserve": "35",
    "left": "2",
    "others": "90",
    "strong": "1",
    "quiet": "2",
}
PLAIN = {"·": "-", "×": "x", "…": "...", "–": "-", "→": "->", "↓": "|", "µ": "u"}


@dataclass(frozen=True, slots=True)
class Look:
    """Columns, and whether colours and UTF-8 are understood."""

    width: int = 80
    colours: bool = False
    unicode: bool = True

    def paint(self, text: str, colour: Colour) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self.colours and text else text

    def plain(self, text: str) -> str:
        """`text` in characters that the output can show, of the same width where it is drawn."""
        text = printable(text)
        if self.unicode:
            return text
        for character, instead in PLAIN.items():
            text = text.replace(character, instead)
        return text.encode("ascii", "replace").decode()


def look() -> Look:
    """What standard output can show."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    columns = shutil.get_terminal_size((80, 24)).columns
    return Look(
        width=max(NARROWEST, min(columns, WIDEST)),
        colours=sys.stdout.isatty() and settings.colours(),
        unicode=encoding == "utf8",
    )


def wrapped(text: str, look: Look, first: str = "", rest: str = "") -> list[str]:
    """Lines that fit; `first` begins the first, `rest` the others."""
    return textwrap.wrap(
        look.plain(text),
        look.width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )


def items(lines: Iterable[str], look: Look) -> list[str]:
    """A list, a dash before each entry."""
    return [line for text in lines for line in wrapped(text, look, "  - ", "    ")]


def table(rows: Sequence[Sequence[str]], look: Look, left: int = 1) -> list[str]:
    """Columns under each other: the first `left` to the left, the others to the right.

    Where it would be too wide the widest left column is cut.
    """
    grid = [[look.plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    over = sum(widths) + 2 * len(widths) - look.width
    if over > 0:
        widest = max(range(left), key=lambda i: widths[i])
        widths[widest] = max(6, widths[widest] - over)
    return [
        "  "
        + "  ".join(
            cell[:width].ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in grid
    ]
