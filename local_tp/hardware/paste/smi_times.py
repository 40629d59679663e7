"""Which rows of a query that ran in a loop are about the same card, by when they were written.

Knows nothing of values. Rows of one look follow each other within milliseconds, and looks come in
the driver's order, so that a row's place in its look numbers its card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from local_tp.hardware.paste.sighting import Card

_LEAST_PAUSE = 0.05  # seconds; the driver needs less from card to card
_SHARE_OF_PAUSE = 0.25  # of the longest pause


def seconds(text: str | None) -> float | None:
    """Seconds of a time stamp such as `2025/10/10 10:00:01.123`; only differences count."""
    for form in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S"):
        try:
            found = datetime.strptime((text or "").strip(), form)
        except ValueError:
            continue
        return (found - datetime(2000, 1, 1)).total_seconds()
    return None


def numbered(cards: Sequence[Card], times: Sequence[float | None]) -> tuple[Card, ...]:
    """The cards, with the driver's numbers where rows have times and nothing that tells cards.

    Left as they are where looks differ in length: then rows cannot be told apart.
    """
    known = [time for time in times if time is not None]
    alone = all(c.slot is None and c.uuid is None and c.number is None for c in cards)
    if len(cards) < 2 or len(known) != len(cards) or not alone:
        return tuple(cards)
    pauses = [later - before for before, later in pairwise(known)]
    longest = max(pauses)
    starts = [0] + [
        place
        for place, pause in enumerate(pauses, 1)
        if pause >= max(_LEAST_PAUSE, _SHARE_OF_PAUSE * longest)
    ]
    whole = {after - before for before, after in pairwise(starts)}
    last = len(cards) - starts[-1]  # a loop may be stopped in the middle of a look
    if len(whole) != 1 or last > max(whole):
        return tuple(cards)
    first = 0
    told: list[Card] = []
    beginnings = set(starts)
    for place, card in enumerate(cards):
        first = place if place in beginnings else first
        told.append(replace(card, number=place - first))
    return tuple(told)
