"""`rocminfo`: AMD's cards as agents, each with its target, its place on the bus and its memory.

Knows nothing of links and loads. The processor is an agent too and is passed over. Agents have no
number of `rocm-smi`'s, for processors are counted among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from local_tp.facts import CardFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import rocm_values
from local_tp.hardware.paste.sighting import Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known, size, whole

_AGENT = re.compile(r"\s*Agent \d{1,3}\s*\Z")
_TITLE = re.compile(
    r"\s*(?:HSA System Attributes|HSA Agents|\*\*\* Done \*\*\*|ROCk module (?:version|is loaded))"
)
_ENTRY = re.compile(r"\s+([A-Z][\w #/()-]{1,40}?):(?:\s+(\S.{0,200}))?\s*\Z")
_RULE = re.compile(r"\s*(?:\*{3,}|={3,})\s*\Z")
_FEATURE = re.compile(r"\s{2,}(?:Pool \d|ISA \d|x\s+\d|y\s+\d|z\s+\d|\w{1,20}\(0x)")
_SYSTEM = ("Runtime", "System", "Sig.", "Machine", "Mwaitx", "XNACK", "DMAbuf", "VMM Support")


def _starts(line: str) -> bool:
    return bool(_AGENT.match(line) or (("HSA" in line or "ROCk" in line) and _TITLE.match(line)))


def _continues(line: str) -> bool:
    return bool(
        _starts(line)
        or _ENTRY.match(line)
        or _RULE.match(line)
        or _TITLE.match(line)
        or _FEATURE.match(line)
        or line.startswith(_SYSTEM)
    )


@dataclass(slots=True)
class _Agent:
    values: dict[str, str]
    pools: list[dict[str, str]]


def parse(lines: Sequence[Line]) -> Sighting:
    """The agents that are graphics."""
    agents: list[_Agent] = []
    for line in lines:
        if _AGENT.match(line.text):
            agents.append(_Agent({}, []))
        elif agents and (match := _ENTRY.match(line.text[:400])):
            agent, name, value = agents[-1], match[1], match[2] or ""
            if name == "Segment":
                agent.pools.append({})
            (agent.pools[-1] if agent.pools else agent.values).setdefault(name, value)
    found = [agent for agent in agents if agent.values.get("Device Type") == "GPU"]
    return Sighting("rocminfo", cards=tuple(map(_card, found)))


def _card(agent: _Agent) -> Card:
    target, place = known(agent.values.get("Name")), whole(agent.values.get("BDFID"))
    domain = whole(agent.values.get("Domain")) or 0
    slot = None
    if place is not None and 0 < place < 1 << 16:
        slot = bus_id(f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}")
    uuid = known(agent.values.get("Uuid"))
    own = [
        size((pool.get("Size") or "").partition("(")[0] + " KB")
        for pool in agent.pools
        if "GLOBAL" in pool.get("Segment", "")
    ]
    device = f"{whole(re.sub('[(].*', '', agent.values.get('Chip ID') or '')) or 0:04x}"
    name = rocm_values.called(known(agent.values.get("Marketing Name")), device)
    inside = rocm_values.is_inside(name, device, target)
    return Card(
        slot=slot,
        name=name,
        total=max((amount for amount in own if amount), default=None),
        uuid=uuid if uuid and "XX" not in uuid else None,
        facts=CardFacts(vendor="amd", architecture=target, integrated=True if inside else None),
    )


KIND = Kind("rocminfo", _starts, _continues, parse)
