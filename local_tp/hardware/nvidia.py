"""NVIDIA cards as the driver's management library (NVML) tells of them.

Knows nothing of CUDA: reading makes no context and takes no graphics memory. A value that cannot
be read becomes a line of `unknown`. A card that is lost, or whose place or memory cannot be read,
is named there and left out: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from local_tp.core import Device, Link, LinkKind, Pcie
from local_tp.hardware.devices import bus_id, in_slot_order

T = TypeVar("T")

MIB = 1024**2
# Kept back on each card for the driver and for what other programs come to need.
RESERVE = 512 * MIB
RESERVE_WITH_DISPLAY = 1024 * MIB
_GONE = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired)


@dataclass(frozen=True, slots=True)
class Nvidia:
    """What NVML told: cards in PCI bus order, a link for each pair of them."""

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    driver: str | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Card:
    device: Device
    peers: frozenset[str]  # PCI bus ids at the other ends of its active NVLinks


@dataclass(slots=True)
class _Reader:
    """Asks NVML, and keeps a line for each value that it could not give."""

    unknown: list[str] = field(default_factory=list)

    def read(self, what: str, call: Callable[..., T], *arguments: object) -> T | None:
        """The call's answer, or None. A card's loss is raised: it ends the card's reading."""
        try:
            return call(*arguments)
        except _GONE:
            raise
        except (pynvml.NVMLError, UnicodeDecodeError) as error:
            self.unknown.append(f"{what}: {error}")
            return None


def read_nvidia(root: Path = Path("/")) -> Nvidia:
    """The machine's NVIDIA cards. `root` is where `/proc` is found."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        if missing and not (root / "proc/driver/nvidia").exists():
            return Nvidia()  # no driver, hence no card that could be used
        return Nvidia(unknown=(f"NVIDIA cards: {_why(error)}",))
    reader = _Reader()
    driver = reader.read("NVIDIA driver version", pynvml.nvmlSystemGetDriverVersion)
    count = reader.read("number of NVIDIA cards", pynvml.nvmlDeviceGetCount) or 0
    found = [card for index in range(count) if (card := _card(index, reader))]
    cards = sorted(found, key=lambda card: in_slot_order(card.device))
    links = _links(cards, reader)
    reader.read("NVML shutdown", pynvml.nvmlShutdown)
    return Nvidia(tuple(c.device for c in cards), links, driver, tuple(reader.unknown))


def _why(error: pynvml.NVMLError) -> str:
    """Why NVML did not start, and what a person can do about it."""
    reasons: dict[int, str] = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "the driver is loaded but its NVML library was not found: install the package that "
            "holds libnvidia-ml.so.1, or let the container see the driver's utilities"
        ),
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "the driver is installed but not loaded: restart the PC, or reinstall the driver"
        ),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the driver was updated while an older one is still loaded: restart the PC"
        ),
    }
    return reasons.get(error.value, f"the driver does not answer: {error}")


def _slot(pci_info: Callable[..., Any], *arguments: object) -> str | None:
    return bus_id(pci_info(*arguments).busId)


def _card(index: int, reader: _Reader) -> _Card | None:
    label = f"NVIDIA card {index} in the driver's order"
    try:
        handle = reader.read(label, pynvml.nvmlDeviceGetHandleByIndex, index)
        slot = handle and reader.read(label, _slot, pynvml.nvmlDeviceGetPciInfo, handle)
        if not slot:
            reader.unknown.append(f"{label}: left out, because its PCI bus id is not known")
            return None
        label = slot
        device = _device(slot, handle, reader)
        return _Card(device, _peers(slot, handle, reader)) if device else None
    except _GONE as error:
        reader.unknown.append(
            f"{label}: left out, because the driver says: {error}; restart the PC, and if that "
            "does not help check the card's seat, riser and power cables"
        )
        return None


def _device(slot: str, handle: Any, reader: _Reader) -> Device | None:
    def ask(what: str, name: str) -> Any:
        return reader.read(f"{slot}: {what}", getattr(pynvml, f"nvmlDeviceGet{name}"), handle)

    memory = ask("memory", "MemoryInfo")
    if memory is None:
        reader.unknown.append(f"{slot}: left out, because its memory is not known")
        return None
    attached = ask("display attached", "DisplayMode")
    active = ask("display active", "DisplayActive")
    display = None if attached is None and active is None else bool(attached or active)
    return Device(
        id=slot,
        kind="cuda",
        name=ask("name", "Name") or "NVIDIA card",
        total=memory.total,
        free=memory.free,
        # A desktop may come to any card that is not known to have none.
        reserve=RESERVE if display is False else RESERVE_WITH_DISPLAY,
        capability=ask("compute capability", "CudaComputeCapability"),
        pcie=Pcie(
            generation=ask("PCIe generation now", "CurrPcieLinkGeneration"),
            width=ask("PCIe width now", "CurrPcieLinkWidth"),
            max_generation=ask("PCIe generation at most", "MaxPcieLinkGeneration"),
            max_width=ask("PCIe width at most", "MaxPcieLinkWidth"),
        ),
        display=display,
        uuid=ask("UUID", "UUID"),
    )


def _peers(slot: str, handle: Any, reader: _Reader) -> frozenset[str]:
    """The PCI bus ids that active NVLinks of a card lead to. Most cards have no NVLink."""
    peers: set[str] = set()
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            active = pynvml.nvmlDeviceGetNvLinkState(handle, number)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue  # the card has no link of that number
        except _GONE:
            raise
        except pynvml.NVMLError as error:
            reader.unknown.append(f"{slot}: NVLink: {error}")
            break
        if not active:
            continue
        what, far_end = f"{slot}: NVLink {number}", pynvml.nvmlDeviceGetNvLinkRemotePciInfo
        if peer := reader.read(what, _slot, far_end, handle, number):
            peers.add(peer)
    return frozenset(peers)


def _links(cards: list[_Card], reader: _Reader) -> tuple[Link, ...]:
    """One link for each pair of cards.

    NVML's word that peer-to-peer works is not asked for: only a checked copy can tell.
    """
    known = {card.device.id for card in cards}
    for card in cards:
        for peer in sorted(card.peers - known):
            reader.unknown.append(
                f"{card.device.id}: its NVLink leads to {peer}, no card read here"
            )
    links = []
    for a, b in combinations(cards, 2):
        joined = b.device.id in a.peers or a.device.id in b.peers
        kind: LinkKind = "nvlink" if joined else "host"
        links.append(Link(a.device.id, b.device.id, kind))
    return tuple(links)
