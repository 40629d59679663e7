"""The report as Markdown for an issue tracker: findings in the open, details folded.

Knows nothing of how anything was learned. No text of a card or of pasted output can end a code
block, open a tag, mention a person or break a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from local_tp.hardware.devices import short_names
from local_tp.hardware.report.facts import Fact, Table, device_facts, system_facts, tables
from local_tp.hardware.report.report import Report, device_labels, printable, summary, worst_first

MARKS = {"error": "🔴 error", "warning": "🟡 warning", "info": "🔵 note"}
# GitHub and GitLab refuse bodies of more than 65,536 characters.
_CODE = re.compile(r"`([^`\s](?:[^`]*[^`\s])?)`")
UNREAD_SHOWN, UNREAD_WIDTH = 40, 200


def report_markdown(report: Report) -> str:
    """The text for the body of an issue, ending in a line break."""
    lines = [f"### Hardware report: {summary(report)}", ""]
    labels = device_labels(report.rig)
    for finding in worst_first(report.findings):
        concerned = ", ".join(labels.get(device, device) for device in finding.devices)
        lines.append(f"- **{MARKS[finding.severity]}: {escaped(finding.id)}** {escaped(concerned)}")
        said = (("Seen", finding.evidence), ("Costs", finding.cost))
        lines += [f"  - {label}: {escaped(text)}" for label, text in said if text]
        if finding.remedy:
            lines.append(f"  - Do: {_with_code(finding.remedy)}")
    lines += ["", *_cards(report)]
    if system := system_facts(report.rig):
        lines += _folded("Machine", _facts(system))
    for name, device in short_names(report.rig).items():
        lines += _folded(f"{name}: {device.name}", _facts(device_facts(device)))
    if between := tables(report.rig):
        body = [line for table in between for line in ("", f"**{table.title}**", *_table(table))]
        lines += _folded("Between cards", body)
    if report.rig.unknown:
        lines += _folded("Not known", (f"- {escaped(line)}" for line in report.rig.unknown))
    if report.unread:
        shown = (_cut(line) for line in report.unread[:UNREAD_SHOWN])
        title = f"Not understood ({len(report.unread):,})"
        lines += _folded(title, (f"- {escaped(line)}" for line in shown))
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Foreign text that reads the same and does nothing."""
    return re.sub(r"([\\`*\[\]|~#!]|\b_|_\b)", r"\\\1", _inert(text))


def _with_code(text: str) -> str:
    """A rule's own words with the commands in them as code, where nothing in those is escaped."""
    pieces = _CODE.split(text)  # what stands between backticks is at odd places
    return "".join(
        f"`{piece}`"
        if place % 2 and _inert(piece) == piece
        else escaped(f"`{piece}`" if place % 2 else piece)
        for place, piece in enumerate(pieces)
    )


def _inert(text: str) -> str:
    """One line without tags and mentions; what stands in an HTML line needs no more."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("@", "@\u2060")  # a word joiner, which is not seen


def _cards(report: Report) -> list[str]:
    cards = [(name, d) for name, d in short_names(report.rig).items() if d.kind != "cpu"]
    if not cards:
        return []
    rows = []
    for name, device in cards:
        facts = dict(device_facts(device))
        rows.append((name, device.name, facts.get("Memory", ""), facts.get("PCIe", "")))
    return [*_table(Table("", ("device", "name", "memory", "PCIe"), tuple(rows)))]


def _facts(facts: Iterable[Fact]) -> Iterator[str]:
    return (f"- {label}: {escaped(value)}" for label, value in facts)


def _table(table: Table) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(map(escaped, table.columns))} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    return [
        f"<details><summary>{_inert(title).replace('`', '&#96;')}</summary>",
        "",
        *lines,
        "",
        "</details>",
    ]


def _cut(line: str) -> str:
    return line if len(line) <= UNREAD_WIDTH else f"{line[:UNREAD_WIDTH]}…"
