"""One machine's cards out of many sightings of them.

Knows nothing of text. A card is known by its bus id; else by its number in the same order, where
that order is known; else by name and memory, in turn. Values of sightings that come first count,
and those that contradict them are said. Nothing is attached to a card on a mere guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from local_tp.facts import PairFacts, Verdict
from local_tp.hardware.paste import mig
from local_tp.hardware.paste.sighting import Card, Order, Pair, Sighting, overlay

_TELLING = ("total", "capability")
_VAGUE = {"not-supported", "unknown"}
_WRONG: frozenset[Verdict | None] = frozenset({"broken", "hangs", "failed"})


@dataclass(slots=True)
class Known:
    """A card of the machine: what is known of it, and its numbers by order."""

    card: Card
    numbers: dict[Order, int] = field(default_factory=dict)


@dataclass(slots=True)
class Merger:
    """Takes sightings, the most trustworthy first."""

    cards: list[Known] = field(default_factory=list)
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def add(self, sighting: Sighting) -> tuple[int, ...] | None:
        """The places of the sighting's cards in `cards`; None if they cannot be told apart."""
        places = self._match(sighting)
        if places is None:
            return None
        for place, card in zip(places, sighting.cards, strict=True):
            self._overlay(self.cards[place], card, sighting.source)
        for pair in sighting.pairs:
            self._pair(places, pair)
        return tuple(places)

    def _match(self, sighting: Sighting) -> list[int] | None:
        taken: set[int] = set()
        places: list[int | None] = []
        for card in sighting.cards:
            place = self._by_identity(card, taken)
            places.append(place)
            if place is not None:
                taken.add(place)
        if any(place is None for place in places) and not self._by_order(sighting, places, taken):
            return None
        for position, card in enumerate(sighting.cards):
            if places[position] is None:
                self.cards.append(Known(Card(facts=replace(_NOTHING, vendor=card.facts.vendor))))
                places[position] = len(self.cards) - 1
        return [place for place in places if place is not None]

    def _by_identity(self, card: Card, taken: set[int]) -> int | None:
        """By bus id, by bus, or by number."""
        free = [place for place in range(len(self.cards)) if place not in taken]
        for place in free:
            mine = self.cards[place].card
            if card.slot and mine.slot == card.slot:
                return place
            if card.uuid and mine.uuid == card.uuid:
                return place
        if card.bus is not None:
            on_bus = [place for place in free if _bus(self.cards[place].card) == card.bus]
            if len(on_bus) == 1:
                return on_bus[0]
        for place in free:
            known = self.cards[place]
            differ = card.slot and known.card.slot
            same = card.number is not None and known.numbers.get(card.order) == card.number
            if same and not differ and card.bus is None and _alike(card, known.card):
                return place
        return None

    def _by_order(self, sighting: Sighting, places: list[int | None], taken: set[int]) -> bool:
        """Matches what is left in turn: by name, or by slot where all cards are the same.

        False where numbers of one order would have to be guessed from another.
        """
        self._by_slot_order(sighting, places, taken)
        left = [i for i, place in enumerate(places) if place is None]
        for i in left:
            card = sighting.cards[i]
            if card.slot or card.bus is not None:
                continue
            candidates = self._candidates(card, taken)
            if not candidates:
                continue
            if card.name is None and card.order == "cuda" and self._mixed(candidates):
                return False
            number_says = card.number is not None and card.name is None
            place = candidates[0]
            if number_says and card.order == "driver":
                numbered = [p for p in candidates if "driver" not in self.cards[p].numbers]
                if not numbered:
                    continue
                place = numbered[0]
            places[i] = place
            taken.add(place)
        return True

    def _by_slot_order(self, sighting: Sighting, places: list[int | None], taken: set[int]) -> None:
        """Matches places on the bus, in turn, with cards whose place nothing told so far.

        Drivers number cards by their places. Where only some of the cards are told of, they must
        be of one model, and then their numbers say which.
        """
        left = [
            i
            for i, card in enumerate(sighting.cards)
            if places[i] is None and (card.slot or card.bus is not None)
        ]
        open_places = [
            place
            for place, known in enumerate(self.cards)
            if place not in taken and known.card.slot is None and known.card.bus is None
        ]
        whole = len(left) == len(open_places)
        if sighting.source == "complaints" or len(left) > len(open_places):
            return
        if not whole and (self._mixed(open_places) or len(self.cards) > len(open_places)):
            return
        open_places.sort(key=lambda place: min(self.cards[place].numbers.values(), default=place))
        for i in sorted(left, key=lambda i: _place(sighting.cards[i])):
            card = sighting.cards[i]
            fitting = [
                p for p in open_places if p not in taken and _alike(card, self.cards[p].card)
            ]
            numbered = [p for p in fitting if card.number in self.cards[p].numbers.values()]
            if not fitting or (not whole and not numbered):
                continue
            place = fitting[0] if whole else numbered[0]
            places[i] = place
            taken.add(place)

    def _candidates(self, card: Card, taken: set[int]) -> list[int]:
        """Cards that this could be, in the order of their slots."""
        fitting = [
            place
            for place, known in enumerate(self.cards)
            if place not in taken
            and _alike(card, known.card)
            and (card.number is None or known.numbers.get(card.order, card.number) == card.number)
        ]
        return sorted(fitting, key=lambda place: self.cards[place].card.slot or "")

    def _mixed(self, places: Sequence[int]) -> bool:
        return len({self.cards[place].card.name for place in places}) > 1

    def _overlay(self, known: Known, card: Card, source: str) -> None:
        mine = known.card
        for what in _TELLING:
            before, now = getattr(mine, what), getattr(card, what)
            if before is not None and now is not None and before != now:
                self.unknown.append(
                    f"{mine.slot or mine.name or 'a card'}: {what} is {before}, but {source} says "
                    f"{now}: kept the first"
                )
        name = better_name(mine.name, card.name)
        merged = overlay(mine, card)
        lost = mine.facts.lost or card.facts.lost
        xids = tuple(dict.fromkeys((*mine.facts.xids, *card.facts.xids)))
        errors = max(
            (n for n in (mine.facts.link_errors, card.facts.link_errors) if n is not None),
            default=None,
        )
        known.card = replace(
            merged,
            name=name,
            facts=replace(merged.facts, lost=lost, xids=xids, link_errors=errors),
            slices=mig.joined(mine.slices, card.slices),
        )
        if card.number is not None:
            known.numbers.setdefault(card.order, card.number)

    def _pair(self, places: Sequence[int], pair: Pair) -> None:
        a, b = places[pair.a], places[pair.b]
        facts = pair.facts
        if a > b:
            a, b, facts = b, a, replace(facts, forth=facts.back, back=facts.forth)
        told = replace(pair, a=a, b=b, facts=facts)
        before = self.pairs.get((a, b))
        states = {pair.facts.read for pair in (before, told) if pair} - _VAGUE - {None}
        if len(states) > 1:
            names = " and ".join(str(self.cards[place].card.slot or place) for place in (a, b))
            told_states = ", ".join(sorted(str(state) for state in states))
            self.unknown.append(f"{names}: peer-to-peer is told as both {told_states}")
        self.pairs[a, b] = _both(before, told) if before else told


_NOTHING = Card().facts


def _both(first: Pair, second: Pair) -> Pair:
    """A reason why peer-to-peer is off says more than that it is; a copy gone wrong counts."""
    merged = overlay(first, second)
    reasons = {
        name: getattr(second.facts, name)
        for name in ("read", "write")
        if getattr(first.facts, name) in _VAGUE and getattr(second.facts, name)
    }
    verdict = second.facts.verdict if second.facts.verdict in _WRONG else merged.facts.verdict
    facts: PairFacts = replace(merged.facts, verdict=verdict, **reasons)
    return replace(merged, facts=facts)


def _place(card: Card) -> str:
    return card.slot or f"0000:{card.bus:02x}:00.0"


def _bus(card: Card) -> int | None:
    return int(card.slot.split(":")[1], 16) if card.slot else card.bus


def _alike(a: Card, b: Card) -> bool:
    """Whether nothing that is known of both speaks against their being one card."""
    makers = a.facts.vendor, b.facts.vendor
    if None not in makers and makers[0] != makers[1]:
        return False
    if a.total is not None and b.total is not None and a.total != b.total:
        return False
    if a.facts.integrated and b.facts.integrated:
        return True  # a processor has one, which tools name by family or not at all
    if a.name and b.name:
        return same_name(a.name, b.name)
    return True


def same_name(a: str, b: str) -> bool:
    """Whether two spellings are of one model: makers' names and cut ends do not count."""
    x, y = _plain(a), _plain(b)
    if a.endswith("...") or b.endswith("..."):
        short = min(len(x), len(y))
        return x[:short] == y[:short]
    if "/" in a or "/" in b:  # one id of several models: `Radeon RX 7900 XT/7900 XTX/7900M`
        return any(
            one.endswith(other) or other.endswith(one)
            for one in x.split("/")
            for other in y.split("/")
        )
    return x == y


def better_name(first: str | None, second: str | None) -> str | None:
    """The fuller of two names of one card."""
    if not first or not second:
        return first or second
    if first.endswith("...") and not second.endswith("..."):
        return second
    longer = _plain(first) == _plain(second) and len(second) > len(first)
    return second if longer else first


def _plain(name: str) -> str:
    text = re.sub(r"\.\.\.$", "", name.strip()).lower()
    return re.sub(r"\b(?:nvidia|amd|geforce|radeon|corporation)\b|\s+", "", text)
