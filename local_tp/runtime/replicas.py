"""The plan of each replica of a plan: the same shares of the same model, on devices of its own.

Pure. Every such plan keeps the decision's `copies`, so that a rank knows how many others run.
"""

from __future__ import annotations

from dataclasses import replace

from local_tp.core import Plan


def replica_plans(plan: Plan) -> tuple[Plan, ...]:
    """One plan a replica, the first of them `plan` itself."""
    further = (
        replace(
            plan,
            placements=tuple(
                replace(p, device=device) for p, device in zip(plan.placements, copy, strict=True)
            ),
        )
        for copy in plan.copies
    )
    return (plan, *further)
