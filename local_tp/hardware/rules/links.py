"""Rules on PCI Express: lanes, generation, measured copies, links that do not match.

Knows nothing of peer-to-peer. Lanes are believed at any time, for cards do not drop them when
idle; the generation only under load, for every idle card lowers it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from local_tp.core import Device, Link, Rig
from local_tp.facts import Finding, Severity
from local_tp.hardware.rules.advice import (
    Advice,
    discrete,
    duration,
    is_guest,
    is_laptop,
    label,
    rate,
)
from local_tp.hardware.rules.link_costs import (
    load_seconds,
    pcie_rate,
    prompt_seconds,
    reduction_seconds,
)
from local_tp.hardware.rules.pair_rates import is_hindered, pair_rate
from local_tp.hardware.rules.slots import (
    Lanes,
    best_generation,
    card_generation,
    generation_loaded,
    lanes_of,
    slot_generation,
)

SHARED_WIDTH = 8  # two slots that share a processor's sixteen lanes: usual, and rarely felt
RISER_WIDTH = 2
COPY_FLOOR = 0.5  # of what the link should reach
UNEVEN_PAIRS = 1.7  # a chipset x4 beside a processor x8 measures 2.0, sockets apart 1.3
UNEVEN_WIDTHS = 4

_COST = (
    "a 32B model split by tensor spends {prompt} on this link per 1,000 tokens of prompt, "
    "{best_prompt} at x{best}; in decode each reduction takes {reduction} of it, "
    "{best_reduction} at x{best}; 20 GB of weights load in {load} at best, {best_load} at x{best}"
)

NARROW = Advice(
    "pcie-narrow",
    "info",
    "{card} runs with {width} of {best} lanes; {limit}",
    _COST,
    "nothing to do where two slots share the lanes; otherwise use the slot nearest the processor, "
    "and check in the board's manual which slot or M.2 drive shares its lanes",
)
X4 = Advice(
    "pcie-x4",
    "warning",
    "{card} runs with {width} of {best} lanes: a chipset slot, an M.2 adapter or an external case; "
    "{limit}",
    _COST,
    "move the card to a slot wired to the processor with 8 or 16 lanes (the manual says which), "
    "free the slot's lanes of M.2 drives, or use a layer split, which hardly needs the link",
)
X1 = Advice(
    "pcie-x1",
    "warning",
    "{card} runs with {width} of {best} lanes; {limit}: a mining riser, a x1 slot or bad contact",
    _COST,
    "replace a USB-type riser by a x16 ribbon or seat the card in a full slot, and clean its "
    "contacts; until then use a layer split",
)
GENERATION = Advice(
    "pcie-generation-low",
    "warning",
    "{card} ran PCIe {now}.0 x{width} under load; card and slot can do {best}.0",
    "the link carries {rate} instead of {best_rate}: prompts of a tensor split and loading wait "
    "{factor:.0f} times as long",
    "set the slot to Gen{best} or Auto in the BIOS, and replace or shorten the riser: a link that "
    "cannot hold its speed falls back",
)
SLOT_OLDER = Advice(
    "pcie-slot-older",
    "info",
    "{card} can do PCIe {card_generation}.0, its slot {slot_generation}.0 at most",
    "prompts of a tensor split and loading take up to {factor:.0f} times as long on this link; "
    "decode hardly changes",
    "nothing to repair: the board sets this limit; a slot that the manual lists as Gen"
    "{card_generation} would lift it, and a BIOS setting of the slot's speed may hide it",
)
COPY_SLOW = Advice(
    "pcie-copy-slow",
    "warning",
    "{card} copied at {measured} where PCIe {generation}.0 x{width} reaches about {expected}",
    "20 GB of weights load in {load} instead of {best_load}, and prompts of a tensor split wait "
    "{factor:.1f} times as long on this link",
    "the card most likely hangs off the chipset, whose uplink it shares with drives and network: "
    "move it to a slot wired to the processor; else look for a worn riser",
)
CHIPSET = Advice(
    "pcie-chipset",
    "info",
    "{card} hangs off the chipset, not off the processor",
    "the chipset's drives, network and USB share its one link to the processor, often of four "
    "lanes, with the card: loading and the prompts of a tensor split wait for it",
    "move the card to a slot wired to the processor (the manual says which), or use a layer split, "
    "which hardly needs the link",
)
UNEVEN = Advice(
    "uneven-links",
    "warning",
    "copies between cards differ {factor:.1f} times: {slow_a} and {slow_b} {slow}, {fast_a} and "
    "{fast_b} {fast}",
    "a tensor split over all of them waits for the slowest: {prompt} per 1,000 tokens of prompt "
    "of a 32B model instead of {best_prompt}",
    "move the slow card to a slot of the processor; or leave it out of the tensor split and give "
    "it layers of its own",
)
UNEVEN_SLOTS = Advice(
    "uneven-slots",
    "info",
    "the cards' lanes differ: {lanes}",
    "a tensor split moves the same bytes over each link, so the x{narrow} one sets the pace and "
    "the others wait about {factor:.0f} times longer than they need",
    "put the cards that share a tensor split into slots of equal width, or use a layer split",
)


def narrow(rig: Rig) -> Iterator[Finding]:
    """Fewer lanes than the card has, by the slot's fault or the contact's."""
    gone = [card for card in rig.devices if card.facts.lost]  # often the reason why
    for card in (*discrete(rig), *gone):
        lanes = lanes_of(card)
        if lanes is None or lanes.width >= lanes.card or card.facts.external:
            continue
        if lanes.width >= SHARED_WIDTH and is_laptop(card, rig):
            continue  # soldered so
        advice = X1 if lanes.width <= RISER_WIDTH else X4 if lanes.width < SHARED_WIDTH else NARROW
        generation = best_generation(card) or 3
        now = pcie_rate(generation, lanes.width)
        best = pcie_rate(generation, lanes.card)
        if now is None or best is None:
            continue
        yield advice.finding(
            [card],
            card=label(card),
            width=lanes.width,
            best=lanes.card,
            limit=_limit(lanes, card),
            prompt=duration(prompt_seconds(now)),
            best_prompt=duration(prompt_seconds(best)),
            reduction=duration(reduction_seconds(now)),
            best_reduction=duration(reduction_seconds(best)),
            load=duration(load_seconds(now)),
            best_load=duration(load_seconds(best)),
        )


def _limit(lanes: Lanes, card: Device) -> str:
    if lanes.slot is None:
        limit = "the slot, or the contact in it, gives no more"
    elif lanes.width < lanes.slot:
        limit = f"the slot has {lanes.slot}, so lanes are lost on the way"
    else:
        limit = f"the slot has no more than {lanes.slot}"
    return f"{limit}, and it hangs off the chipset" if card.facts.chipset else limit


def chipset(rig: Rig) -> Iterator[Finding]:
    """A slot of the chipset, where narrow lanes do not say so already."""
    cards = discrete(rig)
    for card in cards:
        if not card.facts.chipset or card.facts.external or is_laptop(card, rig) or is_guest(rig):
            continue
        lanes = lanes_of(card)
        if lanes is None or lanes.width >= min(SHARED_WIDTH, lanes.card):
            severity: Severity = "warning" if len(cards) > 1 else "info"
            yield CHIPSET.finding([card], severity, card=label(card))


def generation_under_load(rig: Rig) -> Iterator[Finding]:
    """A link slower than card and slot allow while it is working."""
    for card in discrete(rig):
        now, best, lanes = generation_loaded(card), best_generation(card), lanes_of(card)
        if now is None or best is None or lanes is None or now >= best:
            continue
        slow, fast = pcie_rate(now, lanes.width), pcie_rate(best, lanes.width)
        if slow is None or fast is None:
            continue
        yield GENERATION.finding(
            [card],
            card=label(card),
            now=now,
            width=lanes.width,
            best=best,
            rate=rate(slow),
            best_rate=rate(fast),
            factor=fast / slow,
        )


def slot_older(rig: Rig) -> Iterator[Finding]:
    """A slot of an older generation than its card. A guest sees an invented slot."""
    for card in discrete(rig):
        own, slot = card_generation(card), slot_generation(card)
        if own is None or slot is None or slot >= own or is_guest(rig) or card.facts.external:
            continue
        slow, fast = pcie_rate(slot, 1), pcie_rate(own, 1)
        if slow is not None and fast is not None:
            yield SLOT_OLDER.finding(
                [card],
                card=label(card),
                card_generation=own,
                slot_generation=slot,
                factor=fast / slow,
            )


def copy_slow(rig: Rig) -> Iterator[Finding]:
    """Measured copies far below the link's own figures: a bottleneck further up."""
    for card in discrete(rig):
        copies = [c for c in (card.facts.copy_to, card.facts.copy_from) if c]
        generation = generation_loaded(card) or best_generation(card)
        lanes = lanes_of(card)
        if not copies or generation is None or lanes is None or card.facts.external:
            continue
        expected, measured = pcie_rate(generation, lanes.width), min(copies)
        if expected is None or measured >= COPY_FLOOR * expected:
            continue
        yield COPY_SLOW.finding(
            [card],
            card=label(card),
            measured=rate(measured),
            generation=generation,
            width=lanes.width,
            expected=rate(expected),
            load=duration(load_seconds(measured)),
            best_load=duration(load_seconds(expected)),
            factor=expected / measured,
        )


def uneven(rig: Rig) -> Iterator[Finding]:
    """Pairs on the same kind of way whose measured copies differ: one card is behind something."""
    by_id = {card.id: card for card in discrete(rig)}
    groups: dict[tuple[object, ...], list[tuple[float, Link]]] = defaultdict(list)
    for link in rig.links:
        speed = pair_rate(link)
        if speed and link.a in by_id and link.b in by_id and not is_hindered(link):
            key = (link.kind, link.facts.path, link.facts.nvlinks, link.facts.read)
            groups[key].append((speed, link))
    for pairs in groups.values():
        slow, fast = (choose(pairs, key=lambda pair: pair[0]) for choose in (min, max))
        if fast[0] < UNEVEN_PAIRS * slow[0]:
            continue
        best = {
            card: max(speed for speed, link in pairs if card in (link.a, link.b))
            for card in {end for _, link in pairs for end in (link.a, link.b)}
        }
        behind = sorted(card for card, speed in best.items() if speed * UNEVEN_PAIRS <= fast[0])
        yield UNEVEN.finding(
            behind or [slow[1].a, slow[1].b],
            factor=fast[0] / slow[0],
            slow_a=label(by_id[slow[1].a]),
            slow_b=label(by_id[slow[1].b]),
            slow=rate(slow[0]),
            fast_a=label(by_id[fast[1].a]),
            fast_b=label(by_id[fast[1].b]),
            fast=rate(fast[0]),
            prompt=duration(prompt_seconds(slow[0])),
            best_prompt=duration(prompt_seconds(fast[0])),
        )


def uneven_slots(rig: Rig) -> Iterator[Finding]:
    """Cards of one maker, which may work together, in slots of very different width."""
    makers: dict[str, dict[str, int]] = defaultdict(dict)
    for card in discrete(rig):
        if lanes := lanes_of(card):
            makers[card.kind][card.id] = lanes.width
    for widths in makers.values():
        narrowest, widest = min(widths.values()), max(widths.values())
        if widest < UNEVEN_WIDTHS * narrowest:
            continue
        yield UNEVEN_SLOTS.finding(
            [card for card, width in widths.items() if width == narrowest],
            lanes=", ".join(f"x{width} at {card}" for card, width in widths.items()),
            narrow=narrowest,
            factor=widest / narrowest,
        )
