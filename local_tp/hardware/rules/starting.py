"""Rules on cards that are on the bus and that their driver could not start.

Knows nothing of a driver as a whole. A card that a tool of the driver has read did start, whatever
an older line of the kernel's log says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from local_tp.core import Device, Rig
from local_tp.facts import Finding, StartFault
from local_tp.hardware.rules.advice import Advice, capability, discrete, label, listed, nvidia

OPEN_FROM = (10, 0)  # Blackwell: the open kernel modules alone
CLOSED_BEFORE = (7, 5)  # before Turing: no GSP, which the open kernel modules need

ADVICE: Mapping[StartFault, Advice] = {
    "no-address": Advice(
        "bar-unassigned",
        "error",
        "{evidence}",
        "the driver cannot start the card, and no program can use it",
        "switch on 'Above 4G Decoding' in the BIOS, and 'Resizable BAR' where it is offered, with "
        "CSM off; else update the BIOS, or start Linux with pci=realloc",
    ),
    "needs-open": Advice(
        "driver-wrong-modules",
        "error",
        "{evidence}",
        "no program can use the card",
        "install the driver with the open kernel modules (nvidia-open, or a package that ends in "
        "-open) and restart; `modinfo -F license nvidia` then says Dual MIT/GPL",
    ),
    "needs-closed": Advice(
        "driver-wrong-modules",
        "error",
        "{evidence}",
        "no program can use the card",
        "install the driver with the proprietary kernel modules, of a release that still knows the "
        "card (580 is the last for GTX 10 and older), and restart; `modinfo -F license nvidia` "
        "then says NVIDIA",
    ),
    "failed": Advice(
        "card-start-failed",
        "error",
        "{evidence}",
        "no program can use the card",
        "read what NVRM says just before it in `dmesg`; then switch the PC off and on, update the "
        "driver and the BIOS, check the card's power cables and riser, and try it alone",
    ),
}
SAID: Mapping[StartFault, str] = {
    "no-address": "the PC gave its memory windows (BARs) no address",
    "needs-open": "it needs NVIDIA's open kernel modules, and the proprietary ones are loaded",
    "needs-closed": "it has no GSP and needs NVIDIA's proprietary kernel modules, and the open "
    "ones are loaded",
    "failed": "the driver tried to start it and failed (RmInitAdapter)",
}
# What stands in `Rig.unknown` of a card whose place was not told.
PLACELESS: Mapping[StartFault, str] = {
    fault: f"an NVIDIA card that the kernel's log does not name: {said}"
    for fault, said in SAID.items()
}
CONFLICT = Advice(
    "driver-modules-conflict",
    "error",
    "{open} needs NVIDIA's open kernel modules, {closed} the proprietary ones, and Linux loads "
    "one kind",
    "whichever driver is installed, only one of the two kinds of cards can be used",
    "choose the kind that holds the better model: the open modules (nvidia-open) for {open}, or "
    "the proprietary ones of release 580 for {closed}, and take the other out; Windows has one "
    "driver for both, up to 580",
)


def not_started(rig: Rig) -> Iterator[Finding]:
    """Cards that did not start, by reason. Those of two kinds of modules are told together."""
    needing_open, needing_closed = _kinds(rig)
    torn = [*needing_open, *needing_closed] if needing_open and needing_closed else []
    for fault, advice in ADVICE.items():
        for card in discrete(rig):
            if card.facts.start_fault != fault or was_read(card):
                continue
            if fault not in ("needs-open", "needs-closed") or card not in torn:
                yield advice.finding([card], evidence=f"{label(card)}: {SAID[fault]}")
        if PLACELESS[fault] in rig.unknown:
            yield advice.finding([], evidence=PLACELESS[fault])


def modules_conflict(rig: Rig) -> Iterator[Finding]:
    """NVIDIA cards beside each other of which each needs the kernel modules that another cannot."""
    needing_open, needing_closed = _kinds(rig)
    if needing_open and needing_closed:
        yield CONFLICT.finding(
            [*needing_open, *needing_closed],
            open=listed(needing_open),
            closed=listed(needing_closed),
        )


def was_read(card: Device) -> bool:
    """Whether a tool of the driver told values that only a card at work has."""
    facts = card.facts
    values = (facts.temperature, facts.power_draw, facts.utilization, facts.clock)
    return any(value is not None for value in values)


def _kinds(rig: Rig) -> tuple[list[Device], list[Device]]:
    """The cards for the open modules alone and those for the others alone, where Linux may be."""
    cards = [card for card in nvidia(rig) if not card.facts.integrated]
    windows = rig.host.wsl or "windows" in rig.os.lower()
    if windows or any(card.facts.driver_model for card in cards):
        return [], []
    needing_open = [card for card in cards if _needs_open(card)]
    needing_closed = [card for card in cards if _needs_closed(card)]
    if all(map(was_read, (*needing_open, *needing_closed))):
        return [], []
    return needing_open, needing_closed


def _needs_open(card: Device) -> bool:
    known = capability(card)
    return card.facts.start_fault == "needs-open" or (known is not None and known >= OPEN_FROM)


def _needs_closed(card: Device) -> bool:
    known = capability(card)
    return card.facts.start_fault == "needs-closed" or (known is not None and known < CLOSED_BEFORE)
