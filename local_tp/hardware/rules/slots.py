"""What a card's PCI Express slot gives it: lanes, and the generation that it works at.

Knows no rule. Lanes are believed at any time, a generation only under load or as the most that
card or slot can do. What was not read is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from local_tp.core import Device
from local_tp.facts import PcieReading
from local_tp.hardware.rules.advice import is_busy, sold_as


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes in use, lanes the card has, and lanes of the slot where that is known."""

    width: int
    card: int
    slot: int | None


def lanes_of(card: Device) -> Lanes | None:
    """The lanes of a card; None where they are not known, or where idling hides them."""
    pcie, facts = card.pcie, card.facts
    width = _width(facts.pcie_loaded) or (pcie.width if pcie else None)
    most = _width(facts.pcie_card) or (pcie.max_width if pcie else None)
    if not width or not most:
        return None
    idle = facts.pcie_loaded is None and pcie is not None and (pcie.generation or 1) == 1
    if card.kind == "rocm" and idle and width == 1:
        return None  # AMD's power saving lists x1 as a state, so it says nothing of the slot
    wired = _width(row.pcie) if (row := sold_as(card)) else None
    return Lanes(width, min(most, wired or most), _width(facts.pcie_slot))


def _width(reading: PcieReading | None) -> int | None:
    return reading.width if reading else None


def generation_loaded(card: Device) -> int | None:
    """The generation of the link while it was working."""
    if card.facts.pcie_loaded:
        return card.facts.pcie_loaded.generation
    return card.pcie.generation if card.pcie and is_busy(card) else None


def card_generation(card: Device) -> int | None:
    """The newest generation that the card itself can do."""
    if card.facts.pcie_card and card.facts.pcie_card.generation:
        return card.facts.pcie_card.generation
    row = sold_as(card)
    return row.pcie.generation if row and row.pcie else None


def slot_generation(card: Device) -> int | None:
    """The newest generation that the slot, or card and slot together, can do."""
    if card.facts.pcie_slot and card.facts.pcie_slot.generation:
        return card.facts.pcie_slot.generation
    most = card.pcie.max_generation if card.pcie else None
    return most if most and most > 1 else None  # some cards hide their speed while idle


def best_generation(card: Device) -> int | None:
    """The generation that card and slot can do, as far as either is known."""
    known = [g for g in (card_generation(card), slot_generation(card)) if g]
    return min(known, default=None)
