"""Which transports a plan may use between devices, given what was verified between them.

Pure: reads a `Rig`, measures nothing. What was never checked is not trusted: before any
measurement everything between cards goes through the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from local_tp.core import Device, Link, Rig, Transport
from local_tp.errors import DeviceError

HARMFUL = ("broken", "hangs", "failed")


@dataclass(frozen=True, slots=True)
class Allowed:
    """`transports`, best first, never empty; `reasons` say why a better one is not among them."""

    transports: tuple[Transport, ...]
    reasons: tuple[str, ...] = ()

    @property
    def best(self) -> Transport:
        return self.transports[0]


def allowed_transport(rig: Rig, devices: Sequence[str]) -> Allowed:
    """What ranks on `devices` (ids, one a rank, repeated where ranks share one) may use.

    NCCL needs all of these: distinct whole cards of one kind, a verdict for every pair and none
    that is broken, hangs or failed, and an all-reduce over NCCL whose sums were checked and right.
    A pair without peer access is no hindrance: NCCL then goes through the host. Raises
    `DeviceError` for an id that the rig does not have.
    """
    by_id = {device.id: device for device in rig.devices}
    if missing := [name for name in devices if name not in by_id]:
        raise DeviceError(f"this machine has no device {missing[0]}: it has {', '.join(by_id)}")
    ranks = [by_id[name] for name in devices]
    if len(ranks) < 2:
        return Allowed(("none",))
    if all(device.kind == "cpu" for device in ranks):
        return _among_processors(rig, ranks)
    if why := _no_nccl(rig, ranks):
        return Allowed(("gloo",), (f"not NCCL: {why}",))
    return Allowed(("nccl", "gloo"))


def forbidding_pairs(rig: Rig, devices: Sequence[str]) -> tuple[Link, ...]:
    """The links among `devices` whose verdict forbids every use of peer access."""
    pairs = (_link(rig, a, b) for a, b in combinations(dict.fromkeys(devices), 2))
    return tuple(link for link in pairs if link and link.facts.verdict in HARMFUL)


def _among_processors(rig: Rig, ranks: Sequence[Device]) -> Allowed:
    if not all(device.ordered_stores for device in ranks):
        why = "this processor may show its stores to other cores out of order"
    elif _sums(rig, "shared-memory", ranks) is False:
        why = "its sums were wrong when they were checked"
    else:
        return Allowed(("shared-memory", "gloo"))
    return Allowed(("gloo",), (f"not shared memory: {why}",))


def _no_nccl(rig: Rig, ranks: Sequence[Device]) -> str | None:
    """Why NCCL must not be used, or None if it may."""
    kinds, ids = {device.kind for device in ranks}, [device.id for device in ranks]
    if len(kinds) > 1 or not kinds <= {"cuda", "rocm"}:
        return "the devices are of different kinds, or of one that it does not serve"
    if len(set(ids)) < len(ids):
        return "several ranks share a card"
    if any(device.facts.slice_of for device in ranks):
        return "no MIG slice reaches another one"
    for link in forbidding_pairs(rig, ids):
        return f"copies between {link.a} and {link.b} were tried and the verdict is: {_said(link)}"
    for a, b in combinations(ids, 2):
        known = _link(rig, a, b)
        if known is None or known.facts.verdict is None:
            return f"copies between {a} and {b} were not checked yet: measure this machine first"
    sums = _sums(rig, "nccl", ranks)
    if sums is None:
        return "no sum over it was completed and checked on this machine"
    return None if sums else "its sums were wrong when they were checked"


def _said(link: Link) -> str:
    words = {"broken": "wrong data arrives", "hangs": "they hang", "failed": "the test failed"}
    return words.get(link.facts.verdict or "", "not known")


def _link(rig: Rig, a: str, b: str) -> Link | None:
    return next((link for link in rig.links if {link.a, link.b} == {a, b}), None)


def _sums(rig: Rig, transport: Transport, ranks: Sequence[Device]) -> bool | None:
    """Whether all checked sums over all of these devices were right; None if there were none.

    A sum over more devices speaks for these too, since it took the same ways among them.
    """
    ids = {device.id for device in ranks}
    checked = [
        collective.correct
        for collective in rig.collectives
        if collective.transport == transport and ids <= set(collective.devices)
    ]
    return all(checked) if checked else None
