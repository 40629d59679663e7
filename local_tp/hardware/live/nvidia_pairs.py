"""What the NVIDIA driver says of each pair of its cards: NVLink, peer-to-peer, common ancestor.

Knows nothing of whether it is true: NVML calls peer-to-peer good on machines where not one byte
arrives, so a link stays "not verified" until a checked copy says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pynvml

from local_tp.core import Device, Link
from local_tp.facts import P2pStatus, PairFacts
from local_tp.hardware.live.nvidia_nvlink import SWITCH
from local_tp.hardware.live.nvidia_reader import Reader
from local_tp.hardware.live.nvidia_words import P2P_STATES, PATHS, error_words

_READ, _WRITE, _ATOMICS = 0, 1, 3  # indices of nvmlDeviceGetP2PStatus


def read_pairs(cards: Sequence[tuple[Device, Any]]) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """A link for each pair of (card, its NVML handle), and what could not be learned."""
    unknown = _strange_peers([device for device, _ in cards])
    links = []
    for (a, a_handle), (b, b_handle) in combinations(cards, 2):
        reader = Reader(f"{a.id} to {b.id}")
        try:
            facts = _pair(a, a_handle, b, b_handle, reader)
        except pynvml.NVMLError as error:  # one of them was lost after it had been read
            reader.miss("peer-to-peer", error_words(error.value))
            facts = PairFacts()
        links.append(Link(a.id, b.id, "nvlink" if facts.nvlinks else "host", facts=facts))
        unknown += reader.unknown
    return tuple(links), tuple(unknown)


def slice_links(
    slices: Sequence[Device], cards: Sequence[Device], links: Sequence[Link]
) -> tuple[Link, ...]:
    """Links of MIG slices among themselves and with other cards, on their own cards' ways.

    All go through the PC's memory: no slice reaches another's, or is reached.
    """
    paths = {frozenset((link.a, link.b)): link.facts.path for link in links}
    found = []
    for a, b in combinations((*cards, *slices), 2):
        homes = [device.facts.slice_of or device.id for device in (a, b)]
        if not (a.facts.slice_of or b.facts.slice_of) or b.facts.slice_of == a.id:
            continue
        path = "self" if homes[0] == homes[1] else paths.get(frozenset(homes))
        found.append(Link(a.id, b.id, "host", facts=PairFacts(path=path)))
    return tuple(found)


def _pair(a: Device, a_handle: Any, b: Device, b_handle: Any, reader: Reader) -> PairFacts:
    def p2p(what: str, index: int) -> P2pStatus | None:
        call = pynvml.nvmlDeviceGetP2PStatus
        code = reader.optional(f"peer-to-peer {what}", call, a_handle, b_handle, index)
        return None if code is None else P2P_STATES.get(code, "unknown")

    ancestor = pynvml.nvmlDeviceGetTopologyCommonAncestor
    level = reader.optional("common ancestor", ancestor, a_handle, b_handle)
    return PairFacts(
        path=None if level is None else PATHS.get(level),
        nvlinks=_nvlinks(a, b),
        read=p2p("read", _READ),
        write=p2p("write", _WRITE),
        atomics=p2p("atomics", _ATOMICS),
    )


def _nvlinks(a: Device, b: Device) -> int | None:
    """How many NVLinks join two cards, None where neither has a port."""
    if not a.facts.nvlinks and not b.facts.nvlinks:
        return None
    forth = sum(port.peer == b.id for port in a.facts.nvlinks)
    back = sum(port.peer == a.id for port in b.facts.nvlinks)
    switched = min(sum(p.peer == SWITCH for p in d.facts.nvlinks) for d in (a, b))
    return max(forth, back, switched)


def _strange_peers(devices: list[Device]) -> list[str]:
    known = {device.id for device in devices} | {SWITCH, None}
    return [
        f"{device.id}: its NVLink leads to {peer}, no card read here"
        for device in devices
        for peer in sorted({str(p.peer) for p in device.facts.nvlinks if p.peer not in known})
    ]
