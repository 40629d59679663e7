"""Whether bridges send traffic between cards through the processor (PCIe access control, ACS).

Knows nothing of IOMMUs or of cards. Linux shows the registers only to an administrator; for
anybody else the answer is None.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from local_tp.hardware.live import pci

_FIRST_EXTENDED, _END = 0x100, 0x1000
_ACS = 0x000D
_REDIRECTS = 0b1100  # request redirect, completion redirect


def redirects_peers(root: Path) -> bool | None:
    """Whether a bridge above a graphics card redirects; None where no bridge's register is read."""
    above = {bridge.folder for card in pci.graphics(root) for bridge in pci.bridges(card)}
    answers = [answer for folder in above if (answer := _redirects(folder)) is not None]
    return any(answers) if answers else None


def _redirects(folder: Path) -> bool | None:
    try:
        space = (folder / "config").read_bytes()
    except OSError:
        return None
    if len(space) < _END:
        return None
    for capability, offset in _extended(space):
        if capability == _ACS and offset + 8 <= _END:
            (control,) = struct.unpack_from("<H", space, offset + 6)
            return bool(control & _REDIRECTS)
    return False


def _extended(space: bytes) -> Iterable[tuple[int, int]]:
    """Number and offset of each extended capability; a damaged chain ends it."""
    offset, seen = _FIRST_EXTENDED, set[int]()
    while _FIRST_EXTENDED <= offset <= _END - 4 and offset not in seen:
        seen.add(offset)
        (header,) = struct.unpack_from("<I", space, offset)
        yield header & 0xFFFF, offset
        offset = header >> 20
