"""`nvidia-smi -q -x`: the same as `-q`, as XML of any of its schemas.

Knows nothing of what the values mean. Reads from the first element on, so that no document type
and hence no entity is ever defined; a document cut off gives what came before the cut.
"""

from __future__ import annotations

import re
import xml.parsers.expat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from local_tp.facts import HostFacts, Process
from local_tp.hardware.paste import mig, smi_fields
from local_tp.hardware.paste.sighting import Card, Kind, Sighting, overlay
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import program, size, whole

_OPENING = re.compile(r"<(?:nvidia_smi_log\b|gpu(?: id=|>))")
_DEEPEST = 40


def _starts(line: str) -> bool:
    text = line.lstrip()
    return text.startswith(("<?xml", "<!DOCTYPE", "<!ENTITY")) or bool(_OPENING.search(line))


def _continues(line: str) -> bool:
    # Elements only hold short text, which may stand on lines of its own.
    return not line.startswith(("$", "+-", "|", "=", "GPU"))


@dataclass(slots=True)
class _Reader:
    """Follows the parser and keeps each element's text under the names of its ancestors."""

    path: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)
    gpus: list[dict[str, str]] = field(default_factory=list)
    processes: list[list[dict[str, str]]] = field(default_factory=list)
    slices: list[list[dict[str, str]]] = field(default_factory=list)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.path) > _DEEPEST:
            raise xml.parsers.expat.ExpatError("elements nested too deeply")
        self.path.append(tag)
        self.text = []
        if tag == "gpu":
            self.gpus.append({"slot": attributes.get("id", "")})
            self.processes.append([])
            self.slices.append([])
        elif tag == "mig_device" and self.gpus:
            self.slices[-1].append({})
        elif tag == "process_info" and self.gpus:
            self.processes[-1].append({})

    def data(self, text: str) -> None:
        self.text.append(text)

    def end(self, tag: str) -> None:
        value = "".join(self.text).strip()
        self.path.pop()
        self.text = []
        if not value:
            return
        inside = [part for part in self.path if part not in ("gpu", "nvidia_smi_log", "pasted")]
        if "gpu" not in self.path:
            self.outside.setdefault(tag, value)
        elif "process_info" in self.path:
            self.processes[-1][-1].setdefault(tag, value)
        elif "mig_device" in self.path:
            name = tag if inside[-1] == "mig_device" else f"{inside[-1]}.{tag}"
            self.slices[-1][-1].setdefault(name, value)
        elif "mig_devices" not in self.path:
            for depth in (0, 1, 2):
                name = ".".join([*inside[len(inside) - depth :], tag])
                if depth <= len(inside):
                    self.gpus[-1].setdefault(name, value)


def parse(lines: Sequence[Line]) -> Sighting:
    """Every card of the document, as far as it can be read."""
    unread: list[str] = []
    if any("<!ENTITY" in line.text for line in lines):
        unread.append(f"line {lines[0].number}: an XML document that defines entities: refused")
        return Sighting("nvidia-smi -q -x", unread=tuple(unread))
    first = next((i for i, line in enumerate(lines) if _OPENING.search(line.text)), None)
    if first is None:
        unread.append(f"line {lines[0].number}: XML without nvidia_smi_log")
        return Sighting("nvidia-smi -q -x", unread=tuple(unread))
    reader = _Reader()
    stopped = _feed(reader, lines[first:])
    if stopped is not None:
        unread.append(f"line {stopped}: the XML is damaged or cut off here")
    complete = whole(reader.outside.get("attached_gpus")) == len(reader.gpus)
    cards = tuple(
        replace(_card(values, told, parts), number=number if complete else None)
        for number, (values, told, parts) in enumerate(
            zip(reader.gpus, reader.processes, reader.slices, strict=True)
        )
    )
    host = HostFacts()
    for values in reader.gpus:
        host = overlay(host, smi_fields.host(values))
    return Sighting(
        "nvidia-smi -q -x",
        cards=cards,
        software=smi_fields.software(reader.outside),
        host=host,
        unread=tuple(unread),
    )


def _feed(reader: _Reader, lines: Sequence[Line]) -> int | None:
    """Parses as far as possible; the number of the line where it had to stop."""
    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    parser.Parse("<pasted>", False)
    number = lines[0].number
    try:
        for line in lines:
            number = line.number
            text = line.text
            if number == lines[0].number:
                text = text[text.index("<") :]
            parser.Parse(text + "\n", False)
        parser.Parse("</pasted>", True)
    except xml.parsers.expat.ExpatError:
        return number
    return None


def _card(values: dict[str, str], told: list[dict[str, str]], parts: list[dict[str, str]]) -> Card:
    slices = tuple(part for one in parts if (part := mig.detailed(one)))
    card = replace(smi_fields.card(values), slices=mig.joined((), slices))
    processes = [
        (
            whole(one.get("gpu_instance_id")),
            Process(
                whole(one.get("pid")),
                program(one.get("process_name")),
                size(one.get("used_memory")),
            ),
        )
        for one in told
    ]
    return mig.with_processes(card, processes)


KIND = Kind(
    "nvidia-smi -q -x", _starts, _continues, parse, lambda line: "</nvidia_smi_log>" in line
)
