"""Several looks at the same cards, as of a tool run in a loop or before and under load, as one.

Knows nothing of text. Of each card the look at which it did the most comes first, so that link,
power and memory are those of work; what that one lacks is taken from the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from local_tp.hardware.paste import mig
from local_tp.hardware.paste.sighting import Card, Sighting, overlay


def folded(sighting: Sighting) -> Sighting:
    """The sighting with each card once. Places of pairs follow their cards."""
    places: list[int] = []
    groups: dict[Hashable, tuple[int, list[Card]]] = {}
    for place, card in enumerate(sighting.cards):
        key = identity(card) or ("alone", place)
        where, looks = groups.setdefault(key, (len(groups), []))
        looks.append(card)
        places.append(where)
    if len(groups) == len(sighting.cards):
        return sighting
    pairs = tuple(
        replace(pair, a=places[pair.a], b=places[pair.b])
        for pair in sighting.pairs
        if places[pair.a] < places[pair.b]
    )
    cards = tuple(_one(looks) for _, looks in groups.values())
    return replace(sighting, cards=cards, pairs=pairs)


def joined(sightings: Sequence[Sighting]) -> list[Sighting]:
    """The sightings, with those of one tool as one whose cards are all the same ones."""
    found: list[Sighting] = []
    for sighting in map(folded, sightings):
        keys = {identity(card) for card in sighting.cards}
        for place, before in enumerate(found):
            if before.source != sighting.source or not keys or None in keys or before.rig:
                continue
            if before.collectives or sighting.collectives:  # those ran on just their own cards
                continue
            theirs = {identity(card) for card in before.cards}
            if None not in theirs and (keys <= theirs or theirs <= keys):
                found[place] = _both(before, sighting)
                break
        else:
            found.append(sighting)
    return found


def identity(card: Card) -> Hashable | None:
    """What makes two looks one card's: its place on the bus, its UUID, or else its number."""
    if card.slot:
        return card.slot
    if card.uuid:
        return card.uuid
    if card.bus is not None:
        return card.bus
    return None if card.number is None else (card.order, card.number)


def _both(first: Sighting, second: Sighting) -> Sighting:
    shift = len(first.cards)
    moved = tuple(replace(pair, a=pair.a + shift, b=pair.b + shift) for pair in second.pairs)
    return folded(
        replace(
            first,
            cards=(*first.cards, *second.cards),
            pairs=(*first.pairs, *moved),
            collectives=(*first.collectives, *second.collectives),
            ram=first.ram or second.ram,
            available_ram=first.available_ram or second.available_ram,
            cores=first.cores or second.cores,
            os=first.os or second.os,
            host=overlay(first.host, second.host),
            software=overlay(first.software, second.software),
            unknown=(*first.unknown, *second.unknown),
            unread=(*first.unread, *second.unread),
            ways=(*first.ways, *second.ways),
        )
    )


def _one(looks: Sequence[Card]) -> Card:
    first, *rest = sorted(looks, key=_work, reverse=True)
    for card in rest:
        slices = mig.joined(first.slices, card.slices)
        lost, xids = first.facts.lost or card.facts.lost, (*first.facts.xids, *card.facts.xids)
        # Why another look's clocks were low says nothing of this one.
        throttle = first.facts.throttle
        told = throttle or first.facts.utilization is not None
        first = overlay(first, card)
        facts = replace(first.facts, lost=lost, xids=tuple(dict.fromkeys(xids)))
        facts = replace(facts, throttle=throttle) if told else facts
        first = replace(first, slices=slices, facts=facts)
    return first


def _work(card: Card) -> tuple[float, ...]:
    """More for a card that does more: percent busy, link, watts, bytes in use."""
    facts = card.facts
    told = facts.utilization, card.pcie.generation, facts.power_draw, facts.used
    return tuple(-1.0 if value is None else float(value) for value in told)
