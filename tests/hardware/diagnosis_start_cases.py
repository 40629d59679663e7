"""Machines that each deserve one finding on cards that did not start."""

from __future__ import annotations

from diagnosis_link_cases import Case
from diagnosis_rigs import CARD, SECOND, card, rig

from local_tp.core import Device
from local_tp.facts import StartFault


def stopped(fault: StartFault, id: str = CARD) -> Device:
    """A card of which no tool of the driver read what only a card at work has."""
    return card(
        id, start_fault=fault, temperature=None, power_draw=None, utilization=None, clock=None
    )


START_CASES = (
    Case(
        rig(stopped("no-address")),
        "bar-unassigned",
        "error",
        (CARD,),
        ("memory windows (BARs) no address",),
    ),
    Case(
        rig(stopped("needs-open")),
        "driver-wrong-modules",
        "error",
        (CARD,),
        ("needs NVIDIA's open kernel modules",),
    ),
    Case(rig(stopped("failed")), "card-start-failed", "error", (CARD,), ("RmInitAdapter",)),
    Case(
        rig(stopped("needs-open"), stopped("needs-closed", SECOND)),
        "driver-modules-conflict",
        "error",
        (CARD, SECOND),
        (f"{CARD} needs NVIDIA's open", f"{SECOND} the proprietary"),
    ),
)
