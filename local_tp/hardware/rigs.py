"""Machines from files, so that plans can be made without owning them: `presets/rigs/*.toml`.

Knows nothing of the machine it runs on. A file names cards, slots and links; every figure of a
card comes from the catalog. Nothing of such a rig was measured, and none of it says so.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal, NoReturn

from local_tp import settings
from local_tp.codec import decode
from local_tp.core import Device, DeviceKind, Link, LinkKind, Pcie, Rig
from local_tp.errors import InputError
from local_tp.facts import CardFacts, HostFacts, PairFacts, PcieReading
from local_tp.facts import Path as Ancestor
from local_tp.hardware.catalog import GIB, Gpu, find, pcie_reading
from local_tp.hardware.devices import CONTEXT, RESERVE, RESERVE_WITH_DISPLAY, bus_id
from local_tp.hardware.report.json import read_report

LARGEST = 4 * 1024**2  # bytes of a file that is read at all
HIDDEN = 0.02  # of a card's memory goes to its driver: 1.6 to 2.6% seen on RTX 40 and 50
LANE = 0.985e9 / 8  # bytes a second one way of one lane, PCIe 3.0's divided by 2^3
DIRECT = 0.82  # of the lanes' rate between two cards, peer to peer: 26 of 31.5 GB/s
STAGED = 0.60  # of the lanes' rate through the PC's memory: 18 to 20 of 31.5 GB/s
KINDS: dict[str, DeviceKind] = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu"}


@dataclass(frozen=True, slots=True)
class _Processor:
    name: str
    cores: int
    sockets: int = 1
    architecture: Literal["x86_64", "aarch64"] = "x86_64"


@dataclass(frozen=True, slots=True)
class _Memory:
    """`size` in GiB; `speed` in mega-transfers a second; a channel is 8 bytes wide."""

    size: float
    channels: int
    speed: int


@dataclass(frozen=True, slots=True)
class _Card:
    """`memory` in GiB where it is not as sold, and of the PC's where the card has none."""

    model: str
    slot: str | None = None
    count: int = 1
    memory: float | None = None
    bus: str | None = None
    display: bool = False
    external: bool = False


@dataclass(frozen=True, slots=True)
class _Link:
    """`between` counts cards from 0 in the file's order."""

    between: tuple[int, int]
    kind: LinkKind
    path: Ancestor | None = None
    verified: bool = False


@dataclass(frozen=True, slots=True)
class _Machine:
    title: str
    processor: _Processor
    memory: _Memory
    os: str = "Linux"
    laptop: bool = False
    path: Ancestor = "PHB"
    card: tuple[_Card, ...] = ()
    link: tuple[_Link, ...] = ()


@dataclass(frozen=True, slots=True)
class _Placed:
    """A card in its slot, with its row of the catalog."""

    device: Device
    gpu: Gpu
    lanes: float | None  # bytes a second one way, at most


def rig_names() -> tuple[str, ...]:
    """The machines that come along, by name."""
    return tuple(sorted(path.stem for path in (settings.presets() / "rigs").glob("*.toml")))


def load_rig(name_or_path: str | Path) -> Rig:
    """A machine by its preset's name, from a TOML file of the same form, or from our own JSON.

    The JSON is a report that holds a machine under `rig`, or that machine alone. Raises
    `InputError`, one line with file, table and key; for an unknown name it lists those there are.
    """
    text = str(name_or_path)
    if text in rig_names():
        return _from_toml(settings.presets() / "rigs" / f"{text}.toml")
    path = Path(name_or_path)
    if path.suffix.lower() not in (".toml", ".json") or "\0" in text:
        raise InputError(
            f"there is no machine {text!r}: name a .toml or .json file or one of "
            f"{', '.join(rig_names())}"
        )
    return _from_toml(path) if path.suffix.lower() == ".toml" else _from_json(path)


def _from_toml(path: Path) -> Rig:
    try:
        return _rig(decode(_Machine, tomllib.loads(_read(path).decode())))
    except UnicodeError as error:
        raise InputError(f"{path.name} is not text in UTF-8: name another file") from error
    except (ValueError, RecursionError, InputError) as error:
        raise InputError(f"{path.name}: {error}") from error


def _from_json(path: Path) -> Rig:
    data = _read(path)
    if report := read_report(data, path.name):
        return report.rig
    try:
        return decode(Rig, json.loads(data, parse_constant=_refuse))
    except UnicodeError as error:
        raise InputError(f"{path.name} is not text in UTF-8: name another file") from error
    except (ValueError, RecursionError, InputError) as error:
        raise InputError(f"{path.name}: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number: expected one")


def _read(path: Path) -> bytes:
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise InputError(f"{path.name}: {size:,} bytes are no description of a machine")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}") from error


def _rig(machine: _Machine) -> Rig:
    processor, memory = machine.processor, machine.memory
    _at_least("processor.cores", processor.cores, 1)
    _at_least("processor.sockets", processor.sockets, 1)
    _at_least("memory.size", memory.size, 1)
    _at_least("memory.channels", memory.channels, 1)
    _at_least("memory.speed", memory.speed, 1)
    placed = _place(machine)
    cpu = _cpu(processor, memory)
    return Rig(
        devices=(*(card.device for card in placed), cpu),
        links=_links(machine, placed),
        ram=cpu.total,
        available_ram=cpu.free,
        cores=processor.cores,
        os=machine.os,
        unknown=(f"{machine.title}: described in a file, nothing was measured",),
        host=HostFacts(
            processor=processor.name,
            architecture=processor.architecture,
            sockets=processor.sockets,
            physical_cores=processor.cores,
            memory_channels=memory.channels,
            memory_speed=memory.speed,
            laptop=machine.laptop,
        ),
    )


def _cpu(processor: _Processor, memory: _Memory) -> Device:
    total = round(memory.size * GIB)
    return Device(
        id="cpu",
        kind="cpu",
        name=processor.name,
        total=total,
        free=total - total // 10,  # a desktop and its programs have the rest
        reserve=min(GIB, total // 10),
        bandwidth=memory.channels * 8.0 * memory.speed * 1e6,
        ordered_stores=processor.architecture == "x86_64",
        facts=CardFacts(cores=processor.cores),
    )


def _place(machine: _Machine) -> list[_Placed]:
    placed: list[_Placed] = []
    for number, card in enumerate(machine.card):
        place = f"card[{number}]"
        _at_least(f"{place}.count", card.count, 1)
        if card.count > 32:
            raise InputError(f"{place}.count: expected at most 32, not {card.count}")
        if card.bus is not None and card.count > 1:
            raise InputError(f"{place}.bus: one address for {card.count} cards: write each alone")
        for _ in range(card.count):
            slot = card.bus or f"0000:{len(placed) + 1:02x}:00.0"
            placed.append(_card(card, place, slot))
    ids = [card.device.id for card in placed]
    if repeated := next((slot for slot in ids if ids.count(slot) > 1), None):
        raise InputError(f"card: bus: {repeated} stands there twice: give each card its own")
    return placed


def _card(card: _Card, place: str, slot_id: str) -> _Placed:
    if (address := bus_id(slot_id)) is None:
        raise InputError(f'{place}.bus: {slot_id!r}: expected an address like "0000:01:00.0"')
    if card.memory is not None:
        _at_least(f"{place}.memory", card.memory, 0.25)
    wanted = None if card.memory is None else round(card.memory * GIB)
    if (gpu := find(card.model, wanted)) is None:
        raise InputError(f"{place}.model: {card.model!r} is not in gpus.toml: check its name")
    total = wanted or gpu.memory
    if total is None:
        raise InputError(f"{place}.memory: missing: {gpu.name} has none of its own or several")
    slot = pcie_reading(card.slot, f"{place}.slot") if card.slot else None
    loaded = _slower(gpu.pcie, slot)
    hidden = round(total * HIDDEN)
    device = Device(
        id=address,
        kind=KINDS[gpu.vendor],
        name=card.model,
        total=total,
        free=total - hidden,
        reserve=RESERVE_WITH_DISPLAY if card.display else RESERVE,
        bandwidth=gpu.bandwidth,
        flops=gpu.flops,
        capability=gpu.capability,
        pcie=None if loaded is None else _pcie(gpu.pcie, loaded),
        display=card.display,
        context=gpu.context or CONTEXT,
        facts=CardFacts(
            vendor=gpu.vendor,
            architecture=gpu.target if gpu.vendor == "amd" else gpu.architecture,
            hidden=hidden,
            pcie_loaded=loaded,
            pcie_card=gpu.pcie,
            pcie_slot=slot,
            power_default=gpu.tdp,
            integrated=gpu.integrated,
            external=card.external,
        ),
    )
    return _Placed(device, gpu, None if loaded is None else _lane_rate(loaded))


def _slower(card: PcieReading | None, slot: PcieReading | None) -> PcieReading | None:
    """What two ends agree on; None where one of them is not known."""
    if card is None or slot is None:
        return None
    return PcieReading(
        min(card.generation or 1, slot.generation or 1), min(card.width or 1, slot.width or 1)
    )


def _pcie(card: PcieReading | None, loaded: PcieReading) -> Pcie:
    """As a driver says it: the slot limits the generation at most, and not the lanes."""
    most = card.width if card else loaded.width
    return Pcie(loaded.generation, loaded.width, loaded.generation, most)


def _lane_rate(reading: PcieReading) -> float:
    return (reading.width or 1) * LANE * 2.0 ** (reading.generation or 1)


def _links(machine: _Machine, placed: Sequence[_Placed]) -> tuple[Link, ...]:
    """One link for each pair of cards; what the file does not state goes through memory."""
    stated: dict[tuple[int, int], _Link] = {}
    for number, link in enumerate(machine.link):
        place = f"link[{number}].between"
        low, high = sorted(link.between)
        if not 0 <= low < high < len(placed):
            raise InputError(f"{place}: expected two cards of 0 to {len(placed) - 1}")
        if (low, high) in stated:
            raise InputError(f"{place}: cards {low} and {high} stand there twice")
        if link.kind == "nvlink" and not (placed[low].gpu.nvlink and placed[high].gpu.nvlink):
            raise InputError(f"link[{number}].kind: these cards have no NVLink")
        stated[low, high] = link
    default = _Link((0, 0), "host")
    return tuple(
        _link(stated.get(pair, default), placed[pair[0]], placed[pair[1]], machine.path)
        for pair in combinations(range(len(placed)), 2)
    )


def _link(stated: _Link, a: _Placed, b: _Placed, path: Ancestor) -> Link:
    nvlink = stated.kind == "nvlink"
    lanes = None if a.lanes is None or b.lanes is None else min(a.lanes, b.lanes)
    if nvlink:  # the catalog counts both directions
        bandwidth: float | None = min(a.gpu.nvlink or 0.0, b.gpu.nvlink or 0.0) / 2
    else:
        share = DIRECT if stated.kind == "p2p" else STAGED
        bandwidth = None if lanes is None else lanes * share
    return Link(
        a=a.device.id,
        b=b.device.id,
        kind=stated.kind,
        bandwidth=bandwidth,
        verified=stated.verified,
        facts=PairFacts(
            path=stated.path or ("nvlink" if nvlink else path),
            nvlinks=None if nvlink or a.gpu.vendor != "nvidia" else 0,
        ),
    )


def _at_least(place: str, value: float, least: float) -> None:
    if not least <= value < 1e6:
        raise InputError(f"{place}: expected {least:g} or more, and less than a million")
