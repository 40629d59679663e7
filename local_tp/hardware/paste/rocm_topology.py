"""`rocm-smi --showtopo`: weight, hops, type and reach of the way between two cards.

Knows nothing of cards but their numbers. The driver's hops say how far: two are one host bridge,
three or more lead over the link between processors. Its weights say the same, for each way between
a card and a processor weighs 20. XGMI is AMD's counterpart of NVLink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from local_tp.facts import PairFacts, Path
from local_tp.hardware.paste.sighting import Pair, Pairs

_TITLE = re.compile(
    r"=\s*(?:\(Topology\) )?(Weight|Hops|Link Type|Link accessibility|Link Accessibility) between"
    r" two GPUs",
    re.IGNORECASE,
)
_CELLS = re.compile(r"\s*GPU(\d{1,3})((?:\s+\S{1,12}){1,64})\s*\Z")
_LABELS = re.compile(r"\s*(?:GPU\d{1,3}\s*){1,64}\Z")
_WEIGHT_OF_ONE_BRIDGE = 40
_JSON = re.compile(
    r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,3}) and (\d{1,3})"
)


@dataclass(slots=True)
class MatrixReader:
    """Takes the lines of the matrices, whichever come, and has the pairs in the end."""

    told: dict[tuple[int, int], dict[str, str]] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    title: str | None = None
    columns: list[int] = field(default_factory=list)

    def line(self, text: str) -> bool:
        """Whether the line was part of a matrix."""
        if match := _TITLE.search(text):
            self.title, self.columns = match[1].lower(), []
            return True
        if self.title is None:
            return False
        if _LABELS.match(text) and text.strip():
            self.columns = [int(number) for number in re.findall(r"GPU(\d+)", text)]
            self.numbers.update(self.columns)
            return True
        match = _CELLS.match(text)
        if not match:
            return False
        row = int(match[1])
        self.numbers.add(row)
        columns = self.columns or range(64)
        for column, word in zip(columns, match[2].split(), strict=False):
            self.say(self.title, row, column, word)
        return True

    def say(self, title: str, row: int, column: int, word: str) -> None:
        if row != column:
            self.numbers.update((row, column))
            pair = (min(row, column), max(row, column))
            self.told.setdefault(pair, {}).setdefault(title, word)

    def pairs(self, place: Mapping[int, int]) -> tuple[Pair, ...]:
        """The pairs, their cards by place instead of number."""
        pairs = Pairs()
        for (a, b), told in self.told.items():
            if a not in place or b not in place:
                continue
            xgmi = told.get("link type", "").upper() == "XGMI"
            reach = told.get("link accessibility", "").lower()
            state = PairFacts(
                path="nvlink" if xgmi else _path(told),
                read="ok" if reach == "true" else "not-supported" if reach == "false" else None,
            )
            pairs.add(place[a], place[b], state, kind="nvlink" if xgmi else None)
        return pairs.all()


def weights(name: str, value: str, matrix: MatrixReader) -> None:
    """An entry of the JSON's `system`."""
    if match := _JSON.fullmatch(name):
        matrix.say(match[1].lower(), int(match[2]), int(match[3]), value)


def _path(told: Mapping[str, str]) -> Path | None:
    for what, of_one_bridge in (("hops", 2), ("weight", _WEIGHT_OF_ONE_BRIDGE)):
        if (word := told.get(what, "")).isdecimal():
            return "PHB" if int(word[:4]) <= of_one_bridge else "SYS"
    return None
