"""Other people's machines: pasted text of many tools, and the one `Rig` that it tells of.

Knows nothing of this machine. Never raises for what is in a text: what was not understood is in
`unread`, with line numbers, and what could not be learned in the rig's `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from local_tp.core import Rig
from local_tp.hardware.paste import environment, kernel_log
from local_tp.hardware.paste.assemble import assemble
from local_tp.hardware.paste.samples import joined
from local_tp.hardware.paste.sighting import Sighting
from local_tp.hardware.paste.split import Block, Split, gaps, split
from local_tp.hardware.paste.text import LIMIT, Text, read_text

_LINEWISE = (kernel_log.KIND, environment.KIND)
_MOST_OUTPUTS = 60  # of one machine; each costs time to match with the others
# Those that tell most surely which card is which come first.
_TRUST = (
    "nvidia-smi -q -x",
    "nvidia-smi -q",
    "nvidia-smi --query-gpu",
    "nvidia-smi",
    "amd-smi",
    "rocm-smi",
    "xpu-smi",
    "rocminfo",
    "lspci",
    "report",
    "complaints",
    "nvidia-smi -L",
    "lspci -tv",
    "simpleP2P",
    "p2pBandwidthLatencyTest",
    "nccl-tests",
    "nvidia-smi topo",
    "collect_env",
    "dxdiag",
)


@dataclass(frozen=True, slots=True)
class Pasted:
    """A machine as texts tell of it; `unread` says in words what was not understood."""

    rig: Rig
    unread: tuple[str, ...] = ()


def read_pasted(texts: Sequence[tuple[str, bytes]]) -> Pasted:
    """The machine that `texts`, pairs of a name and its bytes, are about.

    All texts are taken to be about one machine. Cards without memory figures have `total` 0, which
    `rig.unknown` says. Only the first 2 MiB together are read, and `unread` says what was not.
    """
    unread: list[str] = []
    sightings: list[Sighting] = []
    words: list[str] = []
    left = LIMIT
    for number, (name, data) in enumerate(texts, 1):
        text = read_text(name, data, left)
        left = max(0, left - len(data))
        prefix = f"file {number}: " if len(texts) > 1 else ""  # a file's name may name a person
        parts = split(text.lines)
        room = max(0, _MOST_OUTPUTS - len(sightings))
        blocks = sorted(_joined(parts.blocks), key=lambda block: _trust(block.kind.name))
        told = [*parts.sightings, *(block.kind.parse(block.lines) for block in blocks[:room])]
        if len(blocks) > room:
            unread.append(f"{prefix}more than {_MOST_OUTPUTS} outputs: not all of them were used")
        sightings += told
        words += [line.text for line in parts.rest]
        unread += [prefix + word for word in _unread(text, parts, told)]
    reports = [told.rig for told in sightings if told.rig]
    others = [told.source for told in sightings if not told.rig]
    whole = next(filter(_has_cards, reports), None if others else next(iter(reports), None))
    if whole is not None:
        unread += [f"{source}: not used beside a report of local-tp" for source in others]
        return Pasted(whole, tuple(unread))
    ordered = sorted(
        joined([_around(told.rig) if told.rig else told for told in sightings]),
        key=lambda told: _trust(told.source),
    )
    rig, more = assemble(ordered, "\n".join(words[:200]))
    return Pasted(rig, (*unread, *more))


def _has_cards(rig: Rig) -> bool:
    return any(device.kind != "cpu" for device in rig.devices)


def _around(rig: Rig) -> Sighting:
    """What a report without cards tells of the machine around them."""
    return Sighting(
        "local-tp doctor --json",
        ram=rig.ram or None,
        available_ram=rig.available_ram or None,
        cores=rig.cores,
        os=rig.os or None,
        host=rig.host,
        software=rig.software,
        unknown=rig.unknown,
    )


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, with those as one whose lines tell the same wherever they stand."""
    joined = [block for block in blocks if block.kind not in _LINEWISE]
    for kind in _LINEWISE:
        lines = [line for block in blocks if block.kind == kind for line in block.lines]
        if lines:
            joined.append(Block(kind, tuple(lines)))
    return joined


def _trust(source: str) -> int:
    return _TRUST.index(source) if source in _TRUST else len(_TRUST)


def _unread(text: Text, parts: Split, told: Sequence[Sighting]) -> list[str]:
    unread = [word for sighting in told for word in sighting.unread]
    unread += gaps(parts.rest)
    if not (told or parts.blocks):
        unread.append(
            "nothing in it was understood: paste the output of nvidia-smi, nvidia-smi topo -m, "
            "lspci -vv or rocm-smi"
        )
    if text.skipped:
        unread.append(text.skipped)
    return unread
