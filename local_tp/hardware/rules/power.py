"""Rules on power and heat: caps, throttling, temperature.

Knows nothing of memory. A reason to hold clocks back counts only where it is a fault or a
choice: an idle card, or one that works at its full limit, is well.
"""

from __future__ import annotations

from collections.abc import Iterator

from local_tp.core import Device, Rig
from local_tp.facts import Finding
from local_tp.hardware.rules.advice import (
    Advice,
    discrete,
    is_busy,
    is_consumer,
    is_laptop,
    label,
    sold_as,
)

CAPPED_BELOW = 0.97  # of the default limit
CAPPED_BELOW_RATED = 0.9  # of the rated power, where the board's own default is not known
DEEP_CAP = 0.5
HELD_DOWN = 0.7  # of the highest clock; a sound card at its default limit stays above
# Where no limit was read: NVIDIA's cards slow down at 83 to 95 °C, AMD's when the hottest spot of
# the chip reaches 110 °C, while its edge is cooler.
HOT_FROM = {"cuda": 90, "rocm": 104}
USUAL = {
    "cuda": "most cards slow down between 83 and 95 °C",
    "rocm": "AMD's cards slow down when the hottest spot reaches about 110 °C",
}
HEAT = ("thermal", "temperature", "overheat", "hot")
BRAKE = ("power brake", "hw slowdown", "hardware slowdown")
POWER = ("power cap", "power limit", "sw power")
IDLE_STATES = frozenset({"P8", "P9", "P10", "P11", "P12"})

CAP = Advice(
    "power-capped",
    "info",
    "{card}: power limit {limit:.0f} W, {share:.0%} of its default of {default:.0f} W",
    "prompts take up to {slower:.0%} longer; decode waits for memory and hardly changes until the "
    "cap goes below about 60 %",
    "nothing if you chose it for noise or the power supply; `sudo nvidia-smi -i BUS_ID -pl "
    "{default:.0f}` sets the default",
)
HOT = Advice(
    "throttled-by-heat",
    "warning",
    "{card}: {temperature}{reasons}",
    "clocks are lowered for as long as it is this hot: prompts suffer first, then decode, and the "
    "slowest card of a tensor split holds up the others",
    "clean the fans, leave a slot between cards, improve the case's air; worn thermal pads and "
    "paste on older cards are worth replacing; or lower the power limit",
)
BRAKED = Advice(
    "throttled-by-supply",
    "warning",
    "{card}: the board holds the clocks back ({reasons})",
    "the card runs at a fraction of its clocks while this lasts",
    "check the power cables (one of its own for each plug, no splitters) and the power supply's "
    "rating; load peaks of several cards add up",
)
LIMITED = Advice(
    "throttled-by-power",
    "info",
    "{card}: clocks are held down{clock} by the power limit of {limit} ({reasons})",
    "prompts run slower than the cooling would allow; decode hardly changes",
    "raise the limit if supply and cooling allow: `sudo nvidia-smi -i BUS_ID -pl WATTS`",
)


def capped(rig: Rig) -> Iterator[Finding]:
    """A power limit below the card's own default."""
    for card in discrete(rig):
        limit, (default, least) = card.facts.power_limit, _default_power(card)
        if not limit or not default or limit >= least or is_laptop(card, rig):
            continue
        yield CAP.finding(
            [card],
            "warning" if limit < DEEP_CAP * default else "info",
            card=label(card),
            limit=limit,
            default=default,
            share=limit / default,
            slower=default / limit - 1,
        )


def hot(rig: Rig) -> Iterator[Finding]:
    """Slowed by heat, or at the temperature where that begins."""
    for card in discrete(rig):
        reasons = _active(card, HEAT)
        now, limit = card.facts.temperature, card.facts.temperature_limit
        guessed = not limit and is_busy(card)
        least = limit or (HOT_FROM.get(card.kind) if guessed else None)
        if not reasons and (now is None or not least or now < least):
            continue
        temperature = "temperature not read" if now is None else f"{now} °C"
        if limit:
            temperature += f", slows down at {limit} °C"
        elif now is not None and least and now >= least:
            temperature += f", its limit was not read; {USUAL[card.kind]}"
        yield HOT.finding(
            [card],
            card=label(card),
            temperature=temperature,
            reasons=f"; active: {', '.join(reasons)}" if reasons else "",
        )


def braked(rig: Rig) -> Iterator[Finding]:
    """Slowed by the board or the supply, where heat is not given as the reason."""
    for card in discrete(rig):
        reasons = _active(card, BRAKE)
        if reasons and not _active(card, HEAT):
            yield BRAKED.finding([card], card=label(card), reasons=", ".join(reasons))


def limited(rig: Rig) -> Iterator[Finding]:
    """Held down by a lowered power limit, or far down by any. Touching the default is usual."""
    for card in discrete(rig):
        facts, (_, least) = card.facts, _default_power(card)
        reasons = _active(card, POWER)
        idle = facts.performance_state in IDLE_STATES or facts.utilization == 0
        if not reasons or idle or _active(card, BRAKE):
            continue
        lowered = (facts.power_limit or least) < least
        low = facts.clock and facts.clock_max and facts.clock < HELD_DOWN * facts.clock_max
        if lowered or low:
            yield LIMITED.finding(
                [card],
                card=label(card),
                clock=f" to {facts.clock} of {facts.clock_max} MHz" if low else "",
                limit=f"{facts.power_limit:.0f} W" if facts.power_limit else "its setting",
                reasons=", ".join(reasons),
            )


def _default_power(card: Device) -> tuple[float | None, float]:
    """A card's default limit, in watts, and the limit from which on it counts as capped.

    Boards of one model differ upwards, so the rated power is a fair stand-in for GeForce cards.
    """
    if default := card.facts.power_default:
        return default, CAPPED_BELOW * default
    row = sold_as(card) if is_consumer(card) else None
    return (row.tdp, CAPPED_BELOW_RATED * row.tdp) if row and row.tdp else (None, 0)


def _active(card: Device, words: tuple[str, ...]) -> list[str]:
    """The active reasons with one of `words` in them."""
    spaced = {reason: reason.lower().replace("_", " ") for reason in card.facts.throttle}
    return [reason for reason, text in spaced.items() if any(word in text for word in words)]
