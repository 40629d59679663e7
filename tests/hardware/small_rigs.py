"""Machines in a few words, for tests of what is measured and of what follows from it."""

from __future__ import annotations

from dataclasses import replace

from local_tp.core import Device, DeviceKind, Link, LinkKind, Rig
from local_tp.facts import PairFacts, Verdict

GIB = 1024**3
A, B, C = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"


def card(slot: str, kind: DeviceKind = "cuda", free: int = 8 * GIB) -> Device:
    return Device(slot, kind, f"card {slot[5:7]}", 12 * GIB, free, uuid=f"GPU-{slot[5:7]}")


def processor(name: str = "cpu") -> Device:
    return Device(name, "cpu", "processor", 16 * GIB, 8 * GIB)


def rig(*devices: Device, cores: int = 2) -> Rig:
    return Rig(devices, cores=cores, driver="610.1", ram=16 * GIB)


def linked(machine: Rig, *verdicts: tuple[str, str, Verdict | None]) -> Rig:
    """With a link for each pair, as measured."""
    links = []
    for a, b, verdict in verdicts:
        kind: LinkKind = "p2p" if verdict == "good" else "host"
        verified = verdict == "good"
        links.append(Link(a, b, kind, verified=verified, facts=PairFacts(verdict=verdict)))
    return replace(machine, links=tuple(links))
