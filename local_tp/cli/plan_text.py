"""A plan as a stranger reads it in a terminal."""

from __future__ import annotations

from local_tp.core import ModelSpec, Placement, Plan, Span

MIB = 1024 * 1024
HEADINGS = (
    "rank",
    "device",
    "stage",
    "layers",
    "heads q/kv",
    "ffn",
    "vocab",
    "MiB: weights",
    "KV",
    "work",
)


def plan_text(spec: ModelSpec, plan: Plan) -> str:
    """The summary, a row a rank, and why."""
    d = spec.dimensions
    lines = [
        f"{plan.model}: {d.layers} layers, {d.query_heads} query and {d.kv_heads} KV heads, "
        f"ffn {d.ffn:,}, vocabulary {d.vocab:,}",
        f"{plan.split} split over {len(plan.placements)} "
        f"worker{'s' if len(plan.placements) > 1 else ''}, transport {plan.transport}, "
        f"context {plan.context:,}, {plan.goal.streams} streams in {plan.pages:,} pages "
        f"of {plan.page_size} tokens",
        "",
        *_table([HEADINGS, *(_row(p) for p in plan.placements)]),
        "",
    ]
    if plan.decode is not None and plan.prefill is not None:
        lines.append(
            f"predicted: {plan.decode:.0f} tokens/s decode, {plan.prefill:.0f} tokens/s prefill, "
            f"limited by {plan.bound}"
        )
    lines += [f"- {note}" for note in plan.notes]
    return "\n".join(lines)


def _row(p: Placement) -> tuple[str, ...]:
    return (
        str(p.rank),
        p.device,
        str(p.stage),
        _span(p.layers),
        f"{p.query_heads.size}/{p.kv_heads.size}",
        _span(p.ffn),
        _span(p.vocab),
        *(f"{-(-amount // MIB):,}" for amount in (p.weights, p.kv, p.workspace)),
    )


def _span(span: Span) -> str:
    return f"{span.start}-{span.stop}" if span.size else "none"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
