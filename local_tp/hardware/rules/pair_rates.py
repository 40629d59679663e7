"""What the way between two cards was measured to carry, and whether peer-to-peer hinders it.

Knows nothing of why. A figure that was not measured is None, and then nothing is compared.
"""

from __future__ import annotations

from local_tp.core import Link
from local_tp.hardware.rules.advice import REFUSED

PEERS_REACH = 0.7  # of the way through memory; what is below is not the spread of two runs
LATE = 1e-3  # seconds; a message between peers takes microseconds


def pair_rate(link: Link) -> float | None:
    """What a pair was measured to carry in its slower direction, bytes a second."""
    ways = [way for way in (link.facts.forth, link.facts.back) if way]
    if ways:
        return min(ways)
    if link.measured and link.bandwidth:
        return link.bandwidth
    both = link.facts.both or link.facts.staged_both
    return link.facts.staged or (both / 2 if both else None)


def against_memory(link: Link) -> tuple[float, float] | None:
    """Bytes a second with peer-to-peer and without, where the first is far below the second."""
    facts = link.facts
    forth_back = min((way for way in (facts.forth, facts.back) if way), default=None)
    for direct, staged in ((forth_back, facts.staged), (facts.both, facts.staged_both)):
        if direct and staged and direct < PEERS_REACH * staged:
            return direct, staged
    return None


def answers_late(link: Link) -> float | None:
    """Seconds that a message between peers takes, where that is beyond all measure."""
    offered = "ok" in (link.facts.read, link.facts.write)
    return link.latency if offered and link.latency and link.latency >= LATE else None


def is_hindered(link: Link) -> bool:
    """Whether peer-to-peer is on and makes this pair slower than the PC's memory would."""
    refused = {link.facts.read, link.facts.write} & REFUSED
    return not refused and bool(against_memory(link) or answers_late(link))
