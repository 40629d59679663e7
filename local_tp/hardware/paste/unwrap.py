"""Takes off what stands before every line: quotation marks, bullets, line numbers, a log's times.

Knows nothing of any tool's output. A mark is taken off only where nearly all lines have it, so
that a tool's own signs stay; indentation, where all of a text or a paragraph has it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from local_tp.hardware.paste.line_numbers import without_numbers

_TIME = (
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_LOG = (
    rf"[ \t]{{0,3}}[\[(]?{_TIME}[\])]?(?!\s*,)"
    r"(?:\s{1,2}(?:[\w.-]{1,64}\s)?(?:[\w.@/-]{1,48}\[\d{1,10}\]|kernel):(?=\s|\Z))?"
    r"(?:\s[\[(]?(?:DEBUG|INFO|WARN(?:ING)?|ERROR)[\])]?:?(?=\s|\Z))?"
)
# Each with the share of lines that must have it. A stroke after a time may be a table's own.
_MARKS: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"[ \t]{0,3}>{1,8}(?![=>])(?: |\Z)"), 0.9),
    (re.compile(r"[ \t]{0,8}[-*](?: (?!\*\*)|\Z)"), 0.9),
    (re.compile(_LOG + r"\s[|:-](?:[ \t]|\Z)"), 1.0),
    (re.compile(r"[a-z][\w.-]{0,63} {0,16}\|(?: |\Z)"), 1.0),  # Docker Compose's service
    (re.compile(_LOG + r"(?:[ \t]|\Z)"), 0.9),
)
_MOST_MARKS = 8  # a quotation in a list in a log
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,5});")
_XML = "<nvidia_smi_log", "<gpu"


def unwrapped(lines: Sequence[str]) -> list[str]:
    """The lines without the marks and the indentation that were put in front of them."""
    plain = _unescaped(list(lines))
    for _ in range(_MOST_MARKS):
        plain = without_numbers(_without_indent(plain))
        mark = next((mark for mark, share in _MARKS if _is_everywhere(mark, share, plain)), None)
        if mark is None:
            break
        plain = [mark.sub("", line, count=1) if mark.match(line) else line for line in plain]
    return _without_code_indent(plain)


def _unescaped(lines: list[str]) -> list[str]:
    """The lines with HTML's entities as characters, unless they are XML, whose own they are."""
    if any(mark in line for line in lines for mark in _XML):
        return lines
    return [html.unescape(line) if "&" in line and _ENTITY.search(line) else line for line in lines]


def _is_everywhere(mark: re.Pattern[str], share: float, lines: Sequence[str]) -> bool:
    """Whether `share` of the lines begin so, and of the first hundred: all where they are few."""
    filled = [line for line in lines if line.strip()]
    for some in (filled[:100], filled):
        if not some or sum(map(bool, map(mark.match, some))) < (
            share if len(some) > 2 else 1
        ) * len(some):
            return False
    return True


def _without_indent(lines: list[str]) -> list[str]:
    widths = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    width = min(widths, default=0)
    return [line[width:] if line.strip() else "" for line in lines] if width else lines


def _without_code_indent(lines: list[str]) -> list[str]:
    """Paragraphs of code in Markdown, after a blank line and four spaces in or more."""
    plain: list[str] = []
    held: list[str] = []
    blank = True
    for line in (*lines, "end"):
        code = line.startswith("    ")
        if (code and (held or blank)) or (held and not line.strip()):
            held.append(line)
        else:
            plain += _code(held)
            held = []
            plain.append(line)
        blank = not line.strip()
    return plain[:-1]


def _code(held: list[str]) -> list[str]:
    """The paragraph, moved out where its first line is as far out as any and it is no lone line."""
    filled = [line for line in held if line.strip()]
    widths = [len(line) - len(line.lstrip(" ")) for line in filled]
    if len(filled) < 2 or widths[0] > min(widths):
        return held
    return [line[widths[0] :] if line.strip() else "" for line in held]
