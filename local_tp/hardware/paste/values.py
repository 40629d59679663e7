"""Numbers, sizes and answers as tools print them.

Knows nothing of where they stand. What is not a value, such as `N/A`, `[Not Supported]` or
`ERR!`, is None: never zero, never no.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*\(?\s*([-+]?\d{1,18}(?:\.\d{0,9})?)\s*([A-Za-z%/°]*)")
_ABSENT = re.compile(
    r"\s*\[?\s*(?:n/?a|none|not supported|not available|unsupported|unknown(?: error)?|err!?|error"
    r"|insufficient permissions|gpu is lost|function not found|requested functionality.*"
    r"|deprecated|could not collect|-|)\s*\]?\s*",
    re.IGNORECASE,
)
_GONE = re.compile(r"\s*\[?\s*(?:gpu is lost|unknown error)\s*\]?\s*", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_YES = frozenset({"yes", "on", "enabled", "active", "true", "supported"})
_NO = frozenset({"no", "off", "disabled", "not active", "inactive", "false"})


def known(text: str | None) -> str | None:
    """The text if it says something, else None."""
    if text is None or len(text) > 500 or _ABSENT.fullmatch(text):
        return None
    return text.strip()


def gone(text: str) -> bool:
    """Whether this stands in a value's place because the driver no longer reaches the card."""
    return bool(_GONE.fullmatch(text[:40]))


def number(text: str | None) -> float | None:
    """The number that a text begins with, whatever its unit."""
    match = _NUMBER.match(text) if text and known(text) else None
    return float(match[1]) if match else None


def whole(text: str | None) -> int | None:
    """The whole number that a text begins with."""
    value = number(text)
    return None if value is None else int(value)


def size(text: str | None, unit: str = "MiB") -> int | None:
    """Bytes. `unit` counts where the text names none; KB, MB and GB are read as powers of 1024.

    Tools that print memory mean powers of two whichever way they spell them.
    """
    match = _NUMBER.match(text) if text and known(text) else None
    if not match:
        return None
    power = _POWERS.get((match[2] or unit)[:1].lower(), 0)
    value = float(match[1])
    return int(value * 1024**power) if value >= 0 else None


def answer(text: str | None) -> bool | None:
    """Yes or no, in any of the words that drivers use."""
    word = (text or "").strip().strip("[]").lower()
    return True if word in _YES else False if word in _NO else None


def generation(speed: str | None) -> int | None:
    """The PCI Express generation of a lane speed such as `16GT/s`."""
    value = number(speed)
    speeds = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
    return speeds.get(value) if value is not None else None


def capability(text: str | None) -> tuple[int, int] | None:
    """A CUDA compute capability such as `8.6`."""
    match = re.fullmatch(r"\s*(\d{1,2})\.(\d{1,2})\s*", text or "")
    return (int(match[1]), int(match[2])) if match else None


def program(text: str | None) -> str | None:
    """The bare name of a program, of its path in any system's spelling."""
    name = known(text)
    if not name:
        return None
    return re.split(r"[\\/]", name.split(" --", 1)[0])[-1].strip()[:80] or None
