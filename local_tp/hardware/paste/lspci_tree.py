"""`lspci -t` and `-tv`: which cards hang under the same root port, switch or root complex.

Knows nothing of links' speeds. A tree without names cannot say which leaves are graphics cards;
that is said and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from local_tp.facts import CardFacts, PairFacts, Path
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import Card, Kind, Pair, Sighting
from local_tp.hardware.paste.text import Line

_ROOT = re.compile(r"-\[([0-9a-f]{4,8}):([0-9a-f]{2})(?:-[0-9a-f]{2})?\]-")
_BRANCH = re.compile(r"[+\\-]-([0-9a-f]{2})\.([0-7])-\[([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
_LEAF = re.compile(r"(?:[+\\-]-|--)([0-9a-f]{2})\.([0-7])(?:\s+(\S.{0,200}))?\s*\Z")
_BARE_LEAF = re.compile(r"\]-+\s+([A-Za-z].{2,120})\Z")
_DRAWN = re.compile(r"[\s|]*[+\\-][+\\-]?[-\[]")
_GRAPHICS = re.compile(
    r"GeForce|Quadro|\bRTX\b|\bGTX\b|Tesla|\bTITAN\b|Radeon|Instinct|\bNavi\b|\bVega\b|\bArc\b"
    r"|NVIDIA Corporation (?!.*(?:Audio|USB|UCSI))|Graphics\b|Display controller|VGA",
    re.IGNORECASE,
)
_OTHER = re.compile(r"Audio|USB|UCSI|Bridge|Port\b|Switch|HDMI|Memory Controller", re.IGNORECASE)


def _starts(line: str) -> bool:
    return bool(_ROOT.search(line) or (_DRAWN.match(line) and _BRANCH.search(line)))


def _continues(line: str) -> bool:
    return bool(_DRAWN.match(line) and (_BRANCH.search(line) or _LEAF.search(line)))


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A function and the way to it: the root complex, then a bridge for each step."""

    slot: str
    title: str
    way: tuple[str, ...]


@dataclass(slots=True)
class _Tree:
    root: str = "0000:00"
    stack: list[tuple[int, str, str]] = field(default_factory=list)  # column, bridge, bus below
    leaves: list[_Leaf] = field(default_factory=list)


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards that the tree names, and how near each other they are."""
    tree = _Tree()
    for line in lines:
        _line(line.text[:2000], tree)
    named = [leaf for leaf in tree.leaves if leaf.title]
    cards = [
        leaf for leaf in named if _GRAPHICS.search(leaf.title) and not _OTHER.search(leaf.title)
    ]
    pairs = []
    for (i, a), (j, b) in combinations(enumerate(cards), 2):
        if path := _path(a, b):
            pairs.append(Pair(i, j, facts=PairFacts(path=path)))
    unread: tuple[str, ...] = ()
    if not named:
        unread = (
            f"line {lines[0].number}: a PCI tree without names, in which graphics cards look like "
            "any other device: add the output of lspci -tv",
        )
    return Sighting("lspci -tv", tuple(map(_card, cards)), tuple(pairs), unread=unread)


def _line(text: str, tree: _Tree) -> None:
    if match := _ROOT.search(text):
        tree.root = f"{match[1][-4:]}:{match[2]}"
        tree.stack = []
    end = 0
    for match in _BRANCH.finditer(text):
        column, end = match.start(), match.end()
        while tree.stack and tree.stack[-1][0] >= column:
            tree.stack.pop()
        bus = tree.stack[-1][2] if tree.stack else tree.root.split(":")[1]
        tree.stack.append((column, f"{bus}:{match[1]}.{match[2]}", match[3]))
    rest = text[max(0, end - 1) :]
    if (leaf := _LEAF.search(rest)) and leaf.start() + max(0, end - 1) >= end - 1:
        column = leaf.start() + max(0, end - 1)
        while tree.stack and tree.stack[-1][0] >= column:
            tree.stack.pop()
        _add(tree, leaf[1], leaf[2], leaf[3] or "")
    elif end and (bare := _BARE_LEAF.search(text)):
        _add(tree, "00", "0", bare[1])


def _add(tree: _Tree, device: str, function: str, title: str) -> None:
    bus = tree.stack[-1][2] if tree.stack else tree.root.split(":")[1]
    slot = bus_id(f"{tree.root.split(':')[0]}:{bus}:{device}.{function}")
    if slot:
        way = (tree.root, *(bridge for _, bridge, _ in tree.stack))
        tree.leaves.append(_Leaf(slot, title.strip(), way))


def _card(leaf: _Leaf) -> Card:
    plain = leaf.title if len(leaf.title) < 40 and "[" not in leaf.title else None
    return Card(
        slot=leaf.slot,
        name=pci_names.marketing_name(leaf.title) or plain,
        facts=CardFacts(
            vendor=pci_names.vendor(leaf.title),
            integrated=True if pci_names.integrated(leaf.title) else None,
        ),
    )


def _path(a: _Leaf, b: _Leaf) -> Path | None:
    """In `nvidia-smi`'s words; whether two root complexes share a socket a tree cannot say."""
    if a.way[0] != b.way[0]:
        return None
    shared = sum(x == y for x, y in zip(a.way, b.way, strict=False))
    if shared == 1:
        return "PHB"
    steps = len(a.way) + len(b.way) - 2 * shared
    return "PIX" if steps <= 2 else "PXB"


KIND = Kind("lspci -t", _starts, _continues, parse)
