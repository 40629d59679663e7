"""Complaints: of the kernel about a card, and of `nvidia-smi` about the driver.

Knows nothing of healthy output. A card that fell off the bus, or whose handle cannot be had, is a
card that is lost; other faults keep their Xid number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from local_tp.facts import CardFacts, HostFacts, SoftwareFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import driver_words, nvrm
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line

_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?\):\s*(\d{1,4})"
)
_GPU = re.compile(
    r"\bGPU\s?(?:at (?:PCI:)?)?#?(\d{1,2})?:?\s*"
    r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
)
_HANDLE = "Unable to determine the device handle"
_MISMATCH = re.compile(r"NVRM: API mismatch")
_VERSION = re.compile(r"(client has the|kernel module has(?: the)?) version\s+([\d.]{3,20})")
_LIBRARY = re.compile(r"NVML library version:\s*([\d.]{1,20})")
_MODULE = re.compile(r"NVRM version:.{0,80}?Kernel Module(?:\s+for\s\S{1,20})?\s+(\d[\d.]{2,19})")
_COMMAND = re.compile(r"(?:\bKernel c|\bC)ommand line:\s*(\S.*)|\A(BOOT_IMAGE=\S.*)")
_AER = re.compile(
    r"\b(?:nvidia|nouveau|amdgpu|radeon|i915|xe) "
    r"([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0): .{0,20}?PCIe Bus Error: severity=Correct"
    r"(?!ed, type=Transaction)"  # advisory, as healthy cards report too
)
_DETAIL = re.compile(  # of an error that was told of before
    r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]: {1,6}"
    r"(?:device \[[0-9a-f:]{9}\] error status|\[ {0,2}\d{1,2}\] [A-Z])"
)
_MOST_XIDS = 32  # of one card; more different ones say nothing more
_ENABLED = "DMAR: IOMMU enabled"
_IOMMU: tuple[tuple[str, Literal["off", "passthrough", "on"]], ...] = (
    ("iommu=pt", "passthrough"),
    ("_iommu=on", "on"),
    ("iommu=off", "off"),
)


def _starts(line: str) -> bool:
    text = line.replace("’", "'")
    return (
        _HANDLE in text
        or nvrm.is_known(text)
        or "PCIe Bus Error: severity=" in text
        or " AER: " in text
        or bool(_DETAIL.search(text))
        or _ENABLED in text
        or driver_words.said(text) is not None
        or "NVML library version" in text
        or ("ommand line: " in text and bool(_COMMAND.search(text)))
        or text.startswith("BOOT_IMAGE=")
    )


def _continues(line: str) -> bool:
    return _starts(line) or bool(re.match(r"\s{4,}\S", line)) or "NVIDIA-SMI" in line[:12]


def lost_card(text: str) -> Card | None:
    """The card that `Unable to determine the device handle for GPU…` is about."""
    match = _GPU.search(text)
    if not match:
        return None
    slot = bus_id(match[2] if "." in match[2] else f"{match[2]}.0")
    return Card(
        slot=slot,
        number=int(match[1]) if match[1] else None,
        facts=CardFacts(vendor="nvidia", lost=True),
    )


def parse(lines: Sequence[Line]) -> Sighting:
    """Lost cards, faults by card, and why the driver does not answer."""
    cards: dict[str, Card] = {}
    software, host = SoftwareFacts(), HostFacts()
    sayings: list[driver_words.Saying] = []
    unread: list[str] = []
    for line in lines:
        text = line.text.replace("’", "'")
        for card in _cards(text):
            slot = card.slot or ""
            if slot not in cards and len(cards) == MOST_CARDS:
                unread[:] = [f"line {line.number}: more than {MOST_CARDS} cards with faults"]
                continue
            cards[slot] = _both(cards[slot], card) if slot in cards else card
        if (told := _software(text)) != SoftwareFacts():
            software = overlay(software, told)
        if (around := _host(text)) != HostFacts():
            host = overlay(host, around)
            if around.iommu == "passthrough":  # it says more than "on", wherever it stands
                host = replace(host, iommu="passthrough")
        if (saying := driver_words.said(text)) and saying not in sayings:
            sayings.append(saying)
    starts = nvrm.read(lines)
    for card in starts.cards:
        slot = card.slot or ""
        if slot in cards or len(cards) < MOST_CARDS:
            cards[slot] = overlay(cards.get(slot, Card()), card)
    if software.driver_fault is None:
        software = replace(software, driver_fault=driver_words.fault(sayings))
    return Sighting(
        "complaints",
        cards=tuple(cards.values()),
        software=software,
        host=host,
        unknown=(*(saying.means for saying in sayings if saying.means), *starts.unknown),
        unread=tuple(unread),
    )


def _cards(text: str) -> list[Card]:
    gone = "fallen off the bus" in text or "GPU is lost" in text or _HANDLE in text
    if match := _XID.search(text):
        number = int(match[2])
        facts = CardFacts(vendor="nvidia", lost=gone or number == 79, xids=(number,))
        return [Card(slot=bus_id(f"{match[1]}.0"), facts=facts)]
    if "PCIe Bus Error" in text and (match := _AER.search(text)):
        return [Card(slot=bus_id(match[1]), facts=CardFacts(link_errors=1))]
    found = lost_card(text) if gone else None
    return [found] if found else []


def _both(first: Card, second: Card) -> Card:
    repeated = set(second.facts.xids) <= set(first.facts.xids)
    full = len(first.facts.xids) == _MOST_XIDS
    if second.facts.link_errors:
        errors = (first.facts.link_errors or 0) + second.facts.link_errors
        return replace(first, facts=replace(first.facts, link_errors=errors))
    if (repeated or full) and first.facts.lost >= second.facts.lost:
        return first
    xids = tuple(dict.fromkeys((*first.facts.xids, *second.facts.xids)))[:_MOST_XIDS]
    facts = replace(first.facts, xids=xids, lost=first.facts.lost or second.facts.lost)
    return replace(overlay(first, second), facts=facts)


def _software(text: str) -> SoftwareFacts:
    told = SoftwareFacts(driver_fault="mismatch" if _MISMATCH.search(text) else None)
    for who, version in _VERSION.findall(text):
        which = "driver" if who.startswith("client") else "cuda_module"
        told = replace(told, **{which: version.strip(".")})
    if match := _LIBRARY.search(text):
        told = replace(told, driver=match[1].strip("."))
    if match := _MODULE.search(text):
        told = replace(told, cuda_module=match[1].strip("."))
    return told


def _host(text: str) -> HostFacts:
    match = _COMMAND.search(text)
    line = (match[1] or match[2]).strip()[:2000] if match else None
    if line is None:
        return HostFacts(iommu="on" if _ENABLED in text else None)
    host = HostFacts(command_line=line)
    for word, state in _IOMMU:
        if word in line:
            return replace(host, iommu=state)
    return host


KIND = Kind("complaints", _starts, _continues, parse)
