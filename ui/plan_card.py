"""The plan as a card: who holds what, what it was predicted to cost, and what it costs.

Pure: a `Plan` and what was measured in, HTML out, every foreign word escaped. Knows nothing of
Gradio. A number that was not measured is shown as a dash, never as the prediction again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from local_tp.core import Placement, Plan, Span
from local_tp.plan.explain import every_placement
from local_tp.plan.memory import memory_terms
from local_tp.prediction import Alternative
from local_tp.runtime.crew import WorkerHealth
from local_tp.runtime.wire import Measured

SPLITS = {
    "single": "one device",
    "layer": "by layers",
    "tensor": "within layers",
    "hybrid": "by layers and within them",
}
# The planner's terms, for people who have not read the planner.
BOUNDS = {
    "operation launches": "many small operations",
    "exchange between ranks": "exchange between workers",
}
APART = 2  # the last of `memory_terms` lie elsewhere or are part of another
# Above this many ranks their details start folded, so that all of them fit on a screen.
UNFOLDED = 3


def plan_card(
    plan: Plan,
    measured: Mapping[int, Measured],
    workers: Sequence[WorkerHealth],
) -> str:
    """The whole card. `measured` goes by worker, counted through all replicas, and may be empty;
    so may `workers`."""
    by_rank = {worker.rank: worker for worker in workers}
    largest = max(_total(placement) for placement in plan.placements)
    ranks = "".join(
        _rank(plan, number, placement, measured.get(number), by_rank.get(number), largest)
        for number, placement in enumerate(every_placement(plan))
    )
    lists = (
        ("Why this plan", plan.notes),
        ("Other plans", tuple(map(_alternative, plan.alternatives))),
        ("What would change this", plan.changes),
        ("Not certain", plan.doubts),
    )
    said = "".join(_list(title, lines) for title, lines in lists)
    return f'<div class="tp-plan">{_summary(plan)}{_legend()}{ranks}{said}</div>'


def size(count: int) -> str:
    """Bytes for people, in binary units and three digits."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 999.5:
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{count} B"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} {unit}"


def span(held: Span, whole: int) -> str:
    """A span as people count it, first and last included."""
    if not held.size:
        return "none"
    if held.size == whole:
        return f"all {whole:,}"
    if held.size == 1:
        return f"{held.start:,} of {whole:,}"
    return f"{held.start:,} to {held.stop - 1:,} of {whole:,}"


# --------------------------------------------------------------------------------- its parts


def _summary(plan: Plan) -> str:
    count = len(plan.placements) * plan.replicas
    facts = [
        ("Split", f"{SPLITS[plan.split]}, {count} {'worker' if count == 1 else 'workers'}"),
        ("Transport", plan.transport.replace("-", " ")),
        ("Context", f"{plan.context:,} tokens"),
        ("Cache", f"{plan.pages:,} pages of {plan.page_size} tokens"),
    ]
    if plan.replicas > 1:
        facts.append(("Replicas", str(plan.replicas)))
    if (prediction := plan.prediction) is not None:
        facts.append(("Predicted", f"{prediction.decode:,.1f} tokens/s writing"))
        facts.append(("", f"{prediction.prefill:,.0f} tokens/s reading"))
        facts.append(("", f"{prediction.first_token:,.2f} s to the first token"))
        if plan.goal.streams > 1:
            together = f"{prediction.aggregate:,.1f} tokens/s of {plan.goal.streams} at once"
            facts.append(("", together))
        facts.append(("Limited by", _bound(prediction.bound)))
    return f'<dl class="tp-facts">{_facts(facts)}</dl>'


def _bound(bound: str) -> str:
    """The limit in a stranger's words, and the device if it names one."""
    for term, words in BOUNDS.items():
        if bound.startswith(term):
            return words + bound.removeprefix(term)
    return bound


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)


def _legend() -> str:
    keys = (("weights", "weights"), ("kv", "KV cache"), ("workspace", "workspace"))
    listed = "".join(
        f'<span><i class="tp-{part}" aria-hidden="true"></i>{name}</span>' for part, name in keys
    )
    return f'<div class="tp-legend">{listed}</div>'


def _rank(
    plan: Plan,
    number: int,
    placement: Placement,
    measured: Measured | None,
    worker: WorkerHealth | None,
    largest: int,
) -> str:
    opened = " open" if len(plan.placements) * plan.replicas <= UNFOLDED else ""
    stage = f" · stage {placement.stage}" if plan.stages > 1 else ""
    return (
        f'<details class="tp-rank"{opened}><summary>'
        f'<span class="tp-rank-name">{_dot(worker)}<b>Worker {number}</b>'
        f'<span class="tp-device">{escape(placement.device)}{stage}</span>'
        f'<span class="tp-total">{size(_total(placement))}</span></span>'
        f"{_bar(placement, largest)}</summary>"
        f'<dl class="tp-facts">{_facts(_holds(plan, placement))}</dl>'
        f"{_bytes(placement, measured)}</details>"
    )


def _dot(worker: WorkerHealth | None) -> str:
    if worker is None:
        return ""
    state = "alive" if worker.alive else "not alive"
    words = f"{state}, process {worker.pid}" if worker.pid is not None else state
    kind = "tp-good" if worker.alive else "tp-bad"
    return f'<i class="tp-dot {kind}" role="img" aria-label="{words}" title="{words}"></i>'


def _bar(placement: Placement, largest: int) -> str:
    """Predicted bytes by kind; the largest rank fills the width."""
    memory = placement.memory
    amounts = (
        ("weights", memory.weights),
        ("kv", memory.kv + memory.state),
        ("workspace", memory.workspace),
    )
    parts = "".join(
        f'<i class="tp-{part}" style="width:{amount / max(largest, 1):.2%}"></i>'
        for part, amount in amounts
    )
    return f'<span class="tp-bar" aria-hidden="true">{parts}</span>'


def _holds(plan: Plan, placement: Placement) -> list[tuple[str, str]]:
    """What the rank has of the model, in the model's own numbering."""
    ranks = plan.placements
    held = [
        ("Layers", span(placement.layers, max(p.layers.stop for p in ranks))),
        ("Query heads", span(placement.query_heads, max(p.query_heads.stop for p in ranks))),
        ("KV heads", span(placement.kv_heads, max(p.kv_heads.stop for p in ranks))),
        ("FFN columns", span(placement.ffn, max(p.ffn.stop for p in ranks))),
        ("Vocabulary", span(placement.vocab, max(p.vocab.stop for p in ranks))),
    ]
    if experts := max(p.experts.stop for p in ranks):
        held.append(("Experts", span(placement.experts, experts)))
    if placement.streamed.size:
        held.append(("Streamed layers", span(placement.streamed, placement.layers.stop)))
    return held


def _bytes(placement: Placement, measured: Measured | None) -> str:
    """Predicted beside measured, where both count the same: weights.

    What loading adds to a process is not its total; cache and workspace count once they are used.
    """
    terms = memory_terms(placement.memory)
    held = {"weights": size(measured.weights)} if measured else {}
    listed = [(name, nbytes) for name, nbytes in terms[:-APART] if nbytes or name == "weights"]
    rows = [
        *((_sentence(name), size(nbytes), held.get(name, "–")) for name, nbytes in listed),
        ("Total", size(_total(placement)), "–"),
        *((_sentence(name), size(nbytes), "–") for name, nbytes in terms[-APART:] if nbytes),
    ]
    body = "".join(
        f'<tr{_total_row(name)}><th scope="row">{escape(name)}</th><td>{predicted}</td>'
        f"<td>{found}</td></tr>"
        for name, predicted, found in rows
    )
    caption = (
        f"<caption>loading added {size(max(measured.resident, 0))} "
        f"in {measured.load_seconds:.1f} s</caption>"
        if measured
        else ""
    )
    return (
        f'<table class="tp-bytes">{caption}<thead><tr><th scope="col"></th>'
        f'<th scope="col">predicted</th><th scope="col">measured</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _alternative(other: Alternative) -> str:
    """A plan that lost, its speed, and why."""
    speed = f" ({other.prediction.decode:,.1f} tokens/s)" if other.prediction else ""
    return f"{other.what}{speed}: {other.reason}"


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="tp-notes"><b>{title}</b><ul>{listed}</ul></div>'


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _total_row(name: str) -> str:
    return ' class="tp-sum"' if name == "Total" else ""


def _total(placement: Placement) -> int:
    return placement.memory.total
