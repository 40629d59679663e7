"""From the words of a measurement to devices and links: catalog figures, slots, power limits.

Knows nothing of models. Cards whose slot is not stated stand in the one they were made for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from calibration.naming import Engine, names
from local_tp.core import Device, DeviceKind, Link, LinkKind, Pcie
from local_tp.facts import CardFacts, PairFacts, PcieReading
from local_tp.hardware.catalog import GIB, Gpu, find
from local_tp.hardware.rigs import DIRECT

KINDS: dict[str, DeviceKind] = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu"}
USUAL_SLOT = Pcie(4, 16, 4, 16)
# A slot as words give it. A riser's switch is shared by the cards behind it.
SLOT = re.compile(r"(?:(\d+)x )?(?:PCIe )?(?:(\d)\.0 )?x(\d+)(?!\d)")
SPECIAL = {"USB4": Pcie(3, 4, 3, 4), "OCuLink": Pcie(4, 4, 4, 4)}


class RigUnknown(Exception):
    """Why a machine cannot be made out."""


def cards(gpus: Sequence[str], row: Mapping[str, Any], engine: Engine) -> tuple[Device, ...]:
    """The cards of a row, in its order. Raises `RigUnknown`."""
    slots = _slots(row["link"], len(gpus))
    limits = row.get("power_limits_w") or row.get("power_cap_w") or []
    watts = limits if isinstance(limits, list) else [limits] * len(gpus)
    return tuple(
        _card(name, i, slots[i], _watts(watts, i, len(gpus)), engine) for i, name in enumerate(gpus)
    )


def processor(row: Mapping[str, Any]) -> Device:
    """The processor of a row. Raises `RigUnknown`."""
    text = f"{row.get('cpu', '')} {row.get('host', '')}"
    known = names().processor_of(text)
    if known is None:
        raise RigUnknown("processor not stated, or its memory not known")
    return Device(
        "cpu",
        "cpu",
        text.strip(),
        1 << 42,
        1 << 42,
        0,
        0,
        known.bandwidth * 1e9,
        known.flops * 1e12,
    )


def links_between(devices: Sequence[Device], row: Mapping[str, Any]) -> tuple[Link, ...]:
    """A link between every two cards, as the row's words say."""
    bridged = "NVLink" in row["link"] and "no NVLink" not in row["link"]
    bridged = bridged and "disabled" not in row["link"]
    kind: LinkKind = "nvlink" if bridged else "p2p" if row.get("p2p") else "host"
    forced = any(row["source"].startswith(name) for name in names().direct_forced)
    facts = PairFacts(path="PXB" if forced or "switch" in row["link"] else "PHB")
    found = []
    for a, b in combinations(devices, 2):
        gpu = find(a.name, a.total)
        rate = DIRECT * gpu.nvlink / 2 if bridged and gpu and gpu.nvlink else None
        found.append(Link(a.id, b.id, kind, rate, verified=kind != "host", facts=facts))
    return tuple(found)


def _card(name: str, index: int, slot: Pcie | None, watts: float | None, engine: Engine) -> Device:
    gpu = find(names().card.get(name, name))
    if gpu is None or not gpu.bandwidth or not gpu.flops:
        raise RigUnknown("card not stated" if "unstated" in name else f"card {name} is not known")
    facts = CardFacts(
        vendor=gpu.vendor,
        architecture=gpu.architecture,
        power_limit=watts,
        power_default=gpu.tdp,
    )
    return Device(
        id=f"0000:{index:02x}:00.0",
        kind=KINDS[gpu.vendor],
        name=gpu.name,
        total=gpu.memory or 8 * GIB,
        free=gpu.memory or 8 * GIB,
        bandwidth=_bandwidth(gpu, engine),
        flops=_peak(gpu, engine),
        capability=gpu.capability,
        pcie=_narrower(slot or USUAL_SLOT, gpu.pcie),
        facts=facts,
    )


def _bandwidth(gpu: Gpu, engine: Engine) -> float:
    """Bytes a second, as far as the card's multiprocessors can have them on their way and, without
    8-bit dot products, unpack them."""
    limits = [gpu.bandwidth or 0.0]
    if gpu.sms is not None and engine.multiprocessor is not None:
        limits.append(gpu.sms * engine.multiprocessor * 1e9)
    if gpu.int8 is None and gpu.fp32 is not None and engine.without_int8 is not None:
        limits.append(gpu.fp32 * engine.without_int8)
    return min(limits)


def _peak(gpu: Gpu, engine: Engine) -> float:
    """Dense operations a second, with 16-bit sums or of 8-bit numbers if the engine uses them.

    An 8-bit rate counts half, as it is twice the 16-bit one on every card with matrix units.
    """
    assert gpu.flops is not None
    if not engine.fast_sums:
        return gpu.flops
    return max(gpu.flops, gpu.fp16_fast or 0.0, (gpu.int8 or 0.0) / 2)


def _watts(watts: Sequence[float], index: int, count: int) -> float | None:
    if not watts:
        return None
    return watts[index] if len(watts) == count else sum(watts) / len(watts)


def _slots(text: str, count: int) -> list[Pcie | None]:
    """The slot of each card; None where the text says nothing."""
    found: list[Pcie | None] = []
    generation = 0
    for number, version, width in SLOT.findall(text):
        generation = int(version) if version else generation
        slot = Pcie(generation or 4, int(width), generation or 4, int(width))
        shared = int(number or 1) if "behind one" in text and width == "1" else 1
        if shared > 1:  # half the lane each is a generation less
            slot = replace(slot, generation=(generation or 4) - 1, max_generation=generation - 1)
        found += [slot] * int(number or 1)
    found += [slot for word, slot in SPECIAL.items() if word in text]
    if "Raspberry" in text:
        found = [Pcie(3, 1, 3, 1)]
    if not found:
        return [None] * count
    return (found + [found[-1]] * count)[:count]


def _narrower(slot: Pcie, card: PcieReading | None) -> Pcie:
    if card is None or not card.generation or not card.width:
        return slot
    generation = min(slot.max_generation or 4, card.generation)
    width = min(slot.width or 16, card.width)
    return Pcie(generation, width, generation, width)
