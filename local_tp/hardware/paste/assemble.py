"""A `Rig` out of sightings.

Knows nothing of text. A link is there for each pair that something was told of; it is never
"verified", because no text can show that data arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import Device, DeviceKind, Link, Rig
from local_tp.facts import Collective, HostFacts, Vendor
from local_tp.hardware.devices import RESERVE, RESERVE_WITH_DISPLAY, in_slot_order
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.merge import Known, Merger
from local_tp.hardware.paste.sighting import MOST_CARDS, Pair, Sighting, overlay

MIB = 1024**2
_KINDS: dict[Vendor, DeviceKind] = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu"}


def assemble(sightings: Sequence[Sighting], around: str) -> tuple[Rig, tuple[str, ...]]:
    """The rig, and what of the sightings was not used, in words.

    `sightings` come in order of trust; `around` is text between them, which may say who made the
    cards where nothing else does.
    """
    merger = Merger()
    base = Sighting("everything")
    collectives: list[tuple[Collective, tuple[int, ...]]] = []
    unread: list[str] = []
    for sighting in sightings:
        if len(sighting.cards) > MOST_CARDS or len(merger.cards) > MOST_CARDS:
            unread.append(f"{sighting.source}: more than {MOST_CARDS} cards: not used")
            continue
        places = merger.add(sighting)
        if places is None:
            unread.append(
                f"{sighting.source}: its numbers could not be matched to cards of different "
                "models: add its list of devices with their bus ids"
            )
        base = _machine(base, sighting)
        collectives += [(told, places or ()) for told in sighting.collectives]
    ids = _ids(merger.cards)
    devices = [
        _device(known, identity, around) for known, identity in zip(merger.cards, ids, strict=True)
    ]
    unknown = [*base.unknown, *merger.unknown]
    unknown += _missing(devices)
    links = [_link(pair, ids) for pair in merger.pairs.values()]
    rig = Rig(
        devices=tuple(sorted(devices, key=in_slot_order)),
        links=tuple(sorted(links, key=lambda link: (link.a, link.b))),
        ram=base.ram or 0,
        available_ram=base.available_ram or 0,
        cores=base.cores or 1,
        os=base.os or "",
        driver=base.software.driver,
        unknown=tuple(dict.fromkeys(unknown)),
        host=_host(base.host, devices),
        software=base.software,
        collectives=tuple(
            replace(told, devices=tuple(ids[place] for place in places))
            for told, places in collectives
        ),
    )
    return rig, tuple(unread)


def _machine(first: Sighting, second: Sighting) -> Sighting:
    """What both tell of the machine around the cards."""
    return Sighting(
        "everything",
        ram=first.ram or second.ram,
        available_ram=first.available_ram or second.available_ram,
        cores=first.cores or second.cores,
        os=first.os or second.os,
        host=overlay(first.host, second.host),
        software=overlay(first.software, second.software),
        unknown=(*first.unknown, *second.unknown),
    )


def _ids(cards: Sequence[Known]) -> list[str]:
    """A bus id for each card, or a name that no other has."""
    ids: list[str] = []
    for place, known in enumerate(cards):
        card = known.card
        number = known.numbers.get("driver", known.numbers.get("cuda", place))
        identity = card.slot or (
            f"GPU{number}" if card.bus is None else f"0000:{card.bus:02x}:00.0"
        )
        while identity in ids:
            number += len(cards)
            identity = f"GPU{number}"
        ids.append(identity)
    return ids


def _device(known: Known, identity: str, around: str) -> Device:
    card = known.card
    vendor = card.facts.vendor or pci_names.vendor(card.name or "") or pci_names.vendor(around)
    name = card.name or f"{(vendor or 'unknown').upper()} card"
    display = card.display is not False
    facts = replace(card.facts, vendor=vendor, index=known.numbers.get("driver"))
    if facts.integrated is None and vendor in ("amd", "intel") and pci_names.integrated(name):
        facts = replace(facts, integrated=True)
    return Device(
        id=identity,
        kind=_KINDS.get(vendor, "cuda") if vendor else "cuda",
        name=name,
        total=card.total or 0,
        free=card.free if card.free is not None else card.total or 0,
        reserve=RESERVE_WITH_DISPLAY if display else RESERVE,
        bandwidth=card.bandwidth,
        capability=card.capability,
        pcie=card.pcie if card.pcie != type(card.pcie)() else None,
        display=card.display,
        uuid=card.uuid,
        facts=facts,
    )


def _missing(devices: Sequence[Device]) -> list[str]:
    """What a plan needs and nothing told, a line each."""
    lacking = {
        "name": [device for device in devices if device.name.endswith(" card")],
        "memory": [device for device in devices if not device.total and not device.facts.lost],
        "PCI bus id": [device for device in devices if device.id.startswith("GPU")],
    }
    return [
        f"{', '.join(device.id for device in those)}: {what} not in the text"
        for what, those in lacking.items()
        if those
    ]


def _link(pair: Pair, ids: Sequence[str]) -> Link:
    a, b, facts = ids[pair.a], ids[pair.b], pair.facts
    if a > b:
        a, b, facts = b, a, replace(facts, forth=facts.back, back=facts.forth)
    ways = [rate for rate in (facts.forth, facts.back) if rate is not None]
    bandwidth = min(ways) if ways else facts.both / 2 if facts.both is not None else None
    return Link(
        a,
        b,
        pair.kind or "host",
        bandwidth=bandwidth,
        latency=pair.latency,
        measured=bandwidth is not None or pair.latency is not None,
        facts=facts,
    )


def _host(host: HostFacts, devices: Sequence[Device]) -> HostFacts:
    if host.laptop is None and any("Laptop GPU" in device.name for device in devices):
        host = replace(host, laptop=True)
    windows = any(device.facts.driver_model for device in devices)
    return replace(host, wsl=False) if windows and host.wsl is None else host
