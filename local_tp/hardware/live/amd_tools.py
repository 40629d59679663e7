"""What AMD's own programs add to the kernel's files: marketing names, and bridges between cards.

Knows nothing of sensors or memory. `amd-smi` is asked first, `rocm-smi` where it is missing or
fails; a machine with neither loses a name, not a card.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_tp.hardware.devices import bus_id
from local_tp.hardware.live.timed_program import run_for

SECONDS = 5.0
_AMD_SMI = ("static", "--asic", "--bus", "--json")
_ROCM_SMI = ("--showproductname", "--showbus", "--showtopotype", "--json")
_LINK = re.compile(r"Link type between DRM devices (\d+) and (\d+)")


@dataclass(frozen=True, slots=True)
class AmdTools:
    """Names by bus id; the pairs that an Infinity Fabric bridge (XGMI) joins."""

    names: dict[str, str] = field(default_factory=dict)
    bridged: frozenset[frozenset[str]] = frozenset()
    unknown: tuple[str, ...] = ()


def read_tools(root: Path = Path("/")) -> AmdTools:
    """Ask whichever program is installed below `root`."""
    answers, unknown = [], []
    for name, arguments in (("amd-smi", _AMD_SMI), ("rocm-smi", _ROCM_SMI)):
        if (program := _installed(name, root)) is None:
            continue
        try:
            child = run_for([program, *arguments], SECONDS)
        except OSError as error:
            unknown.append(f"{name}: {error}")
            continue
        if child.code != 0:
            unknown.append(f"{name}: {child.how}")
            continue
        answers.append(_parse(child.output))
    names = {slot: name for answer in reversed(answers) for slot, name in answer.names.items()}
    bridged = frozenset(pair for answer in answers for pair in answer.bridged)
    return AmdTools(names, bridged, tuple(unknown))


def _installed(name: str, root: Path) -> str | None:
    beside = root / "opt/rocm/bin" / name
    if beside.is_file():
        return str(beside)
    return shutil.which(name) if root == Path("/") else None


def _parse(output: bytes) -> AmdTools:
    """Names and bridges in either program's JSON; warnings before it are passed over."""
    text = output.decode(errors="replace")
    starts = [place for mark in "[{" if (place := text.find(mark)) >= 0]
    try:
        data = json.loads(text[min(starts) :]) if starts else {}
    except (ValueError, RecursionError):
        data = {}
    if isinstance(data, dict) and any(str(key).startswith("card") for key in data):
        return _rocm_smi(data)
    return AmdTools(names=dict(_amd_smi(data)))


def _amd_smi(data: Any) -> Iterator[tuple[str, str]]:
    cards = data.get("gpu_data") if isinstance(data, dict) else data
    for card in cards if isinstance(cards, list) else []:
        if not isinstance(card, dict):
            continue
        asic, bus = card.get("asic"), card.get("bus")
        if isinstance(asic, dict) and isinstance(bus, dict):
            slot, name = bus_id(str(bus.get("bdf"))), asic.get("market_name")
            if slot and isinstance(name, str) and _is_name(name):
                yield slot, name


def _rocm_smi(data: dict[str, Any]) -> AmdTools:
    slots: dict[str, str] = {}
    names: dict[str, str] = {}
    for key, card in data.items():
        if not key.startswith("card") or not isinstance(card, dict):
            continue
        slot = bus_id(str(card.get("PCI Bus")))
        if slot is None:
            continue
        slots[key.removeprefix("card")] = slot
        for field_name in ("Card Series", "Card series", "Device Name", "Card model"):
            name = card.get(field_name)
            if isinstance(name, str) and _is_name(name):
                names[slot] = name
                break
    system = data.get("system")
    bridged = set()
    for what, kind in system.items() if isinstance(system, dict) else ():
        match = _LINK.search(what)
        if match and kind == "XGMI" and {*match.groups()} <= slots.keys():
            bridged.add(frozenset(slots[number] for number in match.groups()))
    return AmdTools(names, frozenset(bridged))


def _is_name(text: str) -> bool:
    """Not a number in place of a name, and not the program's word for none."""
    return bool(text.strip()) and not text.lower().startswith(("0x", "n/a"))
