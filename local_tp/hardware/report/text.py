"""The report for a terminal, to be read by a stranger: findings first, then the machine.

Knows nothing of how anything was learned. Plain characters, no colours, no cursor movement.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from local_tp.facts import Finding
from local_tp.hardware.devices import short_names
from local_tp.hardware.report.facts import Fact, Table, device_facts, system_facts, tables
from local_tp.hardware.report.report import Report, device_labels, printable, summary, worst_first

WORDS = {"error": "ERROR", "warning": "WARNING", "info": "NOTE"}
UNREAD_SHOWN = 12


def report_text(report: Report, width: int = 96) -> str:
    """Several lines, none wider than `width` except where a table needs more."""
    labels = device_labels(report.rig)
    lines = [f"Findings: {summary(report)}"]
    for finding in worst_first(report.findings):
        lines += ["", *_finding(finding, labels, width)]
    if system := system_facts(report.rig):
        lines += ["", "Machine", *_facts(system, 2, width)]
    for name, device in short_names(report.rig).items():
        lines += ["", *_wrapped(f"{name}  {device.name}", width)]
        lines += _facts(device_facts(device), 2, width)
    for table in tables(report.rig):
        lines += ["", *_table(table)]
    if report.rig.unknown:
        lines += ["", "Not known", *_items(report.rig.unknown, width)]
    if report.unread:
        shown = report.unread[:UNREAD_SHOWN]
        lines += ["", "Not understood in the text that was given", *_items(shown, width)]
        if more := len(report.unread) - len(shown):
            lines.append(f"  and {more:,} more")
    return "\n".join(line.rstrip() for line in lines)


def _finding(finding: Finding, labels: dict[str, str], width: int) -> Iterator[str]:
    concerned = ", ".join(labels.get(device, device) for device in finding.devices)
    head = f"{WORDS[finding.severity]}  {finding.id}{': ' if concerned else ''}{concerned}"
    yield from _wrapped(head, width)
    said = (("Seen", finding.evidence), ("Costs", finding.cost), ("Do", finding.remedy))
    yield from _facts((Fact(*row) for row in said if row[1]), 2, width)


def _facts(facts: Iterable[Fact], indent: int, width: int) -> Iterator[str]:
    rows = tuple(facts)
    column = max((len(row.label) for row in rows), default=0) + 2
    for label, value in rows:
        yield from textwrap.wrap(
            printable(value),
            width,
            initial_indent=f"{'':{indent}}{label:<{column}}",
            subsequent_indent=" " * (indent + column),
            break_on_hyphens=False,
        )


def _items(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from _wrapped(line, width, "  ")


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text), width, initial_indent=indent, subsequent_indent=f"{indent}  "
    )


def _table(table: Table) -> Iterator[str]:
    yield table.title
    grid = [tuple(map(printable, row)) for row in (table.columns, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    for first, *cells in grid:
        rest = "".join(f"  {c:>{w}}" for c, w in zip(cells, widths[1:], strict=True))
        yield f"  {first:<{widths[0]}}{rest}"
