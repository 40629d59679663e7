"""Pasted texts in the tests: read as a person's, and looked at by card, pair and finding."""

from __future__ import annotations

from local_tp.core import Device, Link, Rig
from local_tp.hardware.diagnose import diagnose
from local_tp.hardware.paste import Pasted, read_pasted

MIB = 1024**2
GIB = 1024**3


def read(*texts: str) -> Pasted:
    return read_pasted([(f"text {number}", text.encode()) for number, text in enumerate(texts)])


def by_id(rig: Rig) -> dict[str, Device]:
    return {device.id: device for device in rig.devices}


def pairs(rig: Rig) -> dict[tuple[str, str], Link]:
    """The pairs by bus alone, as `("01", "02")`, or by the cards' names where they have no bus."""
    return {(bus(link.a), bus(link.b)): link for link in rig.links}


def bus(id: str) -> str:
    return id[5:7] if ":" in id else id


def found(rig: Rig) -> dict[str, tuple[str, ...]]:
    """The findings' ids and devices."""
    return {finding.id: finding.devices for finding in diagnose(rig)}
