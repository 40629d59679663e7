"""The report as HTML: one file that fetches nothing, light or dark as its reader's system is.

Knows nothing of how anything was learned. Every foreign word is escaped. `report_body` is the
same report without the frame, for a page that brings its own colours as `--r-…` variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as escape_html

from local_tp.core import Rig
from local_tp.facts import Finding
from local_tp.hardware.devices import short_names
from local_tp.hardware.report.facts import Fact, Table, device_facts, system_facts, tables
from local_tp.hardware.report.report import Report, device_labels, printable, summary, worst_first
from local_tp.hardware.report.topology_svg import topology_svg

WORDS = {"error": "Error", "warning": "Warning", "info": "Note"}
STYLE = """
.tp-report { color: var(--r-text); font-size: 14px; line-height: 1.5; overflow-wrap: anywhere; }
.tp-report h1 { font-size: 22px; margin: 0 0 2px; }
.tp-report h2 { font-size: 16px; margin: 28px 0 10px; }
.tp-report h3 { font-size: 14px; margin: 0 0 6px; }
.tp-report p { margin: 0; }
.tp-report .tp-quiet { color: var(--r-quiet); }
.tp-report article { background: var(--r-panel); border: 1px solid var(--r-line);
  border-left: 4px solid var(--r-mark); border-radius: 8px; padding: 10px 14px; margin: 10px 0; }
.tp-report .tp-error { --r-mark: #dc3a2f; }
.tp-report .tp-warning { --r-mark: #d08a00; }
.tp-report .tp-info { --r-mark: #4a74f0; }
.tp-report article header { display: flex; flex-wrap: wrap; gap: 2px 10px; margin-bottom: 4px; }
.tp-report article header b { color: var(--r-mark); }
.tp-report dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 14px;
  margin: 0; }
.tp-report dt { color: var(--r-quiet); }
.tp-report dd { margin: 0; }
.tp-report .tp-cards { display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); }
.tp-report .tp-panel { background: var(--r-panel); border: 1px solid var(--r-line);
  border-radius: 8px; padding: 12px 14px; }
.tp-report .tp-wide { overflow-x: auto; }
.tp-report .tp-wide + .tp-wide { margin-top: 12px; }
.tp-report .tp-topology { display: block; margin: 0 auto; }
.tp-report table, .tp-report tr { border: 0; }
.tp-report table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.tp-report caption { text-align: left; white-space: nowrap; color: var(--r-quiet);
  padding-bottom: 4px; }
.tp-report th, .tp-report td { padding: 3px 12px 3px 0; text-align: right; vertical-align: top;
  border: 0; border-bottom: 1px solid var(--r-line); font-weight: 400; overflow-wrap: normal; }
.tp-report th { color: var(--r-quiet); white-space: nowrap; }
.tp-report th:first-child { text-align: left; }
.tp-report ul { margin: 0; padding-left: 20px; }
.tp-report pre { margin: 8px 0 0; white-space: pre-wrap; font-size: 12px; }
.tp-report summary { cursor: pointer; }
"""
FRAME_STYLE = """
:root { color-scheme: light dark; --r-page: #f6f7f9; --r-panel: #fff; --r-text: #1b2330;
  --r-quiet: #5a6675; --r-line: #dde2e8; }
@media (prefers-color-scheme: dark) {
  :root { --r-page: #12161c; --r-panel: #1a2029; --r-text: #e6eaf0; --r-quiet: #9aa6b5;
    --r-line: #303947; }
}
body { margin: 0; background: var(--r-page);
  font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px clamp(12px, 3vw, 32px) 48px; }
@media print { body { background: none; } article, .tp-panel { break-inside: avoid; } }
"""


def report_html(report: Report) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>Hardware report</title>\n<style>{FRAME_STYLE}{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{report_body(report)}\n</main>\n</body>\n</html>\n"
    )


def report_body(report: Report) -> str:
    """Findings, picture, cards, tables; what is unknown and what was not understood."""
    rig = report.rig
    labels = device_labels(rig)
    found = "".join(_finding(finding, labels) for finding in worst_first(report.findings))
    picture = f"<div class='tp-panel tp-wide'>{topology_svg(rig)}</div>"
    between = (f"<div class='tp-panel tp-wide'>{_table(table)}</div>" for table in tables(rig))
    sections = (
        (f"Findings: {summary(report)}", found or " "),
        ("Topology", picture + "".join(between)),
        ("Machine", _panel(_facts(system_facts(rig)))),
        ("Devices", _devices(rig)),
        ("Not known", _panel("".join(f"<p>{escape(line)}</p>" for line in rig.unknown))),
        ("Not understood", _unread(report.unread)),
    )
    shown = "".join(f"<h2>{escape(title)}</h2>{body}" for title, body in sections if body)
    head = f"<h1>Hardware report</h1><p class='tp-quiet'>{escape(_machine(rig))}</p>"
    return f'<div class="tp-report">{head}{shown}</div>'


def escape(text: str) -> str:
    """Foreign text, on one line and without meaning to a browser."""
    return escape_html(printable(text))


def _machine(rig: Rig) -> str:
    cards = [device.name for device in rig.devices if device.kind != "cpu"]
    counted = [
        f"{cards.count(name)} × {name}" if cards.count(name) > 1 else name
        for name in dict.fromkeys(cards)
    ]
    return ", ".join([*(counted or ["no graphics card"]), *([rig.os] if rig.os else [])])


def _finding(finding: Finding, labels: dict[str, str]) -> str:
    concerned = ", ".join(labels.get(device, device) for device in finding.devices)
    said = (("Seen", finding.evidence), ("Costs", finding.cost), ("Do", finding.remedy))
    return (
        f'<article class="tp-{finding.severity}"><header><b>{WORDS[finding.severity]}</b>'
        f"<strong>{escape(finding.id)}</strong>"
        f'<span class="tp-quiet">{escape(concerned)}</span></header>'
        f"{_facts(Fact(*row) for row in said if row[1])}</article>"
    )


def _devices(rig: Rig) -> str:
    cards = "".join(
        f'<section class="tp-panel"><h3>{escape(name)} · {escape(device.name)}</h3>'
        f"{_facts(device_facts(device))}</section>"
        for name, device in short_names(rig).items()
    )
    return f'<div class="tp-cards">{cards}</div>' if cards else ""


def _unread(lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    listed = "\n".join(escape(line) for line in lines)
    title = f"{len(lines):,} line{'' if len(lines) == 1 else 's'}"
    return f"<details class='tp-panel'><summary>{title}</summary><pre>{listed}</pre></details>"


def _panel(body: str) -> str:
    return f"<div class='tp-panel'>{body}</div>" if body else ""


def _facts(facts: Iterable[Fact]) -> str:
    rows = "".join(f"<dt>{escape(f.label)}</dt><dd>{escape(f.value)}</dd>" for f in facts)
    return f"<dl>{rows}</dl>" if rows else ""


def _table(table: Table) -> str:
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in table.columns)
    body = "".join(
        f"<tr><th scope='row'>{escape(first)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
