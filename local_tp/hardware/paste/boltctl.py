"""`boltctl`: how many devices hang at Thunderbolt or USB4 ports and may be used.

Knows nothing of what they are: a dock and a case for a graphics card look alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from local_tp.hardware.paste.sighting import Kind, Sighting
from local_tp.hardware.paste.text import Line

_DEVICE = re.compile(r"\s*[\u25cf\u25cb]\s+\S")
_ENTRY = re.compile(
    r"[\s\u2502|]*(?:\u251c\u2500|\u2514\u2500|\|-|`-)\s*([a-z ]{2,20}):?\s*(.{0,120})"
)


def _starts(line: str) -> bool:
    return bool(_DEVICE.match(line))


def _continues(line: str) -> bool:
    return bool(_DEVICE.match(line) or _ENTRY.match(line) or not line.strip("\u2502| "))


def parse(lines: Sequence[Line]) -> Sighting:
    """The number of peripherals that are connected and let in."""
    devices: list[dict[str, str]] = []
    for line in lines:
        if _DEVICE.match(line.text):
            devices.append({})
        elif devices and (match := _ENTRY.match(line.text)):
            devices[-1].setdefault(match[1].strip(), match[2].strip())
    here = [one for one in devices if one.get("type", "peripheral") == "peripheral"]
    let_in = sum(one.get("status", "").startswith("authorized") for one in here)
    return Sighting("boltctl", plugged=let_in)


KIND = Kind("boltctl", _starts, _continues, parse)
