"""The plan of each replica: the same shares, on the devices that the decision names."""

from __future__ import annotations

from dataclasses import replace

from local_tp.core import Goal, Placement, Plan, Span
from local_tp.runtime.replicas import replica_plans

PLACES = tuple(
    Placement(
        rank, f"cuda{rank}", 0, Span(0, 4), Span(rank, rank + 1), Span(0, 1), Span(0, 8), Span(0, 9)
    )
    for rank in range(2)
)
PLAN = Plan("m", Goal(), PLACES, "nccl", 64, 32, 4, split="tensor")


def test_a_plan_without_copies_is_one_replica() -> None:
    assert replica_plans(PLAN) == (PLAN,)


def test_copies_have_the_same_shares_elsewhere() -> None:
    plan = replace(PLAN, copies=(("cuda2", "cuda3"), ("cuda5", "cuda4")))
    plans = replica_plans(plan)
    assert plans[0] is plan
    devices = [[p.device for p in one.placements] for one in plans]
    assert devices == [["cuda0", "cuda1"], ["cuda2", "cuda3"], ["cuda5", "cuda4"]]
    for one in plans:
        assert one.replicas == 3, "a rank may know how many others run"
        same = tuple(replace(p, device=f"cuda{p.rank}") for p in one.placements)
        assert replace(one, placements=same) == plan
