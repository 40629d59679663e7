"""MIG slices: what each output tells of them, and the devices that they become.

Knows nothing of whole tables. A slice belongs to the card above it in the text, and is known by
its number there; a process that names a GPU instance is counted to that slice and to no card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from local_tp.core import Device
from local_tp.facts import CardFacts, Process
from local_tp.hardware.devices import SLICE
from local_tp.hardware.paste.sighting import Card, Slice, overlay
from local_tp.hardware.paste.values import size, whole

MOST_SLICES = 32  # of one card; none has more than seven
_LISTED = re.compile(r"\s+MIG (\S{4,20})\s+Device\s+(\d{1,2}):(?:\s*\(UUID: ([^)]{1,80})\))?")
_NUMBERS = re.compile(r"\s*(\d{1,3})\s+(\d{1,3})\s+\d{1,3}\s+(\d{1,3})\s*\Z")
_MEMORY = re.compile(r"\s*(\d{1,12})\s*MiB\s*/\s*(\d{1,12})\s*MiB")


def listed(line: str) -> Slice | None:
    """The slice of a line of `nvidia-smi -L`."""
    match = _LISTED.match(line)
    return Slice(int(match[2]), profile=match[1], uuid=match[3]) if match else None


def row(cells: Sequence[str]) -> tuple[int, Slice] | None:
    """Its card's number and the slice, of the first row that the driver's table has for one."""
    numbers = _NUMBERS.match(cells[0])
    memory = _MEMORY.match(cells[1]) if len(cells) > 2 else None
    if not numbers or not memory:
        return None
    used, total = int(memory[1]) << 20, int(memory[2]) << 20
    return int(numbers[1]), Slice(int(numbers[3]), int(numbers[2]), total=total, used=used)


def detailed(values: Mapping[str, str]) -> Slice | None:
    """The slice that an entry of `nvidia-smi -q`, in either form, is about."""
    number = whole(values.get("index"))
    if number is None or not 0 <= number < MOST_SLICES:
        return None
    return Slice(
        number,
        instance=whole(values.get("gpu_instance_id")),
        total=size(values.get("fb_memory_usage.total")),
        used=size(values.get("fb_memory_usage.used")),
        uuid=values.get("uuid"),
    )


def joined(first: Sequence[Slice], second: Sequence[Slice]) -> tuple[Slice, ...]:
    """The slices that two outputs tell of one card; the first one's values count."""
    known = {part.number: part for part in first}
    for part in second:
        mine = known.get(part.number)
        known[part.number] = overlay(mine, part) if mine else part
    return tuple(known[number] for number in sorted(known)[:MOST_SLICES])


def with_processes(card: Card, told: Iterable[tuple[int | None, Process]]) -> Card:
    """The card with `told`, pairs of a GPU instance and what runs there."""
    by_instance: dict[int | None, list[Process]] = {}
    own = {part.instance for part in card.slices if part.instance is not None}
    for instance, process in told:
        by_instance.setdefault(instance if instance in own else None, []).append(process)
    slices = tuple(
        replace(part, processes=tuple(by_instance.get(part.instance, ())))
        if part.instance is not None
        else part
        for part in card.slices
    )
    facts = replace(card.facts, processes=tuple(by_instance.get(None, ())))
    return replace(card, slices=slices, facts=facts)


def devices(card: Device, slices: Sequence[Slice]) -> list[Device]:
    """The slices of a card as devices of their own, `card` being what is known of the whole."""
    return [_device(card, part) for part in slices]


def _device(card: Device, part: Slice) -> Device:
    whole_card, total = card.facts, part.total or 0
    return replace(
        card,
        id=f"{card.id}{SLICE}{part.number}",
        name=f"{card.name} MIG {part.profile or part.number}",
        total=total,
        free=total - (part.used or 0),
        reserve=min(card.reserve, total // 8) if total else card.reserve,
        bandwidth=None,  # the whole card's, as are the operations
        flops=None,
        pcie=None,
        uuid=part.uuid,
        facts=CardFacts(
            vendor=whole_card.vendor,
            architecture=whole_card.architecture,
            used=part.used,
            processes=part.processes,
            ecc=whole_card.ecc,
            slice_of=card.id,
            profile=part.profile,
            compute_mode=whole_card.compute_mode,
            persistence=whole_card.persistence,
            driver_model=whole_card.driver_model,
            numa=whole_card.numa,
            integrated=False,
            virtual=whole_card.virtual,
        ),
    )
