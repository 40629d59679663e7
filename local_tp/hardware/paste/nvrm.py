"""What NVIDIA's kernel module writes (`NVRM: …`) about a card that it could not start.

Knows nothing of faults at work. A message goes over several lines, of which the first may name
the card; a line that no known message has is not known here, so that others can say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from local_tp.facts import CardFacts, StartFault
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import Card
from local_tp.hardware.paste.text import Line
from local_tp.hardware.rules.starting import PLACELESS

_NVRM = re.compile(r"\bNVRM: {1,4}(\S.{0,400})")
_PLACE = re.compile(r"\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:[.:][0-7])?\b")
_ABOUT = re.compile(r"The NVIDIA GPU \S{7,16} \(PCI ID: 10de:([0-9a-fA-F]{4})\)")
# The most telling first: a start that failed for one of these also is told as failed.
_REASONS: tuple[tuple[StartFault, re.Pattern[str]], ...] = (
    ("needs-open", re.compile(r"requires use of the NVIDIA open kernel modules")),
    ("needs-closed", re.compile(r"is not supported by open\b")),
    ("no-address", re.compile(r"BAR\d is 0M @ 0x0\b")),
    ("failed", re.compile(r"RmInitAdapter failed|rm_init_adapter failed")),
)
_RANK = {fault: rank for rank, (fault, _) in enumerate(_REASONS)}
# What else the messages say that are read here or by `kernel_log`, and that nothing is wrong.
_REST = re.compile(
    r"nvidia\.ko because it does not include|System Processor \(GSP\)"
    r"|Please see the 'Open Linux|Firmware' sections in|the Linux graphics driver download"
    r"|www\.nvidia\.com|This PCI I/O region assigned|The system BIOS may have misconfigured"
    r"|loading NVIDIA UNIX|Xid \(PCI:|fallen off the bus|GPU is lost|GPU at PCI:"
    r"|API mismatch|(?:client|kernel module) has the|make sure that (?:this|the) kernel module"
    r"|components have the same version|A GPU crash dump has been created|If possible, please run"
    r"|nvidia-bug-report\.sh as root|the NVIDIA kernel module is unloaded"
)


class Starts(NamedTuple):
    """The cards that did not start, and in words the faults that name no card."""

    cards: tuple[Card, ...]
    unknown: tuple[str, ...]


def is_known(line: str) -> bool:
    """Whether a line of the kernel module is part of a message that is read."""
    if "NVRM version:" in line:
        return True
    match = _NVRM.search(line)
    return match is not None and bool(
        _ABOUT.match(match[1]) or _fault(match[1]) or _REST.search(match[1])
    )


def read(lines: Sequence[Line]) -> Starts:
    """The cards that the module could not start, each with the most telling reason."""
    faults: dict[str, StartFault] = {}
    names: dict[str, str | None] = {}
    placeless: list[StartFault] = []
    about: str | None = None
    for line in lines:
        match = _NVRM.search(line.text)
        if match is None:
            continue
        text = match[1]
        place = _PLACE.search(text)
        slot = bus_id(f"{place[1]}.0") if place else None
        if told := _ABOUT.match(text):
            about = slot
            if about:
                names[about] = pci_names.name_of(told[1])
        fault = _fault(text)
        if fault is None:
            continue
        if slot is None and "installed in this system" in text:
            slot, about = about, None
        if slot is None:
            placeless.append(fault)
        elif slot not in faults or _RANK[fault] < _RANK[faults[slot]]:
            faults[slot] = fault
    cards = (
        Card(
            slot=slot,
            name=names.get(slot),
            facts=CardFacts(vendor="nvidia", start_fault=fault),
        )
        for slot, fault in faults.items()
    )
    told_of = set(faults.values())
    left = dict.fromkeys(fault for fault in placeless if fault not in told_of)
    return Starts(tuple(cards), tuple(PLACELESS[fault] for fault in left))


def _fault(text: str) -> StartFault | None:
    return next((fault for fault, words in _REASONS if words.search(text)), None)
