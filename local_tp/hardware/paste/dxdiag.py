"""`dxdiag` of Windows: its cards with their own memory, the processor and the PC's memory.

Knows nothing of buses or links. It lists a card once for each monitor, so that cards of one model
cannot be told from monitors of one card: they count once, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from local_tp.facts import CardFacts, HostFacts, SoftwareFacts
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known, size, whole

_ENTRY = re.compile(r"\s*([A-Z][\w ./()#-]{1,48}?)\s*:(?:\s(.{0,300}))?\Z")
_FIRST = re.compile(r"\s*(?:Time of this report|Card name|DxDiag Version):\s")
_RULE = re.compile(r"-{4,40}\s*\Z")
_TITLE = re.compile(r"[A-Z][A-Za-z &/()-]{3,60}\Z")
_NAMES = re.compile(
    r"(?:Time of this report|Machine name|Operating System|Processor|(?:Available OS )?Memory"
    r"|Page File|Card name|Manufacturer|Chip type|DAC type|Device (?:Type|Key)"
    r"|(?:Display|Dedicated|Shared) Memory|Current Mode|Monitor \w{2,5}|Driver \w{4,7})\s*:"
)
_PROCESSOR = re.compile(r"(.{1,100}?)\s*\((\d{1,4}) CPUs\)")
_DEVICE = re.compile(r"DEV_([0-9A-Fa-f]{4})")


def _starts(line: str) -> bool:
    return bool(_FIRST.match(line))


def _continues(line: str) -> bool:
    # Other tools have entries too, but not set in from the left, or not by these names.
    own = line[:1].isspace() or bool(_NAMES.match(line))
    return bool(_RULE.match(line) or _TITLE.match(line) or (own and _ENTRY.match(line)))


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards, in the order of their first monitors, and the machine around them."""
    machine: dict[str, str] = {}
    listed: list[dict[str, str]] = []
    for line in lines:
        if not (match := _ENTRY.match(line.text)):
            continue
        if match[1] == "Card name":
            listed.append({})
        elif match[1] == "Description":  # of a sound device, after all cards
            break
        (listed[-1] if listed else machine).setdefault(match[1], (match[2] or "").strip())
    models = {(told.get("Card name"), told.get("Device Key")): told for told in reversed(listed)}
    cards = [told for told in reversed(models.values()) if known(told.get("Card name"))]
    processor = _PROCESSOR.match(machine.get("Processor", ""))
    system = known(machine.get("Operating System"))
    ram = size(machine.get("Available OS Memory") or machine.get("Memory"))
    return Sighting(
        "dxdiag",
        cards=tuple(map(_card, cards[: MOST_CARDS + 1])),
        ram=ram,
        os=system.partition(" (")[0] if system else None,
        host=HostFacts(
            processor=processor[1].strip() if processor else None,
            logical_cores=int(processor[2]) if processor else None,
        ),
        software=SoftwareFacts(driver=_driver(cards)),
        unknown=(
            "dxdiag lists a card once for each monitor: cards of one model were counted once, and "
            "`nvidia-smi` tells how many there are",
        )
        if len(cards) < len(listed)
        else (),
    )


def _card(told: Mapping[str, str]) -> Card:
    name = known(told.get("Card name")) or ""
    device = _DEVICE.search(told.get("Device Key", ""))
    inside = pci_names.integrated(name) or bool(device and pci_names.integrated(device[1].lower()))
    maker = pci_names.vendor(name)
    display = "WDDM" in told.get("Driver Model", "") and maker == "nvidia"
    return Card(
        name=name,
        total=None if inside else size(told.get("Dedicated Memory")) or None,
        facts=CardFacts(
            vendor=maker,
            integrated=True if inside else None,
            driver_model="WDDM" if display else None,
        ),
    )


def _driver(cards: Sequence[Mapping[str, str]]) -> str | None:
    """NVIDIA's driver by its own number, the last five digits of Windows': 581.57 of ….15.8157."""
    for told in cards:
        if pci_names.vendor(told.get("Card name", "")) != "nvidia":
            continue
        parts = told.get("Driver Version", "").split(".")
        digits = "".join(parts[2:])
        if len(parts) == 4 and len(digits) >= 5 and whole(digits) is not None:
            return f"{digits[-5:-2]}.{digits[-2:]}"
    return None


KIND = Kind("dxdiag", _starts, _continues, parse)
