"""The slices that a card with MIG is cut into, each a `Device` of its own.

Knows nothing of whole cards but what is handed in: NVML answers few questions for a slice, and
the rest (capability, display, NUMA node, …) is its card's. A slice's id is its card's bus id,
`/mig-` and the driver's number of the slice; its UUID is the one by which CUDA shows it to a
process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from local_tp.core import Device
from local_tp.facts import CardFacts
from local_tp.hardware.devices import SLICE
from local_tp.hardware.live.nvidia_card import CardReading
from local_tp.hardware.live.nvidia_reader import GONE, Reader
from local_tp.hardware.live.nvidia_words import error_words

_PROFILE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)", re.IGNORECASE)


def read_slices(card: Device, handle: Any, root: Path) -> tuple[list[Device], list[str]]:
    """The slices of `card`, whose NVML handle is `handle`; and what could not be learned.

    Raises NVML's errors of a lost card, and no others.
    """
    reader = Reader(card.id)
    most = pynvml.nvmlDeviceGetMaxMigDeviceCount
    count = reader.ask("number of MIG slices", most, handle)
    devices: list[Device] = []
    unknown: list[str] = []
    for number, part in _handles(count or 0, handle, reader):
        own = Reader(f"{card.id}{SLICE}{number}")
        if (device := _slice(card, number, part, own, root)) is not None:
            devices.append(device)
        unknown += own.unknown
        if device is None:
            unknown.append(f"{own.subject}: left out, because its memory is not known")
    unknown[:0] = reader.unknown
    if not unknown and not devices:
        unknown.append(
            f"{card.id}: MIG is on and no slice was made: `nvidia-smi mig -cgi PROFILE -C` makes "
            "one, `nvidia-smi -mig 0` gives the whole card back"
        )
    return devices, unknown


def _handles(count: int, handle: Any, reader: Reader) -> Iterator[tuple[int, Any]]:
    """Number and handle of each slice. Numbers are places of which some may be empty."""
    for number in range(count):
        try:
            yield number, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except pynvml.NVMLError_NotFound:
            continue
        except GONE:
            raise
        except pynvml.NVMLError as error:
            reader.miss(f"MIG slice {number}", error_words(error.value))


def _slice(card: Device, number: int, handle: Any, reader: Reader, root: Path) -> Device | None:
    """One slice, or None where its memory cannot be read."""
    reading = CardReading(reader.subject, handle, reader, root)
    name = reader.ask("name", pynvml.nvmlDeviceGetName, handle)
    memory = reading.memory()
    if memory is None:
        reader.miss("memory", "the driver does not tell it")
        return None
    total, free, used, hidden = memory
    whole = card.facts
    return replace(
        card,
        id=reader.subject,
        name=name or f"{card.name} MIG {number}",
        total=total,
        free=free,
        reserve=min(card.reserve, total // 8),
        uuid=reader.ask("UUID", pynvml.nvmlDeviceGetUUID, handle),
        facts=CardFacts(
            vendor="nvidia",
            architecture=whole.architecture,
            used=used,
            hidden=hidden,
            processes=reading.processes(),
            pcie_card=whole.pcie_card,
            ecc=whole.ecc,
            slice_of=card.id,
            profile=_profile(name, handle, reader),
            compute_mode=whole.compute_mode,
            persistence=whole.persistence,
            driver_model=whole.driver_model,
            numa=whole.numa,
            integrated=False,
            virtual=whole.virtual,
        ),
    )


def _profile(name: str | None, handle: Any, reader: Reader) -> str | None:
    """The slice's size in the driver's words: as in its name, or put together from its parts."""
    if match := _PROFILE.search(name or ""):
        return match.group(1)
    parts = reader.optional("attributes", pynvml.nvmlDeviceGetAttributes_v2, handle)
    if parts is None:
        return None
    return f"{parts.gpuInstanceSliceCount}g.{round(parts.memorySizeMB / 1024)}gb"
