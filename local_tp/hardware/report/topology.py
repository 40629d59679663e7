"""Which cards share a switch and which a socket, from paths between pairs and NUMA nodes.

Knows nothing of drawing. Where a machine says nothing, its cards stand together under one
socket: the picture then claims no boundary that was not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from local_tp.core import Device, Link, Rig
from local_tp.hardware.devices import short_names

SWITCHED = ("PIX", "PXB", "internal")


@dataclass(frozen=True, slots=True)
class Card:
    """A card with the short name that people use."""

    name: str
    device: Device


@dataclass(frozen=True, slots=True)
class Branch:
    """Cards behind one PCIe switch, or one card straight at the root."""

    cards: tuple[Card, ...]

    @property
    def switched(self) -> bool:
        return len(self.cards) > 1


@dataclass(frozen=True, slots=True)
class Socket:
    """A processor socket or NUMA node, with what hangs on it."""

    branches: tuple[Branch, ...]
    numa: int | None

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(card for branch in self.branches for card in branch.cards)


def is_card(device: Device) -> bool:
    """Whether it is a card with a place of its own: no processor, and no slice of another card."""
    return device.kind != "cpu" and device.facts.slice_of is None


def sockets(rig: Rig) -> tuple[Socket, ...]:
    """The tree of a rig, cards in slot order; without cards a single empty socket."""
    cards = tuple(Card(name, d) for name, d in short_names(rig).items() if is_card(d))
    paths = {frozenset((link.a, link.b)): link for link in rig.links}

    def path(one: Card, other: Card) -> str | None:
        link = paths.get(frozenset((one.device.id, other.device.id)))
        return link.facts.path if link else None

    def apart(one: Card, other: Card) -> bool:
        nodes = {one.device.facts.numa, other.device.facts.numa}
        return path(one, other) == "SYS" or (None not in nodes and len(nodes) > 1)

    def switched(one: Card, other: Card) -> bool:
        return path(one, other) in SWITCHED

    grouped = _groups(cards, lambda card, group: not any(apart(card, other) for other in group))
    return tuple(
        Socket(
            tuple(
                Branch(tuple(branch))
                for branch in _groups(
                    group, lambda card, branch: any(switched(card, other) for other in branch)
                )
            ),
            numa=next(
                (c.device.facts.numa for c in group if c.device.facts.numa is not None), None
            ),
        )
        for group in grouped or [[]]
    )


def pairs(rig: Rig) -> tuple[Link, ...]:
    """The links between two cards of which more is known than that both reach the processor."""
    cards = {d.id for d in rig.devices if is_card(d)}
    return tuple(
        link
        for link in rig.links
        if {link.a, link.b} <= cards
        and (
            link.kind != "host"
            or link.facts.forth is not None
            or link.facts.verdict in ("broken", "hangs", "failed")
            or (link.measured and link.bandwidth is not None)
        )
    )


def _groups(
    cards: tuple[Card, ...] | list[Card], fits: Callable[[Card, list[Card]], bool]
) -> list[list[Card]]:
    groups: list[list[Card]] = []
    for card in cards:
        home = next((group for group in groups if fits(card, group)), None)
        if home is None:
            groups.append([card])
        else:
            home.append(card)
    return groups
