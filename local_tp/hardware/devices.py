"""How people name devices: `cpu`, `cuda:0`, a PCI bus id, a part of a card's name.

Knows nothing of how devices were found. Cards are counted in PCI bus order, the order of the
slots, because drivers and CUDA each count in one of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import Device, Link, Rig
from local_tp.errors import DeviceError

_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)

# Bytes that a process takes on a card before its own data, where nobody measured such a card.
CONTEXT = 457 * 1024 * 1024
SLICE = "/mig-"  # between a card's bus id and the number of a MIG slice in a slice's id
RESERVE = 512 * 1024 * 1024  # bytes left free on a card
RESERVE_WITH_DISPLAY = 1024 * 1024 * 1024  # where a desktop grows beside us
# What Windows keeps of a card and WSL2 does not show: 1.31 GiB were seen on an RTX 5090 Laptop.
WSL_HIDDEN = 1342 * 1024 * 1024


def bus_id(text: str) -> str | None:
    """A PCI bus id in the one form used everywhere, `0000:01:00.0`; None if it is not one."""
    if not (match := _BUS_ID.fullmatch(text.strip())):
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def with_hidden(device: Device, wsl: bool | None) -> Device:
    """The device with room kept for what its system uses of it and does not show."""
    if not wsl or device.kind == "cpu":
        return device
    return replace(device, reserve=min(device.total, device.reserve + WSL_HIDDEN))


def short_names(rig: Rig) -> dict[str, Device]:
    """The rig's devices by the short names people use: `cuda:0`, `cuda:1`, …, `cpu`."""
    named: dict[str, Device] = {}
    count: dict[str, int] = {}
    for device in sorted(rig.devices, key=in_slot_order):
        index = count.get(device.kind, 0)
        count[device.kind] = index + 1
        named[device.id if device.kind == "cpu" else f"{device.kind}:{index}"] = device
    return named


def resolve_devices(names: Sequence[str], rig: Rig) -> tuple[Device, ...]:
    """The devices that `names` stand for, in that order; one may be named several times.

    Raises `DeviceError` for a name that fits no device or more than one.
    """
    return tuple(_resolve(name, rig) for name in names)


def default_devices(rig: Rig) -> tuple[str, ...]:
    """The ids to use when none were asked for.

    All CUDA cards that `why_left_out` has nothing against; without any, two ranks on the
    processor if it has two cores.
    """
    usable = [d for d in sorted(rig.devices, key=in_slot_order) if why_left_out(d) is None]
    if cards := tuple(d.id for d in usable if d.kind == "cuda"):
        return cards
    return ("cpu", "cpu") if rig.cores >= 2 else ("cpu",)


def why_left_out(device: Device) -> str | None:
    """Why a plan does not use this device unless it is named, or None where it does."""
    facts = device.facts
    if device.kind == "cpu":
        return None
    if facts.lost:
        return "it is lost: the driver no longer reaches it"
    if facts.compute_mode == "Prohibited":
        return "its compute mode forbids programs to use it: `nvidia-smi -c 0` allows them"
    if facts.mig:
        return (
            "MIG is on, so that programs see its slices only: use those, or give the whole card "
            "back with `nvidia-smi -mig 0`"
        )
    if device.kind == "cuda":  # shared memory included: it is the only kind that such a PC has
        return None
    if facts.integrated:
        return "it is part of the processor and has no memory but the PC's own"
    return "workers run on NVIDIA cards and on the processor only"


def bridge_name(link: Link, rig: Rig) -> str:
    """What the makers of two cards call the direct way between them."""
    kinds = {device.kind for device in rig.devices if device.id in (link.a, link.b)}
    return "XGMI" if "rocm" in kinds else "NVLink"


def in_slot_order(device: Device) -> tuple[bool, int, str]:
    """A sort key: cards by PCI bus id, domains as the numbers they are, the processor last.

    A card's slices follow it.
    """
    slot = bus_id(device.id.partition(SLICE)[0])
    domain = int(slot.partition(":")[0], 16) if slot else 0
    return device.kind == "cpu", domain, device.id


def _resolve(name: str, rig: Rig) -> Device:
    wanted = name.strip().lower()
    named = short_names(rig)
    by_id = {device.id: device for device in rig.devices}
    for key in (wanted, f"cuda:{wanted}"):
        if key in named:
            return named[key]
    card, slash, number = wanted.partition(SLICE)
    if (slot := f"{bus_id(card) or card}{slash}{number}") in by_id:
        return by_id[slot]
    fitting = _by_name(wanted, named)
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if fitting:
        raise DeviceError(f"{name!r} fits {' and '.join(fitting)}: name one of them")
    have = ", ".join(f"{short} ({device.name})" for short, device in named.items())
    raise DeviceError(
        f"there is no device {name!r}: this machine has {have or 'none'}; name a card by its "
        "number as in cuda:0, by its PCI bus id or by a part of its name"
    )


def _by_name(wanted: str, named: dict[str, Device]) -> dict[str, Device]:
    """The cards whose name has `wanted` in it, or is exactly it; case and spaces do not count."""
    part = wanted.replace(" ", "")
    if not part or (part.isdecimal() and len(part) < 3):  # "5" is a card's number, no RTX 5090
        return {}
    cards = {
        short: (device.name.lower().replace(" ", ""), device)
        for short, device in named.items()
        if device.kind != "cpu"
    }
    exact = {short: device for short, (full, device) in cards.items() if full == part}
    return exact or {short: device for short, (full, device) in cards.items() if part in full}
