"""Rules on NVLink: ports that are down, and cards that a bridge could join.

Knows nothing of PCI Express. A port that is down says nothing by itself, for a card without a
bridge has all of them down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from local_tp.core import Device, Link, Rig
from local_tp.facts import Finding
from local_tp.hardware.rules.advice import (
    REFUSED,
    Advice,
    is_guest,
    is_laptop,
    label,
    listed,
    model_name,
    nvidia,
    rate,
    sold_as,
)
from local_tp.hardware.rules.pair_rates import pair_rate

WORTH = 1.5  # times the speed of the way taken now, below which a bridge brings little
# The ends of these cards are always wired; for others NVLink takes a bridge.
WIRED = ("SXM", "HGX", "GB200", "GH200")

NVLINK_DOWN = Advice(
    "nvlink-down",
    "warning",
    "{card}: {down} of {count} NVLinks are down",
    "the bridge carries less than it could, up to {bandwidth}; without it prompts of a tensor "
    "split take up to half as long again",
    "switch the PC off, reseat the bridge on both cards and check that it is the right width for "
    "these cards; then look at `nvidia-smi nvlink -s`",
)
NVLINK_ABSENT = Advice(
    "nvlink-absent",
    "info",
    "{cards} could be joined two by two with NVLink, and no link between them is up",
    "NVLink carries {bandwidth} both ways together{against}; owners of such pairs measured 35 to "
    "49 % faster prompts and 3 to 5 % faster decode with a tensor split",
    "a bridge of the right width for two of these cards, in slots within its reach, is worth its "
    "price only if you use a tensor split; if one is fitted, reseat it",
)


def down(rig: Rig) -> Iterator[Finding]:
    """Some ports up and others down, or a known far end that is not reached."""
    for card in nvidia(rig):
        ports = [port for port in card.facts.nvlinks if port.up is False]
        bridged = any(port.up or port.peer for port in card.facts.nvlinks)
        wired = any(word in card.name for word in WIRED)
        if ports and (bridged or wired):
            row = sold_as(card)
            yield NVLINK_DOWN.finding(
                [card],
                card=label(card),
                down=len(ports),
                count=len(card.facts.nvlinks),
                bandwidth=rate(row.nvlink) if row and row.nvlink else "its rated speed",
            )


def absent(rig: Rig) -> Iterator[Finding]:
    """Like cards that a bridge could join, known to have none.

    Either every port says so or the driver does, pair by pair. Cards already joined are left
    alone, and so are those in laptops, in external cases and all on different processors, where
    no bridge fits.
    """
    joined = {end for k in rig.links if k.kind == "nvlink" or k.facts.nvlinks for end in (k.a, k.b)}
    alike: dict[str, list[Device]] = defaultdict(list)
    for card in nvidia(rig):
        if card.id in joined or card.facts.external or is_laptop(card, rig):
            continue
        if card.facts.driver_model != "WDDM" and _has_no_nvlink(card, rig):
            alike[model_name(card)].append(card)
    for cards in alike.values():
        row = sold_as(cards[0])
        if len(cards) < 2 or row is None or not row.nvlink or is_guest(rig):
            continue
        if any(word in cards[0].name for word in WIRED):
            continue  # not a matter of a bridge
        own = {card.id for card in cards}
        pairs = [link for link in rig.links if {link.a, link.b} <= own]
        if pairs and all(link.facts.path == "SYS" for link in pairs):
            continue
        speeds = [speed for link in pairs if (speed := pair_rate(link))]
        if speeds and row.nvlink / 2 < WORTH * min(speeds):
            continue
        against = f", the way taken now {rate(min(speeds))}" if speeds else ""
        yield NVLINK_ABSENT.finding(
            cards, cards=listed(cards), bandwidth=rate(row.nvlink), against=against
        )


def _has_no_nvlink(card: Device, rig: Rig) -> bool:
    ports = card.facts.nvlinks
    if ports:
        return all(port.up is False and port.peer is None for port in ports)
    like = {other.id for other in nvidia(rig) if model_name(other) == model_name(card)}
    pairs = [k for k in rig.links if card.id in (k.a, k.b) and {k.a, k.b} <= like and k.a != k.b]
    return bool(pairs) and all(_is_without(k) for k in pairs)


def _is_without(link: Link) -> bool:
    """Whether the driver counted no NVLink, or refuses the peer access that one would give.

    The way over PCI Express alone says nothing: the bus lists it the same with a bridge fitted.
    """
    facts = link.facts
    refused = facts.read in REFUSED or facts.write in REFUSED
    apart = facts.path not in (None, "nvlink", "self")
    return facts.nvlinks == 0 or (apart and refused)
