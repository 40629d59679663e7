"""What one block of pasted output tells: cards, pairs of them, and the machine around.

Knows nothing of other blocks. A pair names its cards by their place in the sighting's own
`cards`, so that only the merger has to know which card is which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from local_tp.core import LinkKind, Pcie, Rig
from local_tp.facts import CardFacts, Collective, HostFacts, PairFacts, Process, SoftwareFacts
from local_tp.hardware.paste.text import Line

MOST_CARDS = 64  # no PC has more; a text that says so is damaged or meant to hurt
Order = Literal["driver", "cuda"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a card under MIG. `number` counts within the card; memory in bytes.

    `instance` is the GPU instance by which processes name it.
    """

    number: int
    instance: int | None = None
    profile: str | None = None
    total: int | None = None
    used: int | None = None
    uuid: str | None = None
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """A card as one output tells of it. `number` counts in the tool's own `order`.

    `bus` is for tools that tell nothing of a card's slot but its bus. `total` and `free` in bytes;
    `used_share`, of 1, is for tools that tell memory in use but not of how much.
    """

    slot: str | None = None
    bus: int | None = None
    number: int | None = None
    order: Order = "driver"
    name: str | None = None
    total: int | None = None
    free: int | None = None
    used_share: float | None = None
    capability: tuple[int, int] | None = None
    pcie: Pcie = field(default_factory=Pcie)
    display: bool | None = None
    uuid: str | None = None
    bandwidth: float | None = None
    facts: CardFacts = field(default_factory=CardFacts)
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """What is told of two cards: `a` < `b` are places in the sighting's `cards`."""

    a: int
    b: int
    kind: LinkKind | None = None
    latency: float | None = None
    facts: PairFacts = field(default_factory=PairFacts)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Everything that one block told. `unread` names lines that were not understood.

    `ways` leads to functions by their bus ids, whatever they are: the root complex, then a bridge
    for each step.
    """

    source: str
    cards: tuple[Card, ...] = ()
    pairs: tuple[Pair, ...] = ()
    collectives: tuple[Collective, ...] = ()
    ram: int | None = None
    available_ram: int | None = None
    cores: int | None = None
    os: str | None = None
    host: HostFacts = field(default_factory=HostFacts)
    software: SoftwareFacts = field(default_factory=SoftwareFacts)
    unknown: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    ways: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rig: Rig | None = None
    plugged: int = 0  # devices at Thunderbolt or USB4 ports


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of output: how a block of it begins, goes on, and is read.

    `starts` and `continues` are asked about single lines and must take time linear in them;
    after a line that `ends` the block, nothing more belongs to it, and a line that comes `again`
    is the first of another output of this kind.
    """

    name: str
    starts: Callable[[str], bool]
    continues: Callable[[str], bool]
    parse: Callable[[Sequence[Line]], Sighting]
    ends: Callable[[str], bool] = lambda line: False
    again: Callable[[str], bool] = lambda line: False


@dataclass(slots=True)
class Pairs:
    """Collects what several lines of one block tell of each pair."""

    found: dict[tuple[int, int], Pair] = field(default_factory=dict)

    def add(self, row: int, column: int, facts: PairFacts, **more: Any) -> None:
        """Adds facts that do not depend on the direction. A card's own column is passed over."""
        if row == column:
            return
        a, b = min(row, column), max(row, column)
        told = Pair(a, b, facts=facts, **more)
        before = self.found.get((a, b))
        self.found[a, b] = overlay(before, told) if before else told

    def all(self) -> tuple[Pair, ...]:
        return tuple(self.found[key] for key in sorted(self.found))


def overlay(first: T, second: T) -> T:
    """`first`, with the values of `second` where `first` has only a field's default."""
    if first == second:
        return first
    changes: dict[str, Any] = {}
    assert is_dataclass(first)
    assert not isinstance(first, type)
    for item in fields(first):
        mine, other = getattr(first, item.name), getattr(second, item.name)
        if is_dataclass(mine) and is_dataclass(other) and not isinstance(mine, type):
            changes[item.name] = overlay(mine, other)
        elif mine == item.default or mine is None:
            changes[item.name] = other
    return replace(first, **changes)
