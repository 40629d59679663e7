"""`nvidia-smi topo -m` and `topo -p2p r|w|n|a|p`: a matrix of words between cards.

Knows nothing of cards but their numbers. Columns and rows of network cards and the legend are
passed over; rows may be missing or cut, and all line ends may be lost. What a matrix leaves out is
said, for it is not the same as nothing being there. Drivers that print no NUMA node print the
processors near each card, and cards without a common one are on different nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

from local_tp.facts import CardFacts, P2pStatus, PairFacts, Path
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Pairs, Sighting
from local_tp.hardware.paste.text import Line

_COMMAND = re.compile(r"topo\s+(?:-m\b|--matrix\b|-p2p\b|--p2p_capabilities\b)")
_P2P = re.compile(r"-p2p\w*\s+([rwnap]{1,5})\b")
_LABEL = re.compile(r"(?:GPU|NIC)\d{1,3}|mlx\d_(?:bond_)?\d{1,2}|(?:hfi|bnxt_re|rdma|ib)\w{0,8}\d")
_GPU = re.compile(r"GPU(\d{1,3})\Z")
_LEGEND = re.compile(
    r"\s*(?:Legend:|NIC Legend:|(?:X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV#|OK|CNS|GNS|TNS|DR|NS|U"
    r"|NIC\d*)\s*[=:])"
)
_PATHS: Mapping[str, Path] = MappingProxyType(
    {
        "PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "NODE", "SYS": "SYS", "SOC": "SYS",
        "PSB": "internal",
    }
)  # fmt: skip
_STATES: Mapping[str, P2pStatus] = MappingProxyType(
    {
        "OK": "ok", "CNS": "chipset", "GNS": "gpu", "TNS": "topology", "DR": "disabled",
        "NS": "not-supported", "U": "unknown",
    }
)  # fmt: skip
_MOST_ROWS = 400
_MOST_PROCESSORS = 4095
_DOTS = re.compile(r"\.{2,}|…|⋮")
_NVLINK = re.compile(r"NV(\d{1,2})\Z")


def _cell(word: str) -> bool:
    return word == "X" or word in _PATHS or word in _STATES or bool(_NVLINK.match(word))


def _starts(line: str) -> bool:
    if "topo" in line and _COMMAND.search(line):
        return True
    if not line.lstrip(" \t|").startswith("GPU"):
        return False
    words = line[:4000].replace("|", " ").split()
    if len(words) < 2 or not _GPU.match(words[0]):
        return False
    return _cell(words[1]) or words[1] == "GPU1" or words[1:3] == ["CPU", "Affinity"]


def _continues(line: str) -> bool:
    words = line[:4000].replace("|", " ").split(maxsplit=2)
    if words and all(_DOTS.fullmatch(word) for word in words[:2]):
        return True
    if _LEGEND.match(line) or _COMMAND.search(line):
        return True
    if not words or not _LABEL.fullmatch(words[0]):
        return False
    return len(words) == 1 or not words[1].endswith(":")


@dataclass(slots=True)
class _Matrix:
    flags: str = ""  # of -p2p; empty for -m
    columns: list[str] = field(default_factory=list)
    pairs: Pairs = field(default_factory=Pairs)
    numbers: dict[int, int | None] = field(default_factory=dict)  # card -> its NUMA node
    processors: dict[int, str] = field(default_factory=dict)  # card -> those near it
    strange: list[str] = field(default_factory=list)
    more: bool = False  # than cards that any machine has
    dots: bool = False  # in place of rows or columns
    pcie: dict[tuple[int, int], P2pStatus] = field(default_factory=dict)  # of -p2p p

    def knows(self, number: int) -> bool:
        """Whether this card is one of those that are counted, which it becomes while few are."""
        if number not in self.numbers:
            if len(self.numbers) == MOST_CARDS:
                self.more = True
                return False
            self.numbers[number] = None
        return True


def parse(lines: Sequence[Line]) -> Sighting:
    """Cards by number, and what each matrix says of their pairs."""
    matrix = _Matrix()
    for line in lines[:_MOST_ROWS]:
        for text in _rows(line.text):
            _row(text, matrix)
    if matrix.more:
        say = f"line {lines[0].number}: more than {MOST_CARDS} cards: the others were left out"
        matrix.strange.append(say)
    matrix.strange += _left_out(matrix, lines[0].number)
    _use_pcie(matrix)
    told = set(matrix.numbers.values()) - {None}
    nodes = matrix.numbers if told else _nodes(matrix)
    order = sorted(matrix.numbers)
    place = {number: i for i, number in enumerate(order)}
    pairs = Pairs()
    for pair in matrix.pairs.all():
        pairs.add(place[pair.a], place[pair.b], pair.facts, kind=pair.kind)
    cards = tuple(
        Card(number=number, facts=CardFacts(vendor="nvidia", numa=nodes.get(number)))
        for number in order
    )
    return Sighting("nvidia-smi topo", cards=cards, pairs=pairs.all(), unread=tuple(matrix.strange))


def _nodes(matrix: _Matrix) -> dict[int, int | None]:
    """NUMA nodes by the processors near each card, where there is more than one such set."""
    sets = {text: _processors(text) for text in matrix.processors.values()}
    lists = sorted(sets, key=lambda text: min(sets[text], default=0))
    apart = sum(map(len, sets.values())) == len(frozenset[int]().union(*sets.values()))
    if len(sets) < 2 or not apart or not all(sets.values()):
        return {}
    return {number: lists.index(text) for number, text in matrix.processors.items()}


def _processors(text: str) -> frozenset[int]:
    """The numbers in a list such as `0-15,32-47`; none in what is no such list."""
    found: set[int] = set()
    for part in text.strip(",").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(first + last) > 10:
            return frozenset()
        found.update(range(int(first), min(int(last or first), _MOST_PROCESSORS) + 1))
    return frozenset(found)


def _left_out(matrix: _Matrix, line: int) -> list[str]:
    """That the matrix is not whole, in words."""
    told = matrix.pairs.found.keys() | matrix.pcie.keys()
    untold = [pair for pair in combinations(sorted(matrix.numbers), 2) if pair not in told]
    if not untold and not matrix.dots:
        return []
    words = f"line {line}: the matrix is abridged or cut off"
    if matrix.dots:
        words += ": cards that it leaves out are not counted"
    if untold:
        some = ", ".join(f"GPU{a} with GPU{b}" for a, b in untold[:3])
        more = len(untold) - 3
        rest = f" and {more} more pair{'s' if more > 1 else ''}" if more > 0 else ""
        words += f": it says nothing of {some}{rest}"
    return [words]


def _use_pcie(matrix: _Matrix) -> None:
    """What `-p2p p` says of peers over PCI Express, where nothing was said of reading."""
    for (a, b), state in matrix.pcie.items():
        pair = matrix.pairs.found.get((a, b))
        if pair is None or (pair.facts.read is None and pair.kind != "nvlink"):
            matrix.pairs.add(a, b, PairFacts(read=state, write=state))


def _rows(text: str) -> list[str]:
    """The rows of a line: one, but where line ends were lost."""
    text = text[:16000].replace("|", " ")
    words = text.split()
    if words.count("GPU0") < 2 and words.count("GPU1") < 2:
        return [text]
    rows: list[list[str]] = [[]]
    seen: set[str] = set()
    for word in words:
        # A label met again is no column any more, but begins its row.
        if _LABEL.fullmatch(word) and word in seen:
            rows.append([])
        seen.add(word)
        rows[-1].append(word)
    return [" ".join(row) for row in rows]


def _row(text: str, matrix: _Matrix) -> None:
    if _COMMAND.search(text):
        match = _P2P.search(text)
        matrix.flags, matrix.columns = (match[1] if match else "r" if "p2p" in text else ""), []
        text = re.sub(r".*?(?=\bGPU\d|\Z)", "", text, count=1)
    words = text.split()
    if any(_DOTS.fullmatch(word) for word in words):
        matrix.dots = True
    if not words or _LEGEND.match(text) or not _LABEL.fullmatch(words[0]):
        return
    if len(words) == 1 or not _cell(words[1]):
        labels = [w for w in words if _LABEL.fullmatch(w) or _DOTS.fullmatch(w)]
        matrix.columns = labels
        for label in labels:
            if match := _GPU.match(label):
                matrix.knows(int(match[1]))
        return
    source = _GPU.match(words[0])
    if not source or not matrix.knows(a := int(source[1])):
        return
    columns = matrix.columns or [f"GPU{i}" for i in range(len(words) - 1)]
    cells = words[1:]
    for label, word in zip(columns, cells, strict=False):
        target = _GPU.match(label)
        if _DOTS.fullmatch(label) and _DOTS.fullmatch(word):
            continue
        if not _cell(word):
            break
        if target and matrix.knows(int(target[1])):
            _say(matrix, a, int(target[1]), word)
    rest = cells[len(columns) :]
    if rest and (word := rest[0]) not in ("N/A", "NA"):
        matrix.processors[a] = word
    if len(rest) >= 2 and rest[1].isdecimal() and len(rest[1]) < 4:
        matrix.numbers[a] = int(rest[1])


def _say(matrix: _Matrix, a: int, b: int, word: str) -> None:
    if word == "X":
        return
    if match := _NVLINK.match(word):
        facts = PairFacts(path="nvlink", nvlinks=int(match[1]))
        matrix.pairs.add(a, b, facts, kind="nvlink" if facts.nvlinks else None)
    elif word in _PATHS:
        # The driver names a way over PCI Express only where no NVLink is up.
        matrix.pairs.add(a, b, PairFacts(path=_PATHS[word], nvlinks=0))
    elif word in _STATES:
        state, flags = _STATES[word], matrix.flags or "r"
        if "n" in flags:
            joined = state == "ok"
            linked = PairFacts(path="nvlink") if joined else PairFacts(nvlinks=0)
            facts = linked if state != "unknown" else PairFacts()
            matrix.pairs.add(a, b, facts, kind="nvlink" if joined else None)
        if "p" in flags:
            matrix.pcie[min(a, b), max(a, b)] = state
        facts = PairFacts(
            read=state if "r" in flags else None,
            write=state if "w" in flags else None,
            atomics=state if "a" in flags else None,
        )
        matrix.pairs.add(a, b, facts)


KIND = Kind("nvidia-smi topo", _starts, _continues, parse)
