"""`lspci` with any number of `-v`: graphics cards, their links and the slots above them.

Knows nothing of what drivers say. A card's slot is the bridge whose secondary bus is the card's
own. Cards of AMD carry a switch of their own, and the link to the slot is that of the switch's
upper port.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from local_tp.core import Pcie
from local_tp.facts import CardFacts, HostFacts, PcieReading
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import generation, size

_PLACE = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DEVICE = re.compile(rf"\s*({_PLACE})(?:\s+(\S.{{0,400}}))?\s*\Z")
_COMMAND = re.compile(rf"lspci\b.{{0,80}}?-s\s*({_PLACE})")
_LINK = re.compile(r"\s*(LnkCap|LnkSta):\s.{0,80}?Speed ([\d.]{1,5}GT/s|unknown)")
_WIDTH = re.compile(r"Width x(\d{1,2})")
_BRIDGE = re.compile(r"\s*Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2})")
_NUMA = re.compile(r"\s*NUMA node:\s*(\d{1,3})")
_REGION = re.compile(
    r"\s*(?:Region [01235]: )?Memory at [0-9a-f<>]+ \((?:64|32)-bit, prefetchable\).{0,40}"
    r"\[size=(\d{1,4}[KMGT])\]"
)
_NO_ADDRESS = re.compile(
    r"\s*(?:Region [01235]: )?Memory at <(?:unassigned|ignored)> \((?:64|32)-bit"
)
# All ones is what reading a device gives that is not there.
_GONE = re.compile(r"\(rev ff\)|\A\s*!!! Unknown header type 7f")
_MOBILE = re.compile(r"Mobile|Max-Q")
_GRAPHICS = re.compile(r"VGA compatible controller|3D controller|Display controller|\[03\d{2}\]")
_ATTRIBUTE = re.compile(
    r"\s*(?:LnkCap|LnkSta|LnkCtl|LnkCap2|LnkSta2|LnkCtl2|DevSta|DevCap|DevCtl|Subsystem|Control"
    r"|Status|Region|Capabilities|Kernel|Flags|Bus|Memory|Latency|Interrupt|NUMA node|IOMMU group"
    r"|Expansion ROM|DeviceName|AERCap|UESta|CESta|I/O|Physical Slot|SltSta|SltCap|ACSCap|ACSCtl"
    r"|!!! Unknown header type)"
    r"(?: [a-z]+| at| ROM)?[ :]"
)
_DRIVER = re.compile(r"\s*Kernel driver in use:\s*([\w-]{1,40})")
# Faults of the link itself; what is merely advisory, healthy cards report too.
_LINK_FAULT = re.compile(r"\s*CESta:\s.{0,200}?\b(?:RxErr|BadTLP|BadDLLP|Rollover|Timeout)\+")
_CORRECTED = re.compile(r"\s*(?:CESta:|DevSta:\s.{0,20}?CorrErr[+-])")
_ACS = re.compile(r"\s*ACSCtl:\s.{0,80}?ReqRedir([+-])")
_CHIPSET = re.compile(
    r"\b\w{1,6} Series Chipset\b|\bPCH\b|Chipset Family|Matisse (?:Switch|PCIe GPP)"
)
_ROOT_PORT = re.compile(r"Root Port|GPP Bridge|PCIe Controller|PCI Express Root")
_EXTERNAL = re.compile(r"Thunderbolt|USB4|Maple Ridge|Titan Ridge|Alpine Ridge|Barlow Ridge|\bJHL")
_ON_CARD = re.compile(r"Navi|Vega|\[AMD/ATI\].{0,80}(?:Upstream|Downstream) Port")


def _starts(line: str) -> bool:
    match = _DEVICE.match(line)
    if match:
        return match[2] is None or ":" in match[2]
    return bool(_COMMAND.search(line) or _LINK.match(line))


def _continues(line: str) -> bool:
    return _starts(line) or bool(_ATTRIBUTE.match(line)) or line[:1] == "\t" or line[:8] == " " * 8


@dataclass(frozen=True, slots=True)
class _Function:
    """A PCI function. `most` and `now` are its LnkCap and LnkSta."""

    slot: str
    title: str = ""
    most: PcieReading | None = None
    now: PcieReading | None = None
    primary: str | None = None
    secondary: str | None = None
    numa: int | None = None
    bar: int | None = None
    redirects: bool | None = None  # peer traffic, to the processor (ACS)
    driver: str | None = None
    faults: bool | None = None  # whether the link's faults were corrected
    gone: bool = False
    no_address: bool = False


def parse(lines: Sequence[Line]) -> Sighting:
    """The graphics cards among the functions listed."""
    functions: dict[str, _Function] = {}
    current: str | None = None
    for line in lines:
        match = _DEVICE.match(line.text) or _COMMAND.search(line.text)
        slot = bus_id(match[1]) if match else None
        if match and slot:
            current = slot
            title = (match[2] or "") if match.re is _DEVICE else ""
            functions.setdefault(current, _Function(current, title, gone=_is_gone(title)))
        elif current:
            functions[current] = _attribute(functions[current], line.text)
    bridges = {
        f"{f.slot.split(':')[0]}:{f.secondary}": f for f in functions.values() if f.secondary
    }
    # One more than a machine has, so that what reads on can say that there were more.
    found = list(islice(filter(_is_card, functions.values()), MOST_CARDS + 1))
    cards = tuple(_card(function, bridges) for function in found)
    unread: tuple[str, ...] = ()
    if not functions:
        unread = (
            f"line {lines[0].number}: a PCI link without the device that has it: paste lspci's "
            "output from the device's own line on",
        )
    ways = tuple((f.slot, way) for f in found if (way := _way(f, bridges)))
    acs = [b.redirects for f in found for b in _above(f, bridges) if b.redirects is not None]
    host = HostFacts(acs=any(acs) if acs else None)
    unknown = tuple(
        f"{f.slot}: lspci could not read it: a laptop's card that is switched off while nobody "
        "uses it, or one that failed: start a program on it and run lspci again"
        for f in found
        if _may_sleep(f)
    )
    return Sighting("lspci", cards=cards, ways=ways, host=host, unknown=unknown, unread=unread)


def _is_card(function: _Function) -> bool:
    if function.title:
        graphics = bool(_GRAPHICS.search(function.title))
        return graphics and pci_names.vendor(function.title) is not None
    # Somebody picked the function out and printed its link: in a report about cards, a card.
    return function.most is not None or function.now is not None


def _attribute(function: _Function, text: str) -> _Function:
    if match := _LINK.match(text):
        width = _WIDTH.search(text)
        told = PcieReading(generation(match[2]), int(width[1]) or None if width else None)
        if match[1] == "LnkCap":
            return replace(function, most=function.most or told)
        return replace(function, now=function.now or told)
    if match := _BRIDGE.match(text):
        return replace(function, primary=match[1], secondary=match[2])
    if match := _ACS.match(text):
        return replace(function, redirects=match[1] == "+")
    if match := _DRIVER.match(text):
        return replace(function, driver=match[1])
    if _CORRECTED.match(text):
        # What CESta tells of the kinds of errors counts before DevSta's one mark for all.
        if "CESta" in text:
            return replace(function, faults=bool(_LINK_FAULT.match(text)))
        return replace(function, faults="CorrErr+" in text) if function.faults is None else function
    if match := _NUMA.match(text):
        return replace(function, numa=int(match[1]))
    if _NO_ADDRESS.match(text):
        return replace(function, no_address=True)
    if _is_gone(text):
        return replace(function, gone=True)
    if match := _REGION.match(text):
        return replace(function, bar=max(function.bar or 0, size(match[1]) or 0))
    return function


def _is_gone(text: str) -> bool:
    return bool(_GONE.search(text))


def _may_sleep(function: _Function) -> bool:
    """Whether a card that cannot be read may be a laptop's, which is switched off when idle."""
    return function.gone and bool(_MOBILE.search(function.title))


def _way(function: _Function, bridges: Mapping[str, _Function]) -> tuple[str, ...]:
    """The root complex and the bridges down to a card; empty where the first is not in the text."""
    above = _above(function, bridges)
    if not above or not _ROOT_PORT.search(above[-1].title):
        return ()
    return (above[-1].slot.rsplit(":", 1)[0], *(bridge.slot for bridge in reversed(above)))


def _hangs_off_chipset(above: Sequence[_Function]) -> bool:
    return any(_CHIPSET.search(bridge.title) for bridge in above) or bool(
        above
        and "Intel" in above[-1].title
        and pci_names.intel_chipset_port(above[-1].slot.partition(":")[2])
    )


def _card(function: _Function, bridges: Mapping[str, _Function]) -> Card:
    above = _above(function, bridges)
    outer = function
    if above and _ON_CARD.search(above[0].title):
        # The upper port of the card's own switch is where the card meets the slot.
        outer, above = above[min(1, len(above) - 1)], above[2:]
    elif _shows_inner_link(function):
        # So do Intel's: of what is inside the card the card's own end says 2.5 GT/s x1, always.
        switch = len(above) > 1 and "Intel" in above[0].title
        outer, above = (above[1], above[2:]) if switch else (_Function(function.slot), above)
    slot = next(iter(above), None)
    most, now = outer.most or PcieReading(), outer.now or PcieReading()
    maker, inside = pci_names.vendor(function.title), pci_names.integrated(function.title)
    facts = CardFacts(
        vendor=maker,
        bar1_total=function.bar,
        driver_in_use=function.driver,
        link_errors=None if function.faults is None else int(function.faults),
        pcie_card=outer.most,
        pcie_slot=slot.most if slot else None,
        numa=function.numa,
        lost=function.gone and not _may_sleep(function),
        start_fault="no-address" if function.no_address and not function.gone else None,
        integrated=True if inside else None,
        chipset=True if _hangs_off_chipset(above) and not inside else None,
        external=True if any(_EXTERNAL.search(bridge.title) for bridge in above) else None,
    )
    return Card(
        slot=function.slot,
        name=pci_names.marketing_name(function.title),
        pcie=Pcie(now.generation, now.width, most.generation, most.width),
        facts=facts,
    )


def _shows_inner_link(function: _Function) -> bool:
    return (
        function.most == PcieReading(1, 1)
        and pci_names.vendor(function.title) == "intel"
        and not pci_names.integrated(function.title)
    )


def _above(function: _Function, bridges: Mapping[str, _Function]) -> list[_Function]:
    """The bridges over a function, the nearest first."""
    found: list[_Function] = []
    current: _Function | None = function
    while current and len(found) < 16:
        current = bridges.get(current.slot.rsplit(":", 1)[0])
        if current and current not in found:
            found.append(current)
        else:
            break
    return found


KIND = Kind("lspci", _starts, _continues, parse)
