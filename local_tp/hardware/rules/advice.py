"""What the rules of diagnosis share: a finding's words with blanks, and views of a rig.

Knows no rule. A rule supplies values, an `Advice` supplies every word that a person reads, so
thresholds and texts stay in data at the top of each rules module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from local_tp.core import Device, Rig
from local_tp.facts import Finding, P2pStatus, Severity
from local_tp.hardware.catalog import Gpu, find

MIB = 1024**2
GIB = 1024**3
# What a driver says against peer-to-peer of a pair; "unknown" is no word against it.
REFUSED: frozenset[P2pStatus] = frozenset(
    {"chipset", "gpu", "topology", "disabled", "not-supported"}
)
# GeForce numbers end in 50 to 90; workstation cards (RTX 4000, RTX 6000 Ada) in 00.
_CONSUMER = re.compile(r"geforce|\b[rg]tx ?\d{1,2}[5-9]0\b", re.IGNORECASE)
_MAKER = re.compile(r"^(NVIDIA|AMD|Intel(\(R\))?) (?!card$)")


@dataclass(frozen=True, slots=True)
class Advice:
    """The words of one kind of finding. Each text is a format string over the rule's values."""

    id: str
    severity: Severity
    evidence: str
    cost: str
    remedy: str

    def finding(
        self, devices: Iterable[Device | str], severity: Severity | None = None, **values: object
    ) -> Finding:
        """The finding for `devices`, with `values` in the blanks."""
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            devices=tuple(d.id if isinstance(d, Device) else d for d in devices),
            evidence=self.evidence.format(**values),
            cost=self.cost.format(**values),
            remedy=self.remedy.format(**values),
        )


def answering(rig: Rig) -> list[Device]:
    """The graphics cards that still answer, integrated ones among them."""
    return [d for d in rig.devices if d.kind != "cpu" and not d.facts.lost]


def discrete(rig: Rig) -> list[Device]:
    """The whole cards with memory of their own that still answer."""
    return [d for d in answering(rig) if not d.facts.integrated and not d.facts.slice_of]


def nvidia(rig: Rig) -> list[Device]:
    """NVIDIA's whole cards that still answer, those that share the PC's memory among them."""
    return [d for d in answering(rig) if d.kind == "cuda" and not d.facts.slice_of]


def slices(card: Device, rig: Rig) -> list[Device]:
    """The MIG slices that a card is cut into, as far as they were listed."""
    return [d for d in rig.devices if d.facts.slice_of == card.id]


def model_name(device: Device) -> str:
    """A card's name without its maker."""
    return _MAKER.sub("", device.name)


def label(device: Device) -> str:
    """How evidence names a device: what it is, and where."""
    return model_name(device) if device.kind == "cpu" else f"{model_name(device)} at {device.id}"


def listed(devices: Sequence[Device]) -> str:
    """Several devices as evidence names them, those of one model under one name."""
    alike: dict[str, list[Device]] = {}
    for device in devices:
        alike.setdefault(model_name(device), []).append(device)
    return ", ".join(
        f"{len(same)} x {name} ({', '.join(d.id for d in same)})"
        if len(same) > 1
        else label(same[0])
        for name, same in alike.items()
    )


def sold_as(card: Device) -> Gpu | None:
    """The card's row in the catalog."""
    return find(card.name, card.total or None)


def capability(card: Device) -> tuple[int, int] | None:
    """CUDA's compute capability, as read or else as the catalog has it."""
    if card.capability:
        return card.capability
    row = sold_as(card)
    return row.capability if row else None


def is_consumer(device: Device) -> bool:
    """Whether the name is that of a GeForce, whose driver withholds some functions."""
    return _CONSUMER.search(device.name) is not None


def is_laptop(device: Device, rig: Rig) -> bool:
    """Whether the card is soldered into a laptop; an external card is not."""
    inside = rig.host.laptop is True and device.facts.external is not True
    return (
        inside or re.search(r"laptop|mobile|max-q design", device.name, re.IGNORECASE) is not None
    )


def is_guest(rig: Rig) -> bool:
    """Whether this system runs on a hypervisor, as far as is known."""
    return rig.host.virtual_machine is not None


def under_wddm(device: Device, rig: Rig) -> bool:
    """Whether Windows' display driver model runs the card; GeForce cards have no other there."""
    if (model := device.facts.driver_model) is not None:
        return model == "WDDM"
    return device.kind == "cuda" and "windows" in rig.os.lower() and is_consumer(device)


def is_busy(device: Device) -> bool:
    """Whether the card was working when it was read: at full clocks, as far as that is known."""
    facts = device.facts
    state = facts.performance_state
    return (facts.utilization or 0) >= 50 and state in (None, "P0", "P1", "P2", "P3")


def gib(count: float) -> str:
    """Bytes as a person reads them: MiB below one GiB."""
    if abs(count) < GIB:
        return f"{count / MIB:,.0f} MiB"
    return f"{count / GIB:.1f} GiB"


def rate(count: float) -> str:
    """Bytes a second, decimal as link and memory speeds are stated."""
    return f"{count / 1e9:.1f} GB/s" if count >= 1e9 else f"{count / 1e6:.0f} MB/s"


def duration(seconds: float) -> str:
    """A time with the unit that keeps it readable."""
    if seconds >= 100:
        return f"{seconds / 60:.0f} min"
    if seconds >= 1:
        return f"{seconds:.0f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.1f} µs"
