"""The plan in a terminal: the facts are the plan's own, each in its column."""

from __future__ import annotations

from dataclasses import replace

from local_tp.cli.plan_text import plan_text
from local_tp.core import EMPTY, Dimensions, Goal, ModelSpec, Placement, Plan, Span, Traits

MIB = 1024 * 1024
SPEC = ModelSpec(
    "tiny-Q4", "", "llama", Dimensions(30, 576, 9, 3, 64, 1536, 49152, 8192), Traits(), {}
)
FIRST = Placement(
    rank=0,
    device="0000:01:00.0",
    stage=0,
    layers=Span(0, 20),
    query_heads=Span(0, 6),
    kv_heads=Span(0, 2),
    ffn=Span(0, 1536),
    vocab=Span(0, 49152),
    weights=2000 * MIB,
    kv=MIB + 1,
    workspace=0,
)
SECOND = Placement(1, "cpu", 1, Span(20, 30), EMPTY, EMPTY, EMPTY, EMPTY, 1, MIB, 13 * MIB)
PLAN = Plan(
    model="tiny-Q4",
    goal=Goal(streams=3),
    placements=(FIRST, SECOND),
    transport="gloo",
    context=4096,
    page_size=32,
    pages=1384,
    split="layer",
    prefill=861.4,
    decode=93.6,
    bound="memory bandwidth",
    notes=("layer split: since so", "context 4,096"),
)


def test_a_plan_as_it_reads() -> None:
    assert plan_text(SPEC, PLAN).splitlines() == [
        "tiny-Q4: 30 layers, 9 query and 3 KV heads, ffn 1,536, vocabulary 49,152",
        "layer split over 2 workers, transport gloo, context 4,096, 3 streams in 1,384 pages "
        "of 32 tokens",
        "",
        "rank        device  stage  layers  heads q/kv     ffn    vocab  MiB: weights  KV  work",
        "   0  0000:01:00.0      0    0-20         6/2  0-1536  0-49152         2,000   2     0",
        "   1           cpu      1   20-30         0/0    none     none             1   1    13",
        "",
        "predicted: 94 tokens/s decode, 861 tokens/s prefill, limited by memory bandwidth",
        "- layer split: since so",
        "- context 4,096",
    ]


def test_what_is_not_known_is_not_printed() -> None:
    text = plan_text(SPEC, replace(PLAN, placements=(FIRST,), decode=None, prefill=None, notes=()))
    assert "1 worker," in text
    assert "predicted" not in text
    assert not text.endswith(("None", "\n\n"))
