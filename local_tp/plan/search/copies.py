"""The same plan more than once, on further cards: for several users who ask at the same time.

Copies are equal, so the device of a copy must have the room of the one it stands for; together
they are as fast as so many of the slowest. Knows nothing of how one copy is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from local_tp.core import Device, Placement
from local_tp.plan.predict import together
from local_tp.plan.search.ask import Answer, Ask, answer
from local_tp.plan.search.plan import prediction_of

Copies = tuple[tuple[str, ...], ...]


def best_copies(ask: Ask, single: float) -> tuple[Ask, Answer, Copies] | None:
    """Copies whose users together get more than `single` tokens a second, or None."""
    best: tuple[float, tuple[Ask, Answer, Copies]] | None = None
    for devices, count in _ways(ask):
        streams = ceil(ask.goal.streams / count)
        size = len(devices) // count
        one = replace(
            ask,
            devices=tuple(devices[:size]),
            goal=replace(ask.goal, streams=streams, offload="none"),
        )
        given = answer(one)
        used = [p.device for p in given.placements]
        if given.short or len(used) != size:
            continue
        copies = tuple(
            _in_rank_order(devices[:size], used, devices[at : at + size])
            for at in range(size, size * count, size)
        )
        if not _fit(ask, given.placements, devices, copies):
            continue
        total = together(partial(_aggregate, ask, given), ask.goal.streams, count)
        if total > single and (best is None or total > best[0]):
            best = total, (one, given, copies)
    return best[1] if best else None


def _aggregate(ask: Ask, given: Answer, streams: int) -> float:
    """Tokens a second of one copy with so many streams."""
    return prediction_of(given.problem, given.found.best, ask.context, streams).aggregate


def _ways(ask: Ask) -> Iterator[tuple[list[Device], int]]:
    """Cards that are alike, and into how many copies they can be put; then all cards, one each.

    The slowest card comes first, since the plan is made for it.
    """
    cards = [d for d in ask.devices if d.kind != "cpu"]
    alike: dict[tuple[str, str], list[Device]] = {}
    for card in cards:
        alike.setdefault((card.kind, card.name), []).append(card)
    for group in alike.values():
        for count in range(2, len(group) + 1):
            yield group[: len(group) // count * count], count
    if len(alike) > 1 and len({d.kind for d in cards}) == 1:
        yield sorted(cards, key=lambda d: (d.bandwidth or 0.0, ask.free(d))), len(cards)


def _in_rank_order(
    first: Sequence[Device], used: Sequence[str], others: Sequence[Device]
) -> tuple[str, ...]:
    places = {device.id: at for at, device in enumerate(first)}
    return tuple(others[places[id]].id for id in used)


def _fit(
    ask: Ask, placements: Sequence[Placement], devices: Sequence[Device], copies: Copies
) -> bool:
    rooms = {device.id: ask.free(device) for device in devices}
    return all(
        p.memory.total <= rooms[id]
        for copy in copies
        for p, id in zip(placements, copy, strict=True)
    )
