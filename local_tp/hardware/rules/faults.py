"""Rules on damage: lost cards, memory and link errors, cards counted twice.

Knows nothing of settings. Lines that a probe or a pasted text left in `Rig.unknown` count as
evidence here, for a lost card is often in no other place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from local_tp.core import Device, Rig
from local_tp.facts import Finding
from local_tp.hardware.devices import bus_id
from local_tp.hardware.rules.advice import (
    Advice,
    answering,
    discrete,
    label,
    rate,
    sold_as,
)

REPLAYS_SEEN = 10
REPLAYS_MANY = 100
LINK_ERRORS_MANY = 10
SLOW_BELOW = 0.75  # of the catalog's bandwidth; copies on sound cards reach 0.77 to 0.91

_LOST = re.compile(
    r"gpu is lost|fallen off the bus|xid \([^)]*\): 79\b|unable to determine the device handle"
    r"|requires a reset|reset required",
    re.IGNORECASE,
)
_PLACE = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?", re.IGNORECASE)
# The driver's fault numbers that speak of the machine rather than of a program.
_RESEAT = "reseat the card and its power cables, and see whether it comes back after a restart"
_MEMORY = "restart, watch whether it comes back, and use the warranty if it does"
_FIRMWARE = "update the driver; if it comes back, reseat the card and check its power cables"
XIDS: dict[int, tuple[str, str]] = {
    48: ("an error in its memory that could not be corrected", _MEMORY),
    61: ("its own processor stopped at a breakpoint", _FIRMWARE),
    62: ("its own processor stopped", _FIRMWARE),
    63: ("a row of its memory was replaced", _MEMORY),
    64: ("a row of its memory could not be replaced", _MEMORY),
    74: ("an NVLink error", "switch off, reseat the bridge, look at `nvidia-smi nvlink -e`"),
    79: ("the card fell off the bus", _RESEAT),
    94: ("a memory error that was contained", _MEMORY),
    95: ("a memory error that was not contained", _MEMORY),
    119: ("its firmware did not answer", _FIRMWARE),
    120: ("its firmware failed", _FIRMWARE),
}
LOST = Advice(
    "gpu-lost",
    "error",
    "{evidence}",
    "the card cannot be used until the PC restarts, and a model that was on it is gone",
    "switch the PC off and on; if it happens again check the card's power cables and the supply's "
    "peak load, replace the riser, try the slot at Gen3, and read `dmesg` for Xid lines",
)
ECC_ERRORS = Advice(
    "ecc-errors",
    "error",
    "{card}: {count:,} errors in its memory that could not be corrected",
    "weights or context may be wrong without notice, or the program ends in the midst of work",
    "restart and watch whether the count grows; if it does the card's memory is failing: use the "
    "warranty, and leave the card out with --devices until then",
)
XID = Advice(
    "xid-fault",
    "warning",
    "{card}: Xid {number} in the kernel's log, {meaning}",
    "work on the card may have ended or gone wrong at that moment",
    "{remedy}",
)
REPLAYS = Advice(
    "pcie-replays",
    "info",
    "{card}: {count:,} packets had to be sent again over PCIe",
    "each is a delay, and many are the sign of a link that will drop its speed or lose the card",
    "reseat the card, replace or shorten the riser, clean the contacts; if it goes on set the slot "
    "one generation lower in the BIOS",
)
LINK_ERRORS = Advice(
    "pcie-errors",
    "info",
    "{card}: its PCIe link reported {count}, corrected so far",
    "each is a delay, and many are the sign of a link that will drop its speed or lose the card",
    "reseat the card, replace or shorten the riser, clean the contacts; watch `dmesg` for AER "
    "lines under load, and if they go on set the slot one generation lower in the BIOS",
)
REMAP = Advice(
    "memory-remap-pending",
    "warning",
    "{card}: rows of its memory are faulty, and spare ones take their place only after a reset",
    "until then the faulty rows may be used: a program ends in the midst of work, or errors grow",
    "restart the PC, then see that `nvidia-smi -q -d ROW_REMAPPER` says Pending: No; if rows are "
    "marked again and again use the warranty",
)
TWICE = Advice(
    "duplicate-gpu",
    "warning",
    "{what} is listed {count} times ({places})",
    "its memory would be counted {count} times, and a plan made on that does not fit",
    "name one of them with --devices; on virtual machines check how the cards are passed through",
)
SLOW = Advice(
    "card-slower-than-rated",
    "warning",
    "{card}: its memory moved {measured}, {share:.0%} of the rated {rated}",
    "decode waits for this memory: about {slower:.0f} % more time for each token on this card",
    "close other programs on it and measure again; then look at temperature, power limit and "
    "memory clock (`nvidia-smi -q -d CLOCK,PERFORMANCE`)",
)


def lost(rig: Rig) -> Iterator[Finding]:
    """Cards that the driver lost, from their facts or from the words of a driver."""
    known = [device for device in rig.devices if device.facts.lost]
    for device in known:
        xid = " and the kernel's log has Xid 79" if 79 in device.facts.xids else ""
        yield LOST.finding([device], evidence=f"{label(device)} no longer answers{xid}")
    told = {device.id for device in known}
    for line in rig.unknown:
        places = [place for text in _PLACE.findall(line) if (place := _slot(text))]
        if not _LOST.search(line) or told & set(places):
            continue
        if not places and told:
            continue
        told.update(places or ["?"])
        yield LOST.finding(places, evidence=" ".join(line.split()))


def ecc_errors(rig: Rig) -> Iterator[Finding]:
    """Memory errors that error correction saw and could not mend."""
    for card in discrete(rig):
        if card.facts.ecc_uncorrected:
            yield ECC_ERRORS.finding([card], card=label(card), count=card.facts.ecc_uncorrected)


def xids(rig: Rig) -> Iterator[Finding]:
    """Faults that the driver wrote to the kernel's log. A lost card is told elsewhere."""
    for card in answering(rig):
        for number in card.facts.xids:
            if number in XIDS:
                meaning, remedy = XIDS[number]
                yield XID.finding(
                    [card], card=label(card), number=number, meaning=meaning, remedy=remedy
                )


def replays(rig: Rig) -> Iterator[Finding]:
    """Packets sent twice; a handful since the start is no fault."""
    for card in discrete(rig):
        count = card.facts.replays or 0
        if count >= REPLAYS_SEEN:
            yield REPLAYS.finding(
                [card],
                "warning" if count >= REPLAYS_MANY else "info",
                card=label(card),
                count=count,
            )


def link_errors(rig: Rig) -> Iterator[Finding]:
    """Errors of the link that the system's own error reporting saw."""
    for card in discrete(rig):
        if count := card.facts.link_errors:
            yield LINK_ERRORS.finding(
                [card],
                "warning" if count >= LINK_ERRORS_MANY else "info",
                card=label(card),
                count="at least one error" if count == 1 else f"{count:,} errors",
            )


def remap_pending(rig: Rig) -> Iterator[Finding]:
    """Memory rows whose replacement waits for a reset."""
    for card in answering(rig):
        if card.facts.remap_pending:
            yield REMAP.finding([card], card=label(card))


def duplicates(rig: Rig) -> Iterator[Finding]:
    """One card listed under several places, by its own number. A blanked number is none."""
    same: dict[str, list[Device]] = defaultdict(list)
    for card in answering(rig):
        if card.uuid and not card.facts.mig and _is_real(card.uuid):
            same[card.uuid].append(card)
    for cards in same.values():
        if len(cards) > 1:
            yield TWICE.finding(
                cards,
                what=cards[0].name,
                count=len(cards),
                places=", ".join(card.id for card in cards),
            )


def slow(rig: Rig) -> Iterator[Finding]:
    """Measured memory bandwidth far below the catalog's."""
    for card in discrete(rig):
        row = sold_as(card)
        rated = row.bandwidth if row else None
        if not rated or not card.bandwidth or card.bandwidth >= SLOW_BELOW * rated:
            continue
        yield SLOW.finding(
            [card],
            card=label(card),
            measured=rate(card.bandwidth),
            rated=rate(rated),
            share=card.bandwidth / rated,
            slower=100 * (rated / card.bandwidth - 1),
        )


def _is_real(uuid: str) -> bool:
    digits = re.sub(r"[^0-9a-f]", "", uuid.lower().removeprefix("gpu-"))
    return len(digits) >= 8 and len(set(digits)) > 1


def _slot(text: str) -> str | None:
    """A bus id, also without its function, as kernel messages write it."""
    return bus_id(text) or bus_id(f"{text}.0")
