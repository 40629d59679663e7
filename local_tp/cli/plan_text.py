"""A plan as a stranger reads it in a terminal: the decision, a picture, numbers, and why.

Pure: values in, text out. The same facts, in the same order, as the page of `plan_html`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from local_tp.cli.plan_picture import picture
from local_tp.cli.terminal import Look, items, table, wrapped
from local_tp.core import ModelSpec, Placement, Plan, Rig, Span
from local_tp.errors import DoesNotFit
from local_tp.plan.explain import DeviceUse, Explanation, largest_terms, named
from local_tp.prediction import Alternative, Prediction, Term

MIB = 1024 * 1024
TABLE_NAMES = 26  # characters of a memory term's name, at most
COLUMN = 8  # characters of a device's column, with the space before it


def plan_text(
    spec: ModelSpec, rig: Rig, plan: Plan, explanation: Explanation, look: Look | None = None
) -> str:
    """Several sections; none wider than `look` allows except for one very long word."""
    look = look or Look()
    sections = [
        [*wrapped(model_line(spec, plan), look), *_decision(plan, explanation, look)],
        picture(plan, explanation, look),
        [_title("Memory, MiB", look), *_memory(explanation.devices, look)],
        [_title("What each worker holds", look), *_holds(spec, rig, plan, look)],
    ]
    if plan.prediction is not None:
        sections.append([_title("Predicted", look), *_predicted(plan, rig, look)])
    listed = (
        ("Why", [named(note, rig) for note in plan.notes]),
        ("Other plans", [alternative_line(a, rig) for a in plan.alternatives]),
        ("What would change this", [named(change, rig) for change in plan.changes]),
        ("Not certain", [*explanation.unsure, *(named(doubt, rig) for doubt in plan.doubts)]),
    )
    sections += [[_title(title, look), *items(lines, look)] for title, lines in listed if lines]
    return "\n\n".join("\n".join(line.rstrip() for line in section) for section in sections)


def refusal_text(refusal: DoesNotFit, look: Look) -> list[str]:
    """What follows a refusal's own line: its largest terms, and settings that would help."""
    lines: list[str] = []
    if refusal.terms:
        largest = sorted(refusal.terms, key=lambda term: -term[1])
        rows = [(name, f"{mib(nbytes)} MiB") for name, nbytes in largest if nbytes]
        lines += [f"What {refusal.device} would hold", *table(rows, look)]
    if refusal.settings:
        lines += ["What would make it fit", *items(refusal.settings, look)]
    return lines


def model_line(spec: ModelSpec, plan: Plan) -> str:
    """The model's sizes in one line."""
    d = spec.dimensions
    parts = [f"{d.layers} layers", f"{d.query_heads} query and {d.kv_heads} KV heads"]
    if d.experts:
        parts.append(f"{d.experts} experts of which a token meets {d.active_experts}")
    else:
        parts.append(f"ffn {d.ffn:,}")
    return f"{plan.model}: {', '.join(parts)}, vocabulary {d.vocab:,}"


def settings_line(plan: Plan) -> str:
    """What the plan was made for, in one line."""
    streams = "1 stream" if plan.goal.streams == 1 else f"{plan.goal.streams} streams"
    kv = plan.goal.kv_format or "float32"
    formats = {"auto": "as stored", "stored": "exactly as stored"}
    return (
        f"{plan.split} split, transport {plan.transport}, context {plan.context:,}, {streams} in "
        f"{plan.pages:,} pages of {plan.page_size} tokens, weights "
        f"{formats.get(plan.goal.dtype, plan.goal.dtype)}, keys and values {kv}, "
        f"objective {plan.goal.objective}"
    )


def prediction_rows(prediction: Prediction, plan: Plan) -> list[tuple[str, str]]:
    """What is predicted, each with its unit."""
    rows = [
        ("decode", f"{figure(prediction.decode)} tokens/s for one user"),
        ("prefill", f"{figure(prediction.prefill)} tokens/s of a long prompt"),
        ("first token", f"{seconds(prediction.first_token)} after {plan.goal.chunk:,} tokens"),
    ]
    if plan.goal.streams > 1 or plan.replicas > 1:
        together = f"{figure(prediction.aggregate)} tokens/s of {plan.goal.streams} streams"
        rows.append(("together", together))
    return rows


def term_line(terms: Sequence[Term]) -> str:
    """Where the time of a step goes, the largest first."""
    return ", ".join(f"{t.name} {seconds(t.seconds)}" for t in largest_terms(terms))


def alternative_line(other: Alternative, rig: Rig) -> str:
    """A plan that lost: its numbers and the reason."""
    parts = []
    if other.prediction is not None:
        parts.append(f"{figure(other.prediction.decode)} tokens/s decode")
        parts.append(f"{figure(other.prediction.prefill)} prefill")
    if other.context is not None:
        parts.append(f"context {other.context:,}")
    numbers = f" ({', '.join(parts)})" if parts else ""
    return named(f"{other.what}{numbers}: {other.reason}", rig)


def mib(nbytes: int) -> str:
    """Whole MiB, rounded up, so that no sum is shown smaller than it is."""
    return f"{-(-nbytes // MIB):,}"


def figure(rate: float) -> str:
    """A rate in three digits or so."""
    return f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.1f}" if rate >= 9.95 else f"{rate:.2f}"


def seconds(amount: float) -> str:
    """A time in the unit that suits it."""
    if amount < 1e-3:
        return f"{amount * 1e6:.0f} µs"
    if amount < 1:
        return f"{amount * 1e3:.3g} ms" if amount < 0.0995 else f"{amount * 1e3:.0f} ms"
    return f"{amount:,.1f} s"


def span(held: Span) -> str:
    """A span as it is written in a plan: half open."""
    return f"{held.start}-{held.stop}" if held.size else "none"


def holding_rows(spec: ModelSpec, rig: Rig, plan: Plan) -> list[tuple[str, ...]]:
    """A heading, and for each worker of the first replica what it has of the model."""
    d, places = spec.dimensions, plan.placements
    streamed = any(p.streamed.size for p in places)
    head = ["rank", "device", "stage", "layers", "heads q/kv"]
    head += ["ffn"] if any(p.ffn.size for p in places) or not d.experts else []
    head += ["experts"] if d.experts else []
    head += ["vocab"]
    head += ["streamed"] if streamed else []
    return [tuple(head), *(_holding(p, head, rig) for p in places)]


def _holding(p: Placement, head: Sequence[str], rig: Rig) -> tuple[str, ...]:
    cells = {
        "rank": str(p.rank),
        "device": named(p.device, rig),
        "stage": str(p.stage),
        "layers": span(p.layers),
        "heads q/kv": f"{p.query_heads.size}/{p.kv_heads.size}",
        "ffn": span(p.ffn),
        "experts": span(p.experts),
        "vocab": span(p.vocab),
        "streamed": span(p.streamed),
    }
    return tuple(cells[name] for name in head)


def memory_rows(devices: Sequence[DeviceUse]) -> list[tuple[str, ...]]:
    """A heading, a row a term, then what is kept free, what is left, and how much there was."""
    names = list(dict.fromkeys(name for use in devices for name, _ in use.terms))
    rows: list[tuple[str, ...]] = [("", *(use.label for use in devices))]
    for name in names:
        amounts = [dict(use.terms).get(name, 0) for use in devices]
        rows.append((name, *(mib(amount) if amount else "-" for amount in amounts)))
    rows.append(("together", *(mib(use.used) for use in devices)))
    if any(use.replicated for use in devices):
        held_twice = [mib(use.replicated) if use.replicated else "-" for use in devices]
        rows.append(("(of it, on other ranks too)", *held_twice))
    rows.append(("kept free", *(mib(use.reserve) for use in devices)))
    rows.append(("left", *(f"{use.left // MIB:,}" for use in devices)))
    rows.append(("free now", *(f"{use.free // MIB:,}" for use in devices)))
    return rows


def _decision(plan: Plan, explanation: Explanation, look: Look) -> Iterator[str]:
    head = wrapped(explanation.headline[0].upper() + explanation.headline[1:], look)
    yield from (look.paint(line, "strong") for line in head)
    yield from wrapped(settings_line(plan), look)


def _title(text: str, look: Look) -> str:
    return look.paint(text, "strong")


def _memory(devices: Sequence[DeviceUse], look: Look) -> Iterator[str]:
    """As many devices beside each other as the width has room for."""
    fitting = max(1, (look.width - TABLE_NAMES - 4) // (COLUMN + 1))
    for start in range(0, len(devices), fitting):
        if start:
            yield ""
        yield from table(memory_rows(devices[start : start + fitting]), look)


def _holds(spec: ModelSpec, rig: Rig, plan: Plan, look: Look) -> list[str]:
    rows = holding_rows(spec, rig, plan)
    return table([row[1:2] + row[:1] + row[2:] for row in rows], look)


def _predicted(plan: Plan, rig: Rig, look: Look) -> Iterator[str]:
    prediction = plan.prediction
    assert prediction is not None
    yield from table(prediction_rows(prediction, plan), look, left=2)
    yield from wrapped(f"limited by {named(prediction.bound, rig)}", look, "  ", "    ")
    for what, terms in (
        ("a token", prediction.decode_terms),
        ("a chunk of the prompt", prediction.prefill_terms),
    ):
        if terms:
            yield from wrapped(f"{what}: {term_line(terms)}", look, "  ", "    ")
