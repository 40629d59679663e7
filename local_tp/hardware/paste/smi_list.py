"""`nvidia-smi -L` and `nvidia-smi nvlink -s`: cards by number, and the state of NVLink ports.

Knows nothing of what the ports lead to, but where the output names a bus id. The same list of
cards stands in `collect_env`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from local_tp.facts import CardFacts, NvLink, Vendor
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import mig
from local_tp.hardware.paste.sighting import Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import number

_CARD = re.compile(r"\s*GPU (\d{1,3}): (\S[^\n]{1,200})")
_UUID = re.compile(r"\s*\(UUID: ([^)]{1,60})\)")
_LINK = re.compile(r"\s*Link (\d{1,2})(?:: |, )(\S.{0,120})")
_PEER = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_ALL_DOWN = re.compile(r"NVLink information as all links are inactive", re.IGNORECASE)
_GB = 10**9


def _starts(line: str) -> bool:
    match = _CARD.match(line)
    return bool(match) and _vendor(match[2] if match else "") is not None


def _continues(line: str) -> bool:
    return _starts(line) or bool(_LINK.match(line) or mig.listed(line) or _ALL_DOWN.search(line))


def _vendor(name: str) -> Vendor | None:
    if re.search(r"NVIDIA|GeForce|RTX|GTX|Tesla|Quadro|TITAN|UUID: GPU-", name):
        return "nvidia"
    return "amd" if re.search(r"AMD|Radeon|Instinct", name) else None


def parse(lines: Sequence[Line]) -> Sighting:
    """The cards, each with its ports and slices."""
    cards: list[Card] = []
    for line in lines:
        if match := _CARD.match(line.text):
            uuid = _UUID.search(match[2])
            name = _UUID.sub("", match[2]).strip()
            told = uuid[1] if uuid and re.search("[1-9a-f]", uuid[1][4:]) else None
            facts = CardFacts(vendor=_vendor(match[2]))
            cards.append(Card(number=int(match[1]), name=name, uuid=told, facts=facts))
        elif cards and (match := _LINK.match(line.text)):
            cards[-1] = _with_port(cards[-1], int(match[1]), match[2])
        elif cards and _ALL_DOWN.search(line.text):
            facts = replace(cards[-1].facts, nvlinks=(NvLink(0, up=False),))
            cards[-1] = replace(cards[-1], facts=facts)
        elif cards and (part := mig.listed(line.text)):
            facts = replace(cards[-1].facts, mig=True)
            slices = mig.joined(cards[-1].slices, (part,))
            cards[-1] = replace(cards[-1], facts=facts, slices=slices)
    return Sighting("nvidia-smi -L", cards=tuple(cards))


def _with_port(card: Card, index: int, text: str) -> Card:
    if "GB/s" not in text and "inactive" not in text.lower() and not _PEER.search(text):
        return card  # a capability or a counter of the port
    up = "inactive" not in text.lower()
    speed = number(text) if "GB/s" in text else None
    peer = _PEER.search(text)
    told = NvLink(
        index,
        up=up,
        bandwidth=speed * _GB if speed else None,
        peer=bus_id(peer[1]) if peer else None,
    )
    others = tuple(port for port in card.facts.nvlinks if port.index != index)
    return replace(card, facts=replace(card.facts, nvlinks=(*others, told)))


KIND = Kind("nvidia-smi -L", _starts, _continues, parse)
