"""How far apart two cards are, by the bridges on the way to each of them.

Knows nothing of text. A way is the root complex and then a bridge for each step; whether two root
complexes share a socket no way can say, but cards of different NUMA nodes do not share a root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from local_tp.facts import Path

Way = tuple[str, ...]


def paths(slots: Sequence[str | None], ways: Mapping[str, Way]) -> Iterator[tuple[int, int, Path]]:
    """(place, place, path) of each two of `slots` whose ways are known and meet."""
    known = [(i, ways[slot]) for i, slot in enumerate(slots) if slot is not None and slot in ways]
    for (i, a), (j, b) in combinations(known, 2):
        if found := path(a, b):
            yield i, j, found


def across_nodes(nodes: Sequence[int | None]) -> Iterator[tuple[int, int, Path]]:
    """(place, place, path) of each two cards whose NUMA nodes are known and differ."""
    known = [(i, node) for i, node in enumerate(nodes) if node is not None]
    for (i, a), (j, b) in combinations(known, 2):
        if a != b:
            yield i, j, "SYS"


def path(a: Way, b: Way) -> Path | None:
    """In `nvidia-smi`'s words; None where the two meet at no bridge that is known."""
    if not a or not b or a[0] != b[0]:
        return None
    shared = _shared(a, b)
    if shared == 1:
        return "PHB"
    steps = len(a) + len(b) - 2 * shared
    return "PIX" if steps <= 2 else "PXB"


def _shared(a: Iterable[str], b: Iterable[str]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
