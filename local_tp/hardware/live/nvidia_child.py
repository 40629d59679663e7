"""The process that asks NVML about every card and writes what it finds as JSON lines.

Knows nothing of time: `nvidia.read_nvidia` starts it, waits, and kills it where the driver keeps
it. Every line holds all that was read so far, so that one bad card does not cost the others.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pynvml

from local_tp.codec import encode
from local_tp.core import Device
from local_tp.facts import CardFacts
from local_tp.hardware.devices import bus_id, in_slot_order
from local_tp.hardware.live.nvidia import REMEDY, Nvidia, Progress
from local_tp.hardware.live.nvidia_card import CardReading
from local_tp.hardware.live.nvidia_pairs import read_pairs, slice_links
from local_tp.hardware.live.nvidia_reader import GONE, Reader
from local_tp.hardware.live.nvidia_slices import read_slices
from local_tp.hardware.live.nvidia_words import error_words, fault_of


@dataclass(slots=True)
class Reading:
    """What was found so far. `nameless` counts the lost cards whose place is not known."""

    root: Path
    driver: str | None = None
    cuda: str | None = None
    cards: list[tuple[Device, Any]] = field(default_factory=list)
    slices: list[Device] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    nameless: list[int] = field(default_factory=list)
    codes: set[int] = field(default_factory=set)  # of errors that cost every card

    def found(self) -> Nvidia:
        devices = sorted([*(device for device, _ in self.cards), *self.slices], key=in_slot_order)
        return Nvidia(
            tuple(devices),
            driver=self.driver,
            cuda=self.cuda,
            fault=None if devices else fault_of(self.codes),
            unknown=tuple(self.unknown),
        )

    def say(self, asking: str) -> None:
        _write(Progress(self.found(), asking))


def main(root: Path) -> None:
    """Read every card, and write a line before each question that may never be answered."""
    reading = Reading(root)
    reading.say("NVIDIA driver")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _write(Progress(_without_driver(error.value, root)))
        return
    _read_cards(reading)
    _place_the_lost(reading)
    reading.say("links between NVIDIA cards")
    whole = sorted(
        (card for card in reading.cards if not card[0].facts.lost),
        key=lambda card: in_slot_order(card[0]),
    )
    links, unknown = read_pairs(whole)
    reading.unknown += unknown
    links = (*links, *slice_links(reading.slices, [card for card, _ in whole], links))
    found = replace(reading.found(), links=links)
    _write(Progress(found, "NVIDIA driver"))
    shutdown = Reader()
    shutdown.ask("NVML shutdown", pynvml.nvmlShutdown)
    _write(Progress(replace(found, unknown=(*found.unknown, *shutdown.unknown))))


def _read_cards(reading: Reading) -> None:
    system = Reader()
    reading.driver = system.ask("NVIDIA driver version", pynvml.nvmlSystemGetDriverVersion)
    cuda = system.ask("CUDA version of the NVIDIA driver", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    reading.cuda = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    count = system.ask("number of NVIDIA cards", pynvml.nvmlDeviceGetCount) or 0
    reading.unknown += system.unknown
    reading.codes |= system.codes
    for index in range(count):
        _read_card(index, reading)


def _read_card(index: int, reading: Reading) -> None:
    label = f"NVIDIA card {index} in the driver's order"
    reading.say(label)
    reader = Reader(label)
    slot: str | None = None
    card: CardReading | None = None
    try:
        handle = reader.ask("handle", pynvml.nvmlDeviceGetHandleByIndex, index)
        place = handle and reader.ask("PCI bus id", pynvml.nvmlDeviceGetPciInfo, handle)
        slot = place and bus_id(place.busId)
        if not slot:
            line = f"{label}: left out, because its PCI bus id is not known"
            reading.unknown += [*reader.unknown, line]
            reading.codes |= reader.codes
            return
        reader.subject = slot
        reading.say(slot)
        card = CardReading(slot, handle, reader, reading.root)
        device = card.device()
        reading.unknown += reader.unknown
        if device is None:
            reading.unknown.append(f"{slot}: left out, because its memory is not known")
            return
        reading.cards.append((device, handle))
        if device.facts.mig:
            reading.say(f"{slot}, MIG slices")
            slices, unknown = read_slices(device, handle, reading.root)
            reading.slices += slices
            reading.unknown += unknown
    except GONE as error:
        reading.unknown.append(f"{slot or label}: {error_words(error.value)}; {REMEDY}")
        if slot:
            reading.cards = [entry for entry in reading.cards if entry[0].id != slot]
            reading.cards.append(
                (_lost(slot, index, reading.root, card.name if card else None), None)
            )
        else:
            reading.nameless.append(index)


def _place_the_lost(reading: Reading) -> None:
    """Find the place of cards that gave none: where the kernel has cards that NVML did not name."""
    known = {device.id for device, _ in reading.cards}
    folder = reading.root / "proc/driver/nvidia/gpus"
    try:
        listed = {slot for path in folder.iterdir() if (slot := bus_id(path.name))}
    except OSError:
        return
    left = sorted(listed - known)
    if len(left) == len(reading.nameless):  # otherwise which is which would be a guess
        for slot, index in zip(left, reading.nameless, strict=True):
            reading.cards.append((_lost(slot, index, reading.root), None))


def _lost(slot: str, index: int, root: Path, name: str | None = None) -> Device:
    facts = CardFacts(vendor="nvidia", index=index, lost=True)
    return Device(slot, "cuda", name or _model(slot, root), total=0, free=0, facts=facts)


def _model(slot: str, root: Path) -> str:
    """The card's name as the kernel module remembers it."""
    try:
        text = (root / "proc/driver/nvidia/gpus" / slot / "information").read_text(errors="replace")
    except OSError:
        return "NVIDIA card"
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return lines.get("Model", "").strip() or "NVIDIA card"


def _without_driver(code: int, root: Path) -> Nvidia:
    """Why NVML did not start, and what a person can do about it."""
    loaded = (root / "proc/driver/nvidia").exists()
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND and not loaded:
        return Nvidia()  # no driver, hence no card that could be used
    remedies = {
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
        pynvml.NVML_ERROR_NO_PERMISSION: (
            "this user may not use the driver: add the user to the group that owns "
            "/dev/nvidiactl, or let the container have the device files"
        ),
        pynvml.NVML_ERROR_UNKNOWN: (
            "the driver answers with an unknown error: restart the container, if this is one, "
            "which may have lost its device files, and else the PC"
        ),
    }
    why = remedies.get(code, f"the driver does not answer: {error_words(code)}")
    return Nvidia(fault=fault_of({code}), unknown=(f"NVIDIA cards: {why}",))


def _write(progress: Progress) -> None:
    print(json.dumps(encode(progress)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
