"""From options, a model and a machine to a plan: the one way by which every command decides.

Reads what only a command may read (kept measurements, sizes of files) and hands facts to the
planner, which is pure. A plan that is to run is held against everything that could end it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from local_tp.cli import options
from local_tp.cli.saved import Saved, devices_of, read_saved
from local_tp.core import Device, Goal, ModelSpec, Plan, Rig
from local_tp.errors import InputError
from local_tp.hardware.measuring.cache import default_folder
from local_tp.hardware.measuring.measure import measure
from local_tp.hardware.measuring.transport_gate import allowed_transport
from local_tp.hardware.memory_ratios import MemoryRatios
from local_tp.hardware.rates import load_rates
from local_tp.plan.check import check_placements
from local_tp.plan.explain import every_placement
from local_tp.plan.planner import Knowledge, best_plan, make_plan
from local_tp.plan.predict import with_prediction
from local_tp.plan.preflight import (
    format_notes,
    model_files,
    obstacles,
    replaced,
    stored_alone,
    used_devices,
)
from local_tp.plan.search.objective import seconds

TELLING = 0.01  # a difference of less is not worth a word

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and all that it was made from."""

    spec: ModelSpec
    rig: Rig
    goal: Goal
    knowledge: Knowledge
    plan: Plan
    threads: int


def decide(
    parsed: argparse.Namespace,
    spec: ModelSpec,
    rig: Rig,
    report: Report,
    own: bool = True,
    runs: bool = False,
) -> Decided:
    """The plan that the options ask for. Raises `InputError`.

    `own` says that `rig` is this machine: what would end a run there is raised, while on another
    machine, or for a model that is not here, it is noted. A plan that `runs` next stands on
    nothing unverified: what several cards would use between them is tried once.
    """
    saved = read_saved(Path(parsed.placement)) if parsed.placement is not None else None
    goal = options.goal(parsed, rig, saved)
    options.threads(parsed, (), rig.cores)
    kept = MemoryRatios(default_folder() if own else None, report)
    knowledge = Knowledge(load_rates(), kept.ratios(rig), parsed.threads)
    if not spec.path and parsed.dtype is None and saved is None:
        goal = replace(goal, dtype="stored")
    plan = _planned(spec, rig, goal, knowledge, saved)
    goal, notes = replaced(goal, used_devices(rig, plan))
    if notes:
        plan = _planned(spec, rig, goal, knowledge, saved)
    if runs and _has_cards_between(rig, plan):
        rig = measure(rig, report=report, cache=default_folder())
        knowledge, plan, reasons = _verified(spec, rig, goal, knowledge, saved)
        notes += reasons
    found = list(obstacles(spec, rig, plan, _sizes(spec), own))
    if runs:
        found += stored_alone(plan)
    if own and spec.path and found:
        raise found[0]
    if not any(note.startswith("planned only") for note in plan.notes):
        notes += tuple(f"it cannot run as it is: {obstacle}" for obstacle in found)
    notes += tuple(format_notes(spec, rig, plan))
    return Decided(
        spec=spec,
        rig=rig,
        goal=goal,
        knowledge=knowledge,
        plan=replace(plan, notes=plan.notes + notes),
        threads=options.threads(parsed, worker_devices(rig, plan), rig.cores),
    )


def worker_devices(rig: Rig, plan: Plan) -> tuple[Device, ...]:
    """The device of each worker, through all replicas."""
    by_id = {device.id: device for device in rig.devices}
    return tuple(by_id[p.device] for p in every_placement(plan))


def _planned(
    spec: ModelSpec, rig: Rig, goal: Goal, knowledge: Knowledge, saved: Saved | None
) -> Plan:
    if saved is None:
        return best_plan(spec, rig, goal, knowledge)
    devices, ranks = devices_of(saved, rig), len(saved.placements)
    groups = [devices[start : start + ranks] for start in range(0, len(devices), ranks)]
    each = replace(goal, streams=-(-goal.streams // len(groups)))
    plans = [
        make_plan(
            spec,
            group,
            each,
            knowledge,
            rig.links,
            tuple(
                replace(p, device=device.id)
                for p, device in zip(saved.placements, group, strict=True)
            ),
            rig.collectives,
        )
        for group in groups
    ]
    copies = tuple(tuple(device.id for device in group) for group in groups[1:])
    check_placements(spec, plans[0].placements, groups[0], copies)
    plan = replace(plans[0], copies=copies)
    plan = replace(plan, goal=replace(plan.goal, streams=goal.streams))
    plan = with_prediction(
        spec, plan, groups[0], rig.links, knowledge.rates, collectives=rig.collectives
    )
    notes = _cost_of_saved(spec, rig, goal, knowledge, plan, saved)
    return replace(plan, notes=plan.notes + notes)


def _cost_of_saved(
    spec: ModelSpec, rig: Rig, goal: Goal, knowledge: Knowledge, plan: Plan, saved: Saved
) -> tuple[str, ...]:
    """What placements from a file cost against the best plan of the same context."""
    free = replace(goal, devices=(), split=None, shares=(), context=plan.context)
    try:
        best = best_plan(spec, rig, free, knowledge)
    except InputError:  # then there is nothing better
        return ()
    if plan.prediction is None or best.prediction is None:
        return ()
    mine, other = (seconds(p, goal.objective) for p in (plan.prediction, best.prediction))
    if other > mine * (1 - TELLING):
        return ()
    where = " + ".join(p.device for p in best.placements)
    return (
        f"as {saved.path.name} says: predicted {plan.prediction.decode:.1f} tokens/s; the best "
        f"plan reaches {best.prediction.decode:.1f} ({best.split} split on {where})",
    )


def _has_cards_between(rig: Rig, plan: Plan) -> bool:
    return len(plan.placements) > 1 and any(d.kind != "cpu" for d in used_devices(rig, plan))


def _verified(
    spec: ModelSpec, rig: Rig, goal: Goal, knowledge: Knowledge, saved: Saved | None
) -> tuple[Knowledge, Plan, tuple[str, ...]]:
    """The plan on what was measured, over a transport that was found to work."""
    plan = _planned(spec, rig, goal, knowledge, saved)
    if len(plan.placements) == 1:
        return knowledge, plan, ()
    allowed = allowed_transport(rig, [p.device for p in plan.placements])
    if plan.transport == allowed.best:
        return knowledge, plan, allowed.reasons
    knowledge = replace(knowledge, transport=allowed.best)
    return knowledge, _planned(spec, rig, goal, knowledge, saved), allowed.reasons


def _sizes(spec: ModelSpec) -> dict[str, int | None]:
    """Bytes of each file of the model as it lies there now."""
    sizes: dict[str, int | None] = {}
    for file in model_files(spec):
        try:
            sizes[file] = Path(file).stat().st_size
        except OSError:
            sizes[file] = None
    return sizes
