"""What to say where a model has no room: the tightest device, and the settings that would do.

Every setting named was tried: with it the search finds room. Nothing is named that a person
forbade, and no limit is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from local_tp.core import Placement
from local_tp.errors import DoesNotFit
from local_tp.plan.memory import memory_terms
from local_tp.plan.search.ask import Ask
from local_tp.plan.search.choices import formats, longest_context
from local_tp.plan.search.search import search

MIB = 1 << 20
GIB = 1 << 30
CARDS = (4, 6, 8, 12, 16, 24, 32, 48, 96)  # GiB that cards have
APART = 2  # the last of `memory_terms` are no part of a device's total


def refusal(ask: Ask, placements: Sequence[Placement], short: Mapping[str, int]) -> DoesNotFit:
    """The error for placements of which some devices lack `short` bytes."""
    id = max(short, key=lambda name: short[name])
    device = next(d for d in ask.devices if d.id == id)
    mine = [p for p in placements if p.device == id]
    reserve = device.free - ask.free(device)
    need = sum(p.memory.total for p in mine) + reserve
    settings = tuple(_settings(ask, id, short[id]))
    weights = sum(p.memory.weights for p in mine)
    named = [setting for setting in settings if setting.startswith("--")]
    remedy = f"set {', or '.join(named[:2])}"
    if not named:
        remedy = (
            f"its weights alone take {weights >> 20:,} MiB: add a device with --devices, "
            "or choose a smaller or more quantized model"
        )
    return DoesNotFit(id, need, device.free, remedy, _terms(mine, reserve), settings)


def _terms(mine: Sequence[Placement], reserve: int) -> tuple[tuple[str, int], ...]:
    """What the device would hold, the largest first."""
    sums: dict[str, int] = {"kept free": reserve}
    for p in mine:
        for name, nbytes in memory_terms(p.memory)[:-APART]:
            sums[name] = sums.get(name, 0) + nbytes
    found = [(name, nbytes) for name, nbytes in sums.items() if nbytes]
    return tuple(sorted(found, key=lambda term: -term[1]))


def _settings(ask: Ask, id: str, over: int) -> Iterator[str]:
    """Settings that would make it fit, each with its amount."""
    goal = ask.goal
    context = longest_context(lambda n: replace(ask, context=n).fits(), ask.context)
    if context and context != ask.context:
        yield f"--context {context} instead of {ask.context}"
    if fewer := _most(goal.streams - 1, lambda n: _with(ask, streams=n).fits()):
        yield f"--streams {fewer} instead of {goal.streams}"
    if goal.kv_format == "float32" and _with(ask, kv_format="bfloat16").fits():
        yield "--kv-format bfloat16 instead of float32"
    for dtype in formats(ask, goal):
        if dtype != goal.dtype and _with(ask, dtype=dtype).fits():
            yield f"--format {dtype}"
    if not ask.structures:
        yield from _another_card(ask)
    kept = goal.reserve.get(id, next(d.reserve for d in ask.devices if d.id == id))
    if kept >= over and _with(ask, reserve={**goal.reserve, id: kept - over}).fits():
        yield f"--reserve {id}={(kept - over) // MIB} instead of {kept // MIB}"
    if goal.offload == "none" and not ask.structures:
        problem = _with(ask, offload="auto").problem()
        if search(problem, range(len(ask.devices)), goal.split, "auto"):
            yield "--offload auto instead of none"


def _most(ceiling: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `ceiling` that fits, by halving; 0 where none does."""
    low, high = 0, ceiling + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _another_card(ask: Ask) -> Iterator[str]:
    """The smallest further card, like the largest there is, with which there is room."""
    largest = max(ask.devices, key=lambda d: (d.kind != "cpu", d.free))
    for size in CARDS:
        more = replace(largest, id="another", total=size * GIB, free=size * GIB)
        if replace(ask, devices=(*ask.devices, more)).fits():
            yield f"a further card with {size} GiB free"
            return


def _with(ask: Ask, **changes: object) -> Ask:
    return replace(ask, goal=replace(ask.goal, **changes))  # type: ignore[arg-type]
