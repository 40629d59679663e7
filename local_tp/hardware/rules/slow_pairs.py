"""The rule on pairs of cards whose copies are slow, all of them alike or not.

Knows nothing of how a pair compares with the others. A pair is held against the slots of its two
cards, or against a modest slot where they are not known, and what another rule explains is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from local_tp.core import Device, Link, Rig
from local_tp.facts import Finding
from local_tp.hardware.rules import links
from local_tp.hardware.rules.advice import Advice, discrete, duration, is_guest, rate, sold_as
from local_tp.hardware.rules.link_costs import pcie_rate, prompt_seconds
from local_tp.hardware.rules.pair_rates import is_hindered, pair_rate
from local_tp.hardware.rules.slots import generation_loaded, lanes_of, slot_generation

PEERS_LEAST = 0.33  # of the slower slot; peer copies reach 0.8 and more of what is taken for 1
# Through the PC's memory sound machines reach 0.28 (3090s on 4.0 x16, both ways at once, a way)
# to 0.75 (4090s, one way).
STAGED_LEAST = 0.2
MODEST_GENERATION, MODEST_LANES = 3, 8  # two cards on an older board share the lanes so

SLOW = Advice(
    "pairs-slow",
    "warning",
    "{pairs}: copies between the cards carry {slow} a way, where {slots} reach about {expected}",
    "a 32B model split by tensor spends {prompt} on this link per 1,000 tokens of prompt, "
    "{best_prompt} at the rate of the slots",
    "while a model runs look at each slot with `nvidia-smi "
    "--query-gpu=pci.bus_id,pcie.link.gen.current,pcie.link.width.current --format=csv`: replace a "
    "USB-type riser where it says x1, move a card from a slot of the chipset to one of the "
    "processor, and set a slot that stays at Gen1 to Auto in the BIOS; until then use a layer "
    "split",
)


def slow(rig: Rig) -> Iterator[Finding]:
    """Pairs that carry a small part of what their slots can."""
    by_id = {card.id: card for card in discrete(rig)}
    found: list[tuple[float, float, Link]] = []
    sound = False
    for link in rig.links:
        speed = pair_rate(link)
        if link.a == link.b or not speed or not {link.a, link.b} <= set(by_id):
            continue
        ends = by_id[link.a], by_id[link.b]
        reaches = [reach for card in ends if (reach := _reach(card, rig))]
        if len(reaches) < 2 or is_hindered(link) or any(card.facts.external for card in ends):
            continue
        least = PEERS_LEAST if _by_peers(link) else STAGED_LEAST
        if speed < least * min(reaches):
            found.append((speed, min(reaches), link))
        else:
            sound = True
    if not found or (sound and any(links.uneven(rig))):
        return
    speed, expected, worst = min(found, key=lambda pair: pair[0] / pair[1])
    ends = by_id[worst.a], by_id[worst.b]
    known = all(slot_generation(card) and lanes_of(card) for card in ends) and not is_guest(rig)
    slow_ends = {end for _, _, link in found for end in (link.a, link.b)}
    yield SLOW.finding(
        [card for card in discrete(rig) if card.id in slow_ends],
        pairs=", ".join(f"{link.a} with {link.b}" for _, _, link in found),
        slow=rate(speed),
        slots="their slots" if known else "even modest slots",
        expected=rate(expected),
        prompt=duration(prompt_seconds(speed)),
        best_prompt=duration(prompt_seconds(expected)),
    )


def _reach(card: Device, rig: Rig) -> float | None:
    """Bytes a second that copies over the card's slot reach, or were measured to reach.

    What is not known of the slot is taken as modest, within what the card can do. A guest sees
    an invented slot.
    """
    row = sold_as(card)
    made = card.facts.pcie_card or (row.pcie if row else None)
    if made is None or not made.generation or not made.width:
        return None
    generation = min(made.generation, MODEST_GENERATION)
    width = min(made.width, MODEST_LANES)
    if not is_guest(rig):
        if slot := generation_loaded(card) or slot_generation(card):
            generation = min(made.generation, slot)
        if lanes := lanes_of(card):
            width = lanes.width
    rates = (pcie_rate(generation, width), card.facts.copy_to, card.facts.copy_from)
    return min((speed for speed in rates if speed), default=None)


def _by_peers(link: Link) -> bool:
    return "ok" in (link.facts.read, link.facts.write) or link.facts.verdict == "good"
