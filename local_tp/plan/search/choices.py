"""What the goal leaves open, chosen: context, format, and whether anything leaves the cards.

Every step down (a shorter context, layers in the PC's memory) is taken only where the step before
has no room, and is said in a note. Knows nothing of structures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Dtype, Goal, Placement
from local_tp.plan.search.ask import PAGE_SIZE, Answer, Ask, answer, short_of, with_memories
from local_tp.plan.search.objective import FLOOR
from local_tp.plan.search.plan import prediction_of

STEPS = 256  # parts of a context by which it is shortened where tables and bytes disagree
LEAST_CONTEXT = 1024  # tokens that a plan keeps rather than moving weights off the cards

Choice = tuple[Ask, Answer, list[str]]


def choose(ask: Ask, goal: Goal) -> Choice:
    """The question with nothing left open, its answer, and notes. `goal` is what was asked."""
    if goal.objective == "context":
        return _longest(ask, goal)
    if goal.objective == "quality":
        return _finest(ask, goal)
    return _fitting(ask, goal)


def placed(ask: Ask, goal: Goal, placements: Sequence[Placement]) -> tuple[Ask, list[str]]:
    """The question for placements that somebody else made, with its context, and notes."""
    if goal.objective != "context":
        return ask, []
    ask, most = _for_longest(ask, goal)

    def fits(context: int) -> bool:
        longer = replace(ask, context=context)
        return not short_of(longer, with_memories(longer, placements))

    context = longest_context(fits, most)
    if not context:
        return ask, []
    return replace(ask, context=context), [_limit(ask, context, most)]


def longest_context(fits: Callable[[int], bool], most: int, least: int = 0) -> int:
    """The most tokens up to `most` that fit, in whole pages (or `most` itself); 0 where none do.

    Where `least` tokens do not fit the answer is less, and not looked for further.
    """
    if fits(most):
        return most
    low, high = 0, -(-most // PAGE_SIZE)
    while high - low > 1 and high * PAGE_SIZE > least:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * PAGE_SIZE) else (low, middle)
    return low * PAGE_SIZE


def _fitting(ask: Ask, goal: Goal) -> Choice:
    """The plan on the cards; where that has no room, a shorter context, then the PC's memory."""
    if goal.offload in ("cpu", "stream"):
        return ask, answer(ask), []
    resident = replace(ask, goal=replace(ask.goal, offload="none"))
    given = answer(resident)
    if not given.short:
        return resident, given, []
    if goal.context is None:
        context = longest_context(
            lambda n: replace(resident, context=n).fits(), ask.context, LEAST_CONTEXT
        )
        if context >= LEAST_CONTEXT:
            shorter, held = _to_the_byte(resident, context)
            note = (
                f"context {shorter.context:,} instead of {ask.context:,}, so that the whole model "
                "stays on the devices: ask for more with --context"
            )
            return shorter, held, [note]
    if goal.offload == "none":
        return resident, given, []
    spilled = answer(ask)
    return (ask, spilled, []) if not spilled.short else (resident, given, [])


def _longest(ask: Ask, goal: Goal) -> Choice:
    """The longest context that every device has room for when it is full."""
    ask, most = _for_longest(ask, goal)
    offload = goal.offload if goal.offload in ("cpu", "stream") else "none"
    resident = replace(ask, goal=replace(ask.goal, offload=offload))
    context = longest_context(lambda n: replace(resident, context=n).fits(), most)
    if not context:
        return _fitting(ask, goal)
    longest, held = _to_the_byte(resident, context)
    return longest, held, [_limit(ask, longest.context, most)]


def _for_longest(ask: Ask, goal: Goal) -> tuple[Ask, int]:
    """The question with keys and values in 16 bits unless a person says, and the most tokens."""
    if goal.kv_format is None and ask.goal.kv_format == "float32":
        ask = replace(ask, goal=replace(ask.goal, kv_format="bfloat16"))
    return ask, goal.context or ask.spec.dimensions.context


def _limit(ask: Ask, context: int, most: int) -> str:
    """What ends the longest context."""
    if context < most:
        return f"context {context:,}: what the memory holds when it is full"
    limit = "as long as was asked for"
    if most == ask.spec.dimensions.context:
        limit = "the model's own limit"
    return f"context {context:,}: {limit}"


def _to_the_byte(ask: Ask, context: int) -> tuple[Ask, Answer]:
    """The plan for a context that the tables have room for, shorter where bytes do not allow it."""
    while True:
        shorter = replace(ask, context=context)
        given = answer(shorter)
        if not given.short or context <= PAGE_SIZE:
            return shorter, given
        less = max(PAGE_SIZE, context // STEPS // PAGE_SIZE * PAGE_SIZE)
        context = max(PAGE_SIZE, context - less)


def _finest(ask: Ask, goal: Goal) -> Choice:
    """The format of highest fidelity that keeps the floor; the fastest where none does."""
    floor = goal.floor or FLOOR
    tried: list[tuple[float, Choice]] = []
    for dtype in formats(ask, goal):
        choice = _fitting(replace(ask, goal=replace(ask.goal, dtype=dtype)), goal)
        given = choice[1]
        if given.short:
            tried.append((0.0, choice))
            continue
        decode = prediction_of(
            given.problem, given.found.best, choice[0].context, ask.goal.streams
        ).decode
        if decode >= floor:
            said = f"format {dtype}: predicted {decode:.0f} tokens/s keep the floor of {floor:g}"
            return choice[0], given, [*choice[2], said]
        tried.append((decode, choice))
    decode, (chosen, given, notes) = max(tried, key=lambda entry: entry[0])
    said = f"no format keeps the floor of {floor:g} tokens/s: the fastest is predicted {decode:.1f}"
    return chosen, given, [*notes, said] if decode else notes


def formats(ask: Ask, goal: Goal) -> tuple[Dtype, ...]:
    """What load can make of the file, the highest fidelity first; a person's choice alone.

    More bits than the file has add nothing, so a quantized file is held as it is. Cards hold 16
    bits.
    """
    if goal.dtype != "auto" or any(device.kind != "cpu" for device in ask.devices):
        return (goal.dtype,)
    stored = {info.format for info in ask.spec.tensors.values() if len(info.shape) == 2}
    if any(FORMATS[name].quantized for name in stored):
        return ("auto",)
    finer: tuple[Dtype, ...] = ("float32", "auto") if "F32" in stored else ("auto",)
    return (*finer, "int8")


def asked_of(goal: Goal) -> list[str]:
    """A person's own choices as the options that made them."""
    named = [
        ("--devices " + ",".join(goal.devices), bool(goal.devices)),
        (f"--split {goal.split}", goal.split is not None),
        ("--shares " + ",".join(f"{share:g}" for share in goal.shares), bool(goal.shares)),
        ("--reserve", bool(goal.reserve)),
        (f"--format {goal.dtype}", goal.dtype not in ("auto", "stored")),
        (f"--kv-format {goal.kv_format}", goal.kv_format is not None),
        (f"--offload {goal.offload}", goal.offload != "auto"),
    ]
    return [option for option, asked in named if asked]
