"""The many spellings of a card's name, brought to one key.

Knows nothing of which cards exist. NVML, nvidia-smi, rocm-smi, lspci and collect_env agree on
the words that tell cards apart ("3060", "ti", "laptop") and differ in all others; a key is those
words alone, written together. Memory sizes are kept apart from it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 200  # characters of a name that are looked at

_BEFORE = re.compile(r"^.*?(?:controller|accelerators?)(?: \[[0-9a-f]{4}\])?: ")
_DROPPED = re.compile(
    r"\((?:r|tm|c)\)|[®™]|\[amd/ati\]|\badvanced micro devices(?:,? inc\.?)?|\bnvidia corporation"
    r"|\bintel corporation|\(?\brev\.? ?[0-9a-f]{1,2}\b\)?|\blite hash rate\b|\blhr\b"
    r"|\[[0-9a-f]{4}(?::[0-9a-f]{4})?\]|\bmig \d.*$"
)
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_PARENTHESES = re.compile(r"\([^()]*\)")
_SIZE = re.compile(r"\b(\d{1,3})[ -]?gi?b\b")
_WORD = re.compile(r"[a-z0-9.]+")
_NOISE = frozenset(
    (
        "nvidia",
        "geforce",
        "tesla",
        "quadro",
        "amd",
        "ati",
        "radeon",
        "instinct",
        "intel",
        "graphics",
        "gpu",
        "series",
        "generation",
        "edition",
        "workstation",
        "with",
        "design",
    )
)


class Spelling(NamedTuple):
    """A card's key, and the GiB of memory that its name states."""

    key: str
    size: int | None


def spelling(text: str) -> Spelling:
    """One name without alternatives: `GeForce RTX 3060 12 GB` is ("rtx3060", 12)."""
    words, size = _words(text.lower())
    return Spelling("".join(words), size)


def readings(name: str) -> tuple[str, ...]:
    """The parts of `name` that may name a card, the likeliest first.

    lspci writes the chip, then the card in brackets; Mesa adds the chip in parentheses.
    """
    text = _DROPPED.sub(" ", _BEFORE.sub("", name[:LONGEST].lower()))
    inside = _BRACKETS.findall(text)
    outside = _BRACKETS.sub(" ", text)
    parts = (*inside[-1:], outside, _PARENTHESES.sub(" ", outside))
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def alternatives(reading: str) -> tuple[tuple[Spelling, ...], ...]:
    """What `A/B/C` may mean: for each alternative the spellings to try, in order.

    A later alternative leaves out words that it shares with the first:
    `Radeon RX 7900 XT/7900 XTX`.
    """
    first, *others = reading.split("/")
    words, size = _words(first)
    spelled: list[tuple[Spelling, ...]] = [(Spelling("".join(words), size),)]
    for other in others:
        own, size = _words(other)
        shared = (words[:count] for count in range(len(words) + 1))
        spelled.append(tuple(Spelling("".join(start + own), size) for start in shared))
    return tuple(spelled)


def truncated(name: str) -> str | None:
    """The beginning of a key where a table cut the name short with dots; None otherwise."""
    start = name.strip()[:LONGEST]
    return spelling(start.rstrip(".")).key if start.endswith("...") else None


def _words(text: str) -> tuple[list[str], int | None]:
    """The words of lower-case `text` that tell cards apart, and a memory size among them."""
    size = _SIZE.search(text)
    plain = _SIZE.sub(" ", text).replace("max-q", "maxq").replace("mobile", "laptop")
    words = [word for word in _WORD.findall(plain) if word not in _NOISE]
    return words, int(size[1]) if size else None
