"""Finds blocks of known output in a text, and says which lines belong to none.

Knows nothing of what the blocks mean. A block goes on as long as its kind says so, over blank
lines too; time is linear in the text, because each line is asked about once or twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from local_tp.hardware.paste import (
    amd_smi,
    amd_smi_json,
    boltctl,
    dxdiag,
    environment,
    issue_report,
    kernel_log,
    lspci,
    lspci_tree,
    nccl_tests,
    own_json,
    p2p_test,
    rocm,
    rocminfo,
    simple_p2p,
    smi_csv,
    smi_details,
    smi_list,
    smi_table,
    smi_xml,
    topology,
    xpu_smi,
)
from local_tp.hardware.paste.sighting import Kind, Sighting
from local_tp.hardware.paste.text import Line

# Asked in this order: what is least like anything else comes first.
KINDS: tuple[Kind, ...] = (
    smi_xml.KIND,
    xpu_smi.KIND,
    smi_table.KIND,
    rocminfo.KIND,
    amd_smi.KIND,
    topology.KIND,
    kernel_log.KIND,
    p2p_test.KIND,
    simple_p2p.KIND,
    nccl_tests.KIND,
    rocm.KIND,
    smi_csv.KIND,
    lspci_tree.KIND,
    lspci.KIND,
    smi_details.KIND,
    smi_list.KIND,
    issue_report.KIND,
    boltctl.KIND,
    dxdiag.KIND,
    environment.KIND,
)
_SHOWN = 1024  # characters of a line that say which kind it is of
_TAGS = re.compile(r"(?:\s*</?(?:details|summary|pre|code|br|p|b|hr)\b[^>]{0,80}>)+.{0,120}\Z")
_SILENT = re.compile(
    r"\s*(?:[-=+_*~|.\s]*|[$%>#]?\s*(?:nvidia-smi|lspci|rocm-smi|dmesg)\b.{0,2000})\Z"
)
_CONSOLE = re.compile(
    r"\s*(?:\([\w.-]{1,40}\) )?(?:\$|PS [A-Z]:\\|[A-Z]:\\[^>]{0,80}>|[~/][\w./-]{0,80} ?[#$%]"
    r"|\[?[\w.-]{1,40}@[^#$%>]{1,80}[#$%>]|[\u279c\u276f])\s?"
)
_DATE = re.compile(r"\s*[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d{1,2} [\d:]{8} .{0,12}\Z")
_EXCERPT = 60
_GAPS = 20


class Block(NamedTuple):
    kind: Kind
    lines: tuple[Line, ...]


class Split(NamedTuple):
    """The blocks, what JSON told, and the lines that nobody knew."""

    blocks: tuple[Block, ...]
    sightings: tuple[Sighting, ...]
    rest: tuple[Line, ...]


def split(lines: Sequence[Line]) -> Split:
    """Takes the JSON out of a text, and the other lines apart into blocks."""
    sightings: list[Sighting] = []
    blocks: list[Block] = []
    rest: list[Line] = []
    place = 0
    for found in own_json.objects(lines):
        told = own_json.read_rig(found, lines) or next(filter(None, _by_tool(found.value)), None)
        if told is None:
            continue
        sightings.append(told)
        _blocks(lines[place : found.start], blocks, rest)
        place = found.stop
    _blocks(lines[place:], blocks, rest)
    return Split(tuple(blocks), tuple(sightings), tuple(rest))


def _by_tool(value: Mapping[str, Any]) -> Iterator[Sighting | None]:
    for parse in (rocm.parse_json, amd_smi_json.parse, xpu_smi.parse_json):
        yield parse(value)


def _blocks(lines: Sequence[Line], blocks: list[Block], rest: list[Line]) -> None:
    kind: Kind | None = None
    held: list[Line] = []
    for line in lines:
        shown = line.text[:_SHOWN]
        if not shown.strip():
            continue
        if kind and not (kind.continues(shown) and not (held and kind.again(shown))):
            blocks.append(Block(kind, tuple(held)))
            kind = None
        if kind is None:
            kind = next((kind for kind in KINDS if kind.starts(shown)), None)
            held = []
        if kind is None:
            rest.append(line)
            continue
        held.append(line)
        if kind.ends(shown):
            blocks.append(Block(kind, tuple(held)))
            kind = None
    if kind:
        blocks.append(Block(kind, tuple(held)))


def gaps(rest: Sequence[Line]) -> tuple[str, ...]:
    """The lines that nobody knew, in words: neighbours together, each with its beginning."""
    runs: list[list[Line]] = []
    for line in rest:
        if _SILENT.match(line.text[:4096]) or _CONSOLE.match(line.text[:200]):
            continue
        if _DATE.match(line.text[:60]) or _TAGS.match(line.text[:400]):
            continue
        if runs and line.number - runs[-1][-1].number <= 3:
            runs[-1].append(line)
        else:
            runs.append([line])
    words = []
    for run in runs[:_GAPS]:
        first, last = run[0].number, run[-1].number
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        text = run[0].text.strip()
        excerpt = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
        words.append(f"{where}: not understood: {excerpt!r}")
    if len(runs) > _GAPS:
        words.append(f"line {runs[_GAPS][0].number} and after: more that was not understood")
    return tuple(words)
