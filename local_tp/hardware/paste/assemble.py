"""A `Rig` out of sightings.

Knows nothing of text. A link is there for each pair that something was told of; it is never
"verified", because no text can show that data arrived. What no text tells of a card that the
catalog has is filled in from there, as for a machine that was probed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import Device, DeviceKind, Link, Rig
from local_tp.facts import Collective, HostFacts, PcieReading, Vendor
from local_tp.hardware.catalog import find, with_catalog
from local_tp.hardware.devices import RESERVE, RESERVE_WITH_DISPLAY, in_slot_order, with_hidden
from local_tp.hardware.paste import mig, pci_names, pci_ways
from local_tp.hardware.paste.merge import Known, Merger
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Pair, Sighting, overlay

MIB = 1024**2
_MOBILE = re.compile(r"Laptop GPU|Max-Q|Mobile")
_MUCH = 0.1  # of a card's memory
BUSY = 90  # percent: a card that is in use so much has its link at full speed
_ASLEEP = frozenset(f"P{number}" for number in range(6, 16))
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
    for told in sightings:
        sighting = _limited(told)
        if sighting is not told:
            unread.append(f"{told.source}: {len(told.cards)} cards: only {MOST_CARDS} were used")
        if len(merger.cards) + len(sighting.cards) > 2 * MOST_CARDS:
            unread.append(f"{told.source}: not used: the texts tell of too many different cards")
            continue
        places = merger.add(sighting)
        if places is None:
            unread.append(
                f"{sighting.source}: its numbers could not be matched to cards of different "
                "models: add its list of devices with their bus ids"
            )
        base = _machine(base, sighting)
        collectives += [(timed, places or ()) for timed in sighting.collectives]
    _add_ways(merger, sightings)
    ids = _ids(merger.cards)
    devices: list[Device] = []
    for known, identity in zip(merger.cards, ids, strict=True):
        card = with_catalog(_device(known, identity, around, base))
        devices += [card, *map(with_catalog, mig.devices(card, known.card.slices))]
    host = _host(base.host, devices)
    if any(told.plugged for told in sightings):
        devices = _with_external(devices)
    devices = [with_hidden(device, host.wsl) for device in devices]
    unknown = [*base.unknown, *merger.unknown]
    unknown += [*_missing(devices), *_uncounted(merger.cards, ids, devices)]
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
        host=host,
        software=base.software,
        collectives=tuple(
            replace(told, devices=tuple(ids[place] for place in places))
            for told, places in collectives
        ),
    )
    return rig, tuple(unread)


def _limited(sighting: Sighting) -> Sighting:
    """The sighting, or its first cards where it has more than any machine."""
    if len(sighting.cards) <= MOST_CARDS:
        return sighting
    pairs = tuple(pair for pair in sighting.pairs if pair.b < MOST_CARDS)
    return replace(sighting, cards=sighting.cards[:MOST_CARDS], pairs=pairs, collectives=())


def _add_ways(merger: Merger, sightings: Sequence[Sighting]) -> None:
    """The paths that follow from bridges above the cards or from nodes, where none was told."""
    ways = {slot: way for sighting in reversed(sightings) for slot, way in sighting.ways}
    slots = [None if known.card.facts.integrated else known.card.slot for known in merger.cards]
    if ways and not any(known.card.slot in ways for known in merger.cards):
        merger.unknown.append(
            "which parts of the PCI tree are graphics cards: the output of `lspci -tv` has their "
            "names, that of nvidia-smi or rocm-smi their places"
        )
    nodes = [None if k.card.facts.integrated else k.card.facts.numa for k in merger.cards]
    for a, b, path in (*pci_ways.paths(slots, ways), *pci_ways.across_nodes(nodes)):
        told = merger.pairs.get((a, b), Pair(a, b))
        if told.facts.path is None:
            merger.pairs[a, b] = replace(told, facts=replace(told.facts, path=path))


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


def _device(known: Known, identity: str, around: str, machine: Sighting) -> Device:
    card = _measured(known.card, machine)
    vendor = card.facts.vendor or pci_names.vendor(card.name or "") or pci_names.vendor(around)
    name = card.name or f"{vendor.upper() if vendor else 'unknown'} card"
    display = card.display is not False
    card = _loaded(card)
    facts = replace(card.facts, vendor=vendor, index=known.numbers.get("driver"))
    if facts.integrated is None and vendor in ("amd", "intel") and pci_names.integrated(name):
        facts = replace(facts, integrated=True)
    if vendor == "nvidia" and facts.virtual is None and pci_names.virtual(name):
        facts = replace(facts, virtual=True)
    if card.slices:
        facts = replace(facts, mig=True)
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


def _loaded(card: Card) -> Card:
    """The card, with its link's state as that under load where it was busy when read."""
    facts, pcie = card.facts, card.pcie
    at_work = (facts.utilization or 0) >= BUSY and facts.performance_state not in _ASLEEP
    if not at_work or facts.pcie_loaded or pcie.generation is None:
        return card
    now = PcieReading(pcie.generation, pcie.width)
    return replace(card, facts=replace(facts, pcie_loaded=now))


def _measured(card: Card, machine: Sighting) -> Card:
    """The card with its memory: the PC's where it has none, and in use by the share that is.

    A share of memory that no text tells is one of what the model is sold with.
    """
    row = find(card.name) if card.name and card.total is None else None
    if card.facts.vendor == "nvidia" and (card.facts.integrated or (row and row.integrated)):
        facts = replace(card.facts, integrated=True)
        card = replace(card, total=machine.ram, free=machine.available_ram, facts=facts)
    total = card.total if card.total is not None else row.memory if row else None
    if total is None or card.facts.used is not None:
        return card
    if card.used_share is None:
        # Less than all being free may be what a driver keeps for itself: nobody's use.
        unused = 0 if card.free == total else None
        return replace(card, facts=replace(card.facts, used=unused))
    used = round(card.used_share * total)
    free = total - used if card.free is None and card.total is not None else card.free
    return replace(card, free=free, facts=replace(card.facts, used=used))


def _missing(devices: Sequence[Device]) -> list[str]:
    """What a plan needs and nothing told, a line each."""
    empty = [device for device in devices if not device.total and not device.facts.lost]
    shared = [d for d in empty if d.facts.integrated and d.kind == "cuda"]
    empty = [d for d in empty if not d.facts.integrated]
    lacking = {
        "name not in the text": [d for d in devices if d.name.endswith(" card")],
        "memory not in the text": empty,
        "memory not in the text: it is the PC's own, which `free -b` tells": shared,
        "PCI bus id not in the text": [
            d for d in devices if d.id.startswith("GPU") and not d.facts.slice_of
        ],
    }
    return [
        f"{', '.join(device.id for device in those)}: {what}"
        for what, those in lacking.items()
        if those
    ]


def _uncounted(cards: Sequence[Known], ids: Sequence[str], devices: Sequence[Device]) -> list[str]:
    """Much memory in use, of a total that neither a text nor the catalog tells."""
    used = {device.id: device.facts.used for device in devices}
    return [
        f"{identity}: {share:.0%} of its memory is in use, and how much it has is not in the "
        "text: `rocm-smi --showmeminfo vram` tells"
        for identity, known in zip(ids, cards, strict=True)
        if (share := known.card.used_share) is not None
        and share >= _MUCH
        and used[identity] is None
        and not known.card.facts.integrated
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


def _with_external(devices: list[Device]) -> list[Device]:
    """The cards of a laptop with something plugged in: one that no laptop has is outside."""
    built_in = {device.id for device in devices if _MOBILE.search(device.name)}
    others = [
        device
        for device in devices
        if device.id not in built_in and not device.facts.integrated and not device.facts.slice_of
    ]
    if not built_in or len(others) != 1 or others[0].facts.external is not None:
        return devices
    (card,) = others
    outside = replace(card, facts=replace(card.facts, external=True))
    return [outside if device is card else device for device in devices]


def _host(host: HostFacts, devices: Sequence[Device]) -> HostFacts:
    if host.laptop is None and any("Laptop GPU" in device.name for device in devices):
        host = replace(host, laptop=True)
    if host.virtual_machine is None and any(device.facts.virtual for device in devices):
        host = replace(host, virtual_machine="of an unknown kind")
    windows = any(device.facts.driver_model for device in devices)
    return replace(host, wsl=False) if windows and host.wsl is None else host
