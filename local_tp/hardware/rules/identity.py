"""The rule on cards that are not what their name says.

Knows nothing of speed. A slice, a share of a card and a card whose memory is not known are left.
"""

from __future__ import annotations

from collections.abc import Iterator

from local_tp.core import Rig
from local_tp.facts import Finding
from local_tp.hardware.rules.advice import Advice, discrete, gib, is_guest, label, sold_as

# Of the smallest that was sold under the name. Half is left: old reports of sound cards tell it.
LEAST_SHARE = 0.45

NOT_AS_NAMED = Advice(
    "card-not-as-named",
    "warning",
    "{card} has {total}; no card of that name was sold with less than {least}",
    "models that fit a card of that name do not fit this one, and the catalog's figures for its "
    "speed may be another card's",
    "read the chip and the memory off the card with GPU-Z, or look up the device number that "
    "`lspci -nn` shows: counterfeit cards carry another card's name in their BIOS; give a used one "
    "back",
)


def not_as_named(rig: Rig) -> Iterator[Finding]:
    """Far less memory than any card of that name has."""
    for card in discrete(rig):
        row = sold_as(card)
        sold = (row.memory or row.memory_least) if row else None
        shared = card.facts.virtual or card.facts.mig or is_guest(rig)
        if sold and card.total and not shared and card.total < LEAST_SHARE * sold:
            yield NOT_AS_NAMED.finding(
                [card], card=label(card), total=gib(card.total), least=gib(sold)
            )
