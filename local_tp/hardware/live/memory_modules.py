"""How the RAM is populated: channels in use and their speed, as the firmware's table states.

Knows nothing of how fast memory is in fact. Only an administrator may read the table; for anybody
else it stays unknown.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import NamedTuple

from local_tp.hardware.live.timed_program import run_for

SECONDS = 2.0
_CHANNEL = re.compile(r"CHANNEL[\s_]*([A-Z0-9]+)|DIMM[\s_]?([A-Z])\d", re.IGNORECASE)
_CONTROLLER = re.compile(r"(?:Controller|Node|CPU|\bP|Proc)[\s_]*(\d+)", re.IGNORECASE)


class Modules(NamedTuple):
    """Populated channels, and mega-transfers a second as configured."""

    channels: int | None = None
    speed: int | None = None


def read_modules() -> Modules:
    """Ask `dmidecode`, where it is installed and we may."""
    program = shutil.which("dmidecode")
    if sys.platform != "linux" or program is None or os.geteuid() != 0:
        return Modules()
    try:
        ended = run_for([program, "--type", "17"], SECONDS)
    except OSError:
        return Modules()
    return parse_modules(ended.output.decode(errors="replace")) if ended.code == 0 else Modules()


def parse_modules(text: str) -> Modules:
    """The memory devices of a `dmidecode --type 17` listing, empty sockets left out."""
    channels: set[str | None] = set()
    speeds: list[int] = []
    for block in text.split("\n\n"):
        values = dict(re.findall(r"^\t([\w ]+): (.*)$", block, re.MULTILINE))
        if not re.match(r"\d+ [MG]B", values.get("Size", "")):
            continue
        speed = values.get("Configured Memory Speed") or values.get("Configured Clock Speed") or ""
        if match := re.match(r"(\d+) (?:MT/s|MHz)", speed):
            speeds.append(int(match.group(1)))
        channels.add(_channel(f"{values.get('Bank Locator', '')} {values.get('Locator', '')}"))
    # One module in an unnamed place makes every count a guess.
    known = None if None in channels else len(channels) or None
    return Modules(known, min(speeds, default=None))


def _channel(place: str) -> str | None:
    """The memory controller and channel in a board maker's name for a socket."""
    channel, controller = _CHANNEL.search(place), _CONTROLLER.search(place)
    if channel is None:
        return None
    letter = channel.group(1) or channel.group(2)
    return f"{controller.group(1) if controller else ''}{letter.upper()}"
