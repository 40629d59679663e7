"""`lspci -t` and `-tv`: which cards hang under the same root port, switch or root complex.

Knows nothing of links' speeds. A tree without names cannot say which leaves are graphics cards: it
says how far apart those are that another output places, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from local_tp.facts import CardFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import Card, Kind, Sighting
from local_tp.hardware.paste.text import Line

_ROOT = re.compile(r"-\[([0-9a-f]{4,8}):([0-9a-f]{2})(?:-[0-9a-f]{2})?\]-")
_BRANCH = re.compile(r"[+\\-]-([0-9a-f]{2})\.([0-7])-\[([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]")
# So many buses are set aside for what may be plugged in, and by no switch inside a PC.
_PLUGGABLE_BUSES = 32
_LEAF = re.compile(r"(?:[+\\-]-|--)([0-9a-f]{2})\.([0-7])(?:\s+(\S.{0,200}))?\s*\Z")
_BARE_LEAF = re.compile(r"\]-+\s+([A-Za-z].{2,120})\Z")
_DRAWN = re.compile(r"[\s|]*[+\\-][+\\-]?[-\[]")


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
    pluggable: set[tuple[str, str]] = field(default_factory=set)  # (root complex, bridge)


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards that the tree names, and the way to each of its leaves."""
    tree = _Tree()
    for line in lines:
        _line(line.text[:2000], tree)
    chipset = _chipset(tree.leaves)
    return Sighting(
        "lspci -tv",
        tuple(_card(leaf, chipset, tree.pluggable) for leaf in tree.leaves if _is_card(leaf)),
        ways=tuple((leaf.slot, leaf.way) for leaf in tree.leaves),
    )


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
        bridge = f"{bus}:{match[1]}.{match[2]}"
        tree.stack.append((column, bridge, match[3]))
        if int(match[4] or match[3], 16) - int(match[3], 16) + 1 >= _PLUGGABLE_BUSES:
            tree.pluggable.add((tree.root, bridge))
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


def _chipset(leaves: Sequence[_Leaf]) -> frozenset[tuple[str, ...]]:
    """The ways down to the chipset's root ports. Theirs is all that hangs below."""
    intel = {
        leaf.way[0] for leaf in leaves if len(leaf.way) == 1 and leaf.title.startswith("Intel Corp")
    }
    found = set()
    for leaf in leaves:
        if len(leaf.way) < 2:
            continue
        port = leaf.way[0] in intel and pci_names.intel_chipset_port(leaf.way[1])
        if port or pci_names.of_chipset(leaf.title, len(leaf.way)):
            found.add(leaf.way[:2])
    return frozenset(found)


def _is_card(leaf: _Leaf) -> bool:
    # A card's sound has the next function, and no name where the list of ids is an old one.
    return leaf.slot.endswith(".0") and pci_names.is_card(leaf.title)


def _card(
    leaf: _Leaf, chipset: frozenset[tuple[str, ...]], pluggable: Set[tuple[str, str]]
) -> Card:
    plain = leaf.title if len(leaf.title) < 40 and "[" not in leaf.title else None
    inside = pci_names.integrated(leaf.title)
    return Card(
        slot=leaf.slot,
        name=pci_names.marketing_name(leaf.title) or plain,
        facts=CardFacts(
            vendor=pci_names.vendor(leaf.title),
            integrated=True if inside else None,
            external=True if any((leaf.way[0], b) in pluggable for b in leaf.way[1:]) else None,
            chipset=True if leaf.way[:2] in chipset and not inside else None,
        ),
    )


KIND = Kind("lspci -t", _starts, _continues, parse)
