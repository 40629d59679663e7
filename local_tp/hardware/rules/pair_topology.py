"""Whether the place of two cards is why a driver refuses them peer access.

Knows nothing of what the cards are. A driver that grants each of the two a nearer card and
refuses the pair across sockets means the way between the sockets.
"""

from __future__ import annotations

from collections.abc import Sequence

from local_tp.core import Link
from local_tp.hardware.rules.advice import REFUSED

ACROSS = "SYS"


def is_refused_across(link: Link, links: Sequence[Link]) -> bool:
    """Whether a pair across sockets is refused what each of its cards has with a nearer one."""
    refused = {link.facts.read, link.facts.write} & REFUSED
    if link.facts.path != ACROSS or not refused:
        return False
    granted = [
        {near.a, near.b}
        for near in links
        if near.facts.path not in (None, ACROSS)
        and "ok" in (near.facts.read, near.facts.write)
        and not {near.facts.read, near.facts.write} & REFUSED
    ]
    return all(any(end in ends for ends in granted) for end in (link.a, link.b))
