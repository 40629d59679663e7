"""What a fault of the machine costs in speed: the plan as it is beside the plan with it mended.

Pure. Only faults of links are asked about, since those are what a plan can be made without: each
answer is two real plans of the same known model, the largest of a few that the cards hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from local_tp.core import Device, Goal, Link, ModelSpec, Pcie, Plan, Rig
from local_tp.errors import InputError
from local_tp.facts import Finding
from local_tp.plan.changes import DIFFERENCE
from local_tp.plan.planner import Knowledge, best_plan

SLOTS = frozenset(
    {"pcie-narrow", "pcie-x4", "pcie-x1", "pcie-generation-low", "pcie-slot-older", "uneven-slots"}
)
PEERS = frozenset({"p2p-off", "p2p-slower-than-memory", "p2p-broken", "iommu-translates"})
MOST = 3  # findings that are asked about: each takes two plans
GOAL = Goal(dtype="stored", split="tensor", streams=1)

Models = Sequence[Callable[[], ModelSpec]]


def with_costs(
    rig: Rig, findings: Iterable[Finding], models: Models, knowledge: Knowledge
) -> tuple[Finding, ...]:
    """The findings, with what the plan can say of a tensor split added to the cost of some.

    `models` are asked for from the largest on; the first that the cards hold is meant.
    """
    found = tuple(findings)
    cards = [d for d in rig.devices if d.kind != "cpu" and d.total and d.facts.slice_of is None]
    asked = [f for f in found if f.id in SLOTS | PEERS][:MOST]
    if len(cards) < 2 or len({d.kind for d in cards}) > 1 or not asked:
        return found
    goal = replace(GOAL, devices=tuple(device.id for device in cards))
    for model in models:
        spec = model()
        try:
            plan = best_plan(spec, rig, goal, knowledge)
            break
        except InputError:  # it has no room: the next is smaller
            continue
    else:
        return found
    costs: dict[Finding, str] = {}
    for finding in asked:
        mended = best_plan(
            spec, _mended(rig, finding), replace(goal, context=plan.context), knowledge
        )
        if said := ", ".join(_slower(plan, mended)):
            costs[finding] = f"{finding.cost}; by the plan, {spec.name} in tensor split: {said}"
    return tuple(replace(f, cost=costs[f]) if f in costs else f for f in found)


def _slower(plan: Plan, mended: Plan) -> Iterator[str]:
    """The speeds that a person would notice to be lower."""
    assert plan.prediction is not None
    assert mended.prediction is not None
    now, then = plan.prediction, mended.prediction
    rates = (("an answer", now.decode, then.decode), ("a prompt", now.prefill, then.prefill))
    for what, slow, fast in rates:
        if fast >= DIFFERENCE * slow:
            yield f"{slow:,.0f} tokens/s of {what} instead of {fast:,.0f}"


def _mended(rig: Rig, finding: Finding) -> Rig:
    """The machine without that fault, and without what was measured while it had it."""
    ids = set(finding.devices) or {device.id for device in rig.devices}
    clean = [_unmeasured(link) if {link.a, link.b} & ids else link for link in rig.links]
    if finding.id in PEERS:
        clean = [
            replace(link, kind="p2p", verified=True)
            if {link.a, link.b} <= ids and link.kind == "host"
            else link
            for link in clean
        ]
    devices = rig.devices
    if finding.id in SLOTS:
        devices = tuple(_in_best_slot(d) if d.id in ids else d for d in rig.devices)
    sums = tuple(c for c in rig.collectives if not set(c.devices) & ids)
    return replace(rig, devices=devices, links=tuple(clean), collectives=sums)


def _unmeasured(link: Link) -> Link:
    facts = replace(link.facts, staged=None, staged_both=None)
    return replace(link, bandwidth=None, latency=None, measured=False, facts=facts)


def _in_best_slot(device: Device) -> Device:
    """The card with all the lanes that it has, at its own generation."""
    now, card = device.pcie or Pcie(), device.facts.pcie_card
    width = (card and card.width) or now.max_width or 16
    generation = (card and card.generation) or now.max_generation or now.generation
    best = replace(now, width=width, max_width=width, max_generation=generation)
    return replace(device, pcie=best, facts=replace(device.facts, copy_to=None, copy_from=None))
