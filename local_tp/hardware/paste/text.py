"""Bytes that somebody pasted, as plain numbered lines.

Knows nothing of any tool's output. Undoes what mail, forums, consoles and editors do to text:
UTF-16, byte order marks, Windows line ends, quoting, code fences, colours. Never raises, and
never hands on more than `LIMIT` bytes, `MOST_LINES` lines, or `LINE_LIMIT` characters of a line.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from local_tp.hardware.paste.unwrap import unwrapped

LIMIT = 2 * 1024**2
MOST_LINES = 20_000
LINE_LIMIT = 1024**2
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]|\x1b[()][A-Z0-9]|\x1b")
_BARE_ESCAPES = re.compile(r"\[4m|\[0m")  # an underline whose escape character was lost
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_QUOTE = re.compile(r"[ \t]{0,3}>(?![=>]) ?")
_FENCE = re.compile(r"\s{0,8}(?:```|~~~)[\w+-]{0,20}\s*\Z")


class Line(NamedTuple):
    """One line without its end. `number` counts from 1 in the text it came from."""

    number: int
    text: str


class Text(NamedTuple):
    """A pasted text under the name it goes by; `skipped` says in words what is past the limits."""

    name: str
    lines: tuple[Line, ...]
    skipped: str | None = None


def read_text(name: str, data: bytes, limit: int = LIMIT) -> Text:
    """The lines of the first `limit` bytes of `data`, unquoted and without escapes."""
    kept = data[:limit]
    text = _decode(kept).replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n")
    head = text[:4096]
    if 4 * sum(head.count(mark) for mark in "\ufffd\x00\x01\x02\x03") > len(head) > 64:
        return Text(name, (), "it is not text")
    pieces = text.split("\n", MOST_LINES)
    skipped = None
    if len(kept) < len(data):
        skipped = f"the last {len(data) - len(kept):,} bytes were skipped: 2 MiB in all are read"
    elif len(pieces) > MOST_LINES:
        skipped = f"what follows line {MOST_LINES:,} was skipped: no more lines than that are read"
    plain = unwrapped([_plain(line[:LINE_LIMIT]) for line in pieces[:MOST_LINES]])
    lines = tuple(Line(number, line) for number, line in enumerate(plain, 1))
    return Text(name, lines, skipped)


def _decode(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    head = data[:4096]
    if len(head) >= 4 and head[1::2].count(0) > len(head) // 4:
        return data.decode("utf-16-le", errors="replace")
    if len(head) >= 4 and head[0::2].count(0) > len(head) // 4:
        return data.decode("utf-16-be", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def _plain(line: str) -> str:
    for _ in range(8):  # a quotation of a quotation
        if not (match := _QUOTE.match(line)):
            break
        line = line[match.end() :]
    if "\x1b" in line or "[4m" in line:
        line = _BARE_ESCAPES.sub("", _ESCAPES.sub("", line))
    line = line.replace("\xa0", " ").replace("\u200b", "")
    line = _CONTROLS.sub(" ", line).rstrip()
    return "" if _FENCE.match(line) else line
