"""Two cards, a processor and plans on them, for tests of what is said of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from local_tp.core import EMPTY, Device, Goal, Link, Placement, Plan, Rig, Span
from local_tp.facts import SoftwareFacts
from local_tp.prediction import Alternative, Memory, Prediction, Term

MIB, GIB = 1 << 20, 1 << 30
A, B = "0000:01:00.0", "0000:02:00.0"
CARD = Device(
    A, "cuda", "NVIDIA GeForce RTX 3090", 24 * GIB, 23 * GIB, 512 * MIB, capability=(8, 6)
)
SMALLER = replace(CARD, id=B, name="NVIDIA GeForce RTX 3060", total=12 * GIB, free=11 * GIB)
PROCESSOR = Device("cpu", "cpu", "Ryzen", 64 * GIB, 60 * GIB, GIB)
RIG = Rig(
    (CARD, SMALLER, PROCESSOR),
    (Link(A, B, "host", bandwidth=9.5e9),),
    ram=64 * GIB,
    available_ram=60 * GIB,
    cores=8,
    software=SoftwareFacts(
        driver="610.1", torch="2.13.0", torch_cuda="13.0", torch_architectures=("sm_86",)
    ),
)
PREDICTION = Prediction(
    prefill=861.4,
    decode=93.6,
    first_token=0.594,
    aggregate=250.0,
    bound=f"memory bandwidth on {B}",
    decode_terms=(
        Term("memory bandwidth", 0.004, A),
        Term("memory bandwidth", 0.005, B),
        Term("exchange between ranks", 0.0015),
        Term("hand-over between stages", 0.0),
    ),
    prefill_terms=(Term("arithmetic", 0.25, A),),
)


def placement(rank: int, device: str, stage: int = 0, **changes: Any) -> Placement:
    """A rank with 2,000 MiB of weights and some of everything else."""
    made = Placement(
        rank=rank,
        device=device,
        stage=stage,
        layers=Span(0, 30),
        query_heads=Span(3 * rank, 3 * rank + 3),
        kv_heads=Span(rank, rank + 1),
        ffn=Span(0, 1536),
        vocab=Span(0, 49152),
        memory=Memory(
            weights=2000 * MIB,
            kv=300 * MIB + 1,
            state=4 * MIB,
            activations=50 * MIB,
            context=457 * MIB,
            host=700 * MIB,
            replicated=10 * MIB,
        ),
    )
    return replace(made, **changes)


def plan(*placements: Placement, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "model": "tiny-Q4",
        "goal": Goal(streams=3, kv_format="bfloat16", reserve={A: 1024 * MIB}),
        "placements": placements,
        "transport": "nccl",
        "context": 4096,
        "page_size": 32,
        "pages": 384,
        "split": "tensor",
        "prediction": PREDICTION,
        "alternatives": (
            Alternative(f"single on {A}", (A,), "slower by 20%", PREDICTION, 4096),
            Alternative("layer split", (), "it has no room"),
        ),
        "notes": (f"tensor split: {A} and {B} halve what is read",),
        "doubts": (f"link {A} {B}: not measured",),
        "changes": ("with another card: faster",),
    }
    return Plan(**(values | changes))


TENSOR = plan(placement(0, A), placement(1, B))
LAYER = plan(
    placement(0, A, layers=Span(0, 20)),
    placement(1, "cpu", 1, layers=Span(20, 30), vocab=EMPTY, memory=Memory(weights=MIB)),
    split="layer",
    transport="gloo",
)
