"""`nvidia-smi -q`: sections of `name : value`, indented under each other.

Knows nothing of what the values mean. Where a forum has eaten the indentation, each entry counts
to the heading above it. MIG slices are parts of the card that they stand under.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from local_tp.facts import HostFacts, Process
from local_tp.hardware.paste import mig, smi_fields
from local_tp.hardware.paste.sighting import MOST_CARDS, Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import program, size, whole

_GPU = re.compile(r"\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*\Z")
_ENTRY = re.compile(r"(\s*)([A-Za-z][\w /.\-()#]{0,60}?)\s*:(?:\s(.*)|\Z)")
_HEADING = re.compile(r"(\s*)([A-Za-z][\w /.\-()#]{0,60})\Z")
_LOG = re.compile(r"=+\s?NVSMI LOG\s?=+")
_OUTSIDE = re.compile(r"\s*(?:Driver Version|CUDA Version|Attached GPUs|Product Name)\s{2,}:")


def _starts(line: str) -> bool:
    return bool(_LOG.search(line) or _GPU.match(line) or _OUTSIDE.match(line))


def _continues(line: str) -> bool:
    if _starts(line):
        return True
    if line.lstrip().startswith(("$", "#", "+", "|", "=", "GPU0", "<", "{")):
        return False
    match = _ENTRY.match(line)
    if match:
        return match[3] is None or "  " in line or line[:1].isspace()
    return bool(_HEADING.match(line)) and (line[:1].isspace() or len(line) < 40)


@dataclass(slots=True)
class _Gpu:
    slot: str
    values: dict[str, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)
    slices: list[dict[str, str]] = field(default_factory=list)


def parse(lines: Sequence[Line]) -> Sighting:
    """Every card of the log, and the driver's versions."""
    outside: dict[str, str] = {}
    gpus: list[_Gpu] = []
    unread: tuple[str, ...] = ()
    for path, name, value in _entries(lines):
        if name == "" and len(gpus) == MOST_CARDS:
            unread = (f"more than {MOST_CARDS} cards: read no further",)
            break
        if name == "":
            gpus.append(_Gpu(slot=value))
        elif not gpus:
            outside.setdefault(name, value)
        elif "processes" in path:
            _keep_process(gpus[-1].processes, name, value)
        elif any(part.startswith("mig_device") for part in path):
            _keep_slice(gpus[-1].slices, path[-1], name, value)
        else:
            _keep(gpus[-1].values, path, name, value)
    if not gpus and "product_name" in outside:
        gpus.append(_Gpu("", outside))
    complete = whole(outside.get("attached_gpus")) == len(gpus)
    host = HostFacts()
    for gpu in gpus:
        host = overlay(host, smi_fields.host(gpu.values))
    return Sighting(
        "nvidia-smi -q",
        cards=tuple(
            replace(_card(gpu), number=number if complete else None)
            for number, gpu in enumerate(gpus)
        ),
        software=smi_fields.software(outside),
        host=host,
        unread=unread,
    )


def _keep(values: dict[str, str], path: tuple[str, ...], name: str, value: str) -> None:
    """Under the names it may be asked for by; the first of a name counts."""
    for depth in (0, 1, 2):
        if depth <= len(path):
            values.setdefault(".".join((*path[len(path) - depth :], name)), value)


def _keep_process(processes: list[dict[str, str]], name: str, value: str) -> None:
    """An entry of a process, which begins with its GPU instance or, in old drivers, its number."""
    again = not processes or name in processes[-1]
    if again and name in ("gpu_instance_id", "process_id"):
        processes.append({})
    if processes:
        processes[-1].setdefault(name, value)


def _keep_slice(slices: list[dict[str, str]], section: str, name: str, value: str) -> None:
    if name == "index" and len(slices) < mig.MOST_SLICES:
        slices.append({})
    if slices:
        slices[-1].setdefault(
            name if section.startswith("mig_device") else f"{section}.{name}", value
        )


def _card(gpu: _Gpu) -> Card:
    slices = tuple(part for one in gpu.slices if (part := mig.detailed(one)))
    card = smi_fields.card({"slot": gpu.slot, **gpu.values})
    card = replace(card, slices=mig.joined((), slices))
    processes = [
        (
            whole(told.get("gpu_instance_id")),
            Process(
                whole(told.get("process_id")),
                program(told.get("name")),
                size(told.get("used_gpu_memory")),
            ),
        )
        for told in gpu.processes
        if "process_id" in told
    ]
    return mig.with_processes(card, processes)


def _entries(lines: Sequence[Line]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(path of headings, name, value); a card itself as an entry without a name."""
    stack: list[tuple[int, str]] = []
    for line in lines:
        if match := _GPU.match(line.text):
            stack = []
            yield (), "", match[1]
            continue
        entry = _ENTRY.match(line.text)
        heading = None if entry else _HEADING.match(line.text)
        found = entry or heading
        if not found:
            continue
        indent = len(found[1].expandtabs())
        while stack and (stack[-1][0] > indent or (stack[-1][0] == indent and (indent or heading))):
            stack.pop()
        name = smi_fields.key(found[2])
        value = (entry[3] or "").strip() if entry else ""
        if entry and value:
            yield tuple(part for _, part in stack), name, value
        else:
            stack.append((indent, name))


KIND = Kind("nvidia-smi -q", _starts, _continues, parse, again=lambda line: bool(_LOG.search(line)))
