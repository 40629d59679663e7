"""A plan as one page that fetches nothing, light or dark, wide or narrow.

Pure. The same facts, in the same order, as `plan_text`. Every foreign word is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from local_tp.cli.plan_svg import escape, legend, plan_svg
from local_tp.cli.plan_text import (
    alternative_line,
    holding_rows,
    memory_rows,
    model_line,
    prediction_rows,
    settings_line,
    term_line,
)
from local_tp.core import ModelSpec, Plan, Rig
from local_tp.hardware.report.html import FRAME_STYLE, STYLE
from local_tp.plan.explain import Explanation, named

OWN_STYLE = """
.tp-picture { width: 100%; min-width: 320px; max-width: 620px; height: auto; display: block; }
.tp-picture .frame { fill: none; stroke: var(--r-line); }
.tp-picture .title { font-weight: 600; font-size: 12px; }
.tp-picture .quiet { fill: var(--r-quiet); }
.tp-picture .arrow { fill: none; stroke: var(--r-quiet); stroke-width: 1.5; }
.tp-report { --p-weights: #4a74f0; --p-kv: #12a5a0; --p-workspace: #d08a00; --p-reserve: #a66bd6;
  --p-others: #8b95a3; }
.tp-weights { fill: var(--p-weights); background: var(--p-weights); }
.tp-kv { fill: var(--p-kv); background: var(--p-kv); }
.tp-workspace { fill: var(--p-workspace); background: var(--p-workspace); }
.tp-reserve { fill: var(--p-reserve); background: var(--p-reserve); }
.tp-left { fill: var(--r-line); background: var(--r-line); }
.tp-others { fill: var(--p-others); background: var(--p-others); }
.tp-keys { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 12px; margin-top: 8px;
  color: var(--r-quiet); }
.tp-keys span { display: inline-flex; align-items: center; gap: 6px; }
.tp-keys i { width: 10px; height: 10px; border-radius: 2px; }
.tp-report td { white-space: nowrap; }
.tp-report .tp-last td, .tp-report .tp-last th { font-weight: 600; color: var(--r-text); }
"""


def plan_html(spec: ModelSpec, rig: Rig, plan: Plan, explanation: Explanation) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>Plan for {escape(plan.model)}</title>\n"
        f"<style>{FRAME_STYLE}{STYLE}{OWN_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{_body(spec, rig, plan, explanation)}\n</main>\n</body>\n</html>\n"
    )


def _body(spec: ModelSpec, rig: Rig, plan: Plan, explanation: Explanation) -> str:
    headline = explanation.headline[0].upper() + explanation.headline[1:]
    memory = _table(memory_rows(explanation.devices), last="together")
    sections = [
        ("", f"{plan_svg(plan, explanation)}{legend()}"),
        ("Memory, MiB", memory),
        ("What each worker holds", _table(holding_rows(spec, rig, plan))),
        ("Predicted", _predicted(plan, rig)),
        ("Why", _list(named(note, rig) for note in plan.notes)),
        ("Other plans", _list(alternative_line(a, rig) for a in plan.alternatives)),
        ("What would change this", _list(named(change, rig) for change in plan.changes)),
        (
            "Not certain",
            _list((*explanation.unsure, *(named(doubt, rig) for doubt in plan.doubts))),
        ),
    ]
    shown = "".join(
        f"{f'<h2>{title}</h2>' if title else ''}<div class='tp-panel tp-wide'>{body}</div>"
        for title, body in sections
        if body
    )
    return (
        f"<div class='tp-report'><h1>{escape(headline)}</h1>"
        f"<p class='tp-quiet'>{escape(model_line(spec, plan))}</p>"
        f"<p class='tp-quiet' style='margin-bottom:16px'>{escape(settings_line(plan))}</p>"
        f"{shown}</div>"
    )


def _predicted(plan: Plan, rig: Rig) -> str:
    prediction = plan.prediction
    if prediction is None:
        return ""
    rows = [
        *prediction_rows(prediction, plan),
        ("limited by", named(prediction.bound, rig)),
        ("a token", term_line(prediction.decode_terms)),
        ("a chunk of the prompt", term_line(prediction.prefill_terms)),
    ]
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows if value
    )
    return f"<dl>{facts}</dl>"


def _list(lines: Iterable[str]) -> str:
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{listed}</ul>" if listed else ""


def _table(rows: Sequence[Sequence[str]], last: str = "") -> str:
    head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        f"<tr{' class=tp-last' if first == last and last else ''}>"
        f"<th scope='row'>{escape(first)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
