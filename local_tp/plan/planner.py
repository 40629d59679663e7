"""From a model, a machine and a goal to a plan, by arithmetic.

Pure: no files, no torch, no clock. Where the goal leaves a choice open the planner makes it and
says why in `notes`; where nothing fits it refuses with device, need, have and what would help.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from local_tp.checkpoint.families import runs
from local_tp.checkpoint.formats import FORMATS
from local_tp.core import (
    Device,
    Goal,
    Link,
    ModelSpec,
    Placement,
    Plan,
    Rig,
    Split,
)
from local_tp.errors import DoesNotFit, PlanError
from local_tp.facts import Collective
from local_tp.hardware.devices import default_devices, resolve_devices, why_left_out
from local_tp.plan.check import check_placements
from local_tp.plan.place import place
from local_tp.plan.predict import with_prediction
from local_tp.plan.search.ask import (
    PAGE_SIZE,
    Ask,
    Knowledge,
    answer,
    short_of,
    transport_of,
    with_memories,
)
from local_tp.plan.search.choices import asked_of, choose, placed
from local_tp.plan.search.copies import best_copies
from local_tp.plan.search.objective import seconds
from local_tp.plan.search.reasons import alternatives, comparison, doubts, spilled
from local_tp.plan.search.refusal import refusal
from local_tp.plan.search.solve import Structure
from local_tp.plan.search.structures import split_of
from local_tp.plan.search.ways import choose_transport
from local_tp.plan.settle import context_of, settled

__all__ = ["PAGE_SIZE", "Knowledge", "best_plan", "choose_transport", "make_plan", "place"]

TELLING = 0.02  # a part of the time by which plans must differ for it to be said


def make_plan(
    spec: ModelSpec,
    devices: Sequence[Device],
    goal: Goal,
    knowledge: Knowledge,
    links: Sequence[Link] = (),
    placements: tuple[Placement, ...] | None = None,
    collectives: Sequence[Collective] = (),
) -> Plan:
    """The plan for `devices`, one rank each (a device may appear several times).

    `placements` overrides the split with a person's own; it is checked, not trusted. Raises
    `PlanError` for a split that is not possible and `DoesNotFit` for one that has no room.
    """
    if not devices:
        raise PlanError("a plan needs at least one device")
    notes: list[str] = []
    context = context_of(spec, goal, notes)
    asked, goal = goal, settled(goal, devices)
    ask = Ask(spec, tuple(devices), goal, knowledge, context, tuple(links), tuple(collectives))
    if placements is None and goal.shares:
        placements = _by_shares(ask)
    if placements is not None:
        check_placements(spec, placements, devices)
        ask, said = placed(ask, asked, placements)
        placements = with_memories(ask, placements)
        if short := short_of(ask, placements):
            raise refusal(ask, placements, short)
        return plan_of(ask, placements, _replaced(notes, said))
    ask = replace(ask, structures=tuple(_structures(spec, devices, goal)))
    ask, given, said = choose(ask, asked)
    if given.short:
        raise refusal(ask, given.placements, given.short)
    notes = [*_replaced(notes, said), *_of_kinds(devices, asked), *comparison(ask, given)]
    plan = plan_of(ask, given.placements, notes)
    return replace(
        plan,
        notes=(*plan.notes, *_alone(ask, plan)),
        alternatives=tuple(alternatives(ask, given)),
        doubts=tuple(doubts(ask, given)),
    )


def best_plan(spec: ModelSpec, rig: Rig, goal: Goal, knowledge: Knowledge) -> Plan:
    """The best plan for a machine: which devices, in which order, split how.

    A person's choices in `goal` are kept, and what they cost against the best free plan is noted.
    Raises as `make_plan`.
    """
    devices = resolve_devices(goal.devices or default_devices(rig), rig)
    plan = None
    if _unpacks(spec, goal, devices):
        plan = _unpacked(spec, rig, devices, goal, knowledge)
    if plan is None:
        plan = _best(spec, rig, devices, goal, knowledge)
    notes = (*plan.notes, *_cost(spec, rig, goal, knowledge, plan), *_not_yet(spec))
    return replace(plan, notes=notes)


def _best(
    spec: ModelSpec, rig: Rig, devices: Sequence[Device], goal: Goal, knowledge: Knowledge
) -> Plan:
    if goal.devices or goal.shares or all(device.kind == "cpu" for device in devices):
        plan = make_plan(spec, devices, goal, knowledge, rig.links, None, rig.collectives)
        if goal.devices:
            return plan
        return replace(plan, notes=(*plan.notes, *_default_notes(rig, devices)))
    return _searched(spec, rig, devices, goal, knowledge)


def _unpacks(spec: ModelSpec, goal: Goal, devices: Sequence[Device]) -> bool:
    """Whether 16 bits would be faster: on cards, which have no kernels for packed weights yet."""
    packed = any(FORMATS[info.format].quantized for info in spec.tensors.values())
    chosen = goal.dtype != "auto" or goal.objective in ("context", "quality")
    return bool(spec.path) and packed and not chosen and any(d.kind != "cpu" for d in devices)


def _unpacked(
    spec: ModelSpec, rig: Rig, devices: Sequence[Device], goal: Goal, knowledge: Knowledge
) -> Plan | None:
    """The plan with weights in 16 bits, where the devices hold those without a shorter context."""
    wide = replace(goal, dtype="bfloat16", offload="none")
    try:
        plan = _best(spec, rig, devices, wide, knowledge)
    except DoesNotFit:
        return None
    if plan.context < context_of(spec, goal, []):
        return None
    note = (
        "weights in 16 bits, since there is room: cards have no kernels for packed ones in this "
        "version and would unpack them for every product"
    )
    return replace(plan, notes=(*plan.notes, note))


def _searched(
    spec: ModelSpec, rig: Rig, cards: Sequence[Device], goal: Goal, knowledge: Knowledge
) -> Plan:
    """The best plan on some of these cards, and on the processor where they have no room."""
    notes: list[str] = []
    context = context_of(spec, goal, notes)
    ask = Ask(
        spec,
        (*cards, *(d for d in rig.devices if d.kind == "cpu")),
        settled(goal, (*cards, *(d for d in rig.devices if d.kind == "cpu"))),
        knowledge,
        context,
        rig.links,
        rig.collectives,
    )
    ask, given, said = choose(ask, goal)
    if given.short:
        raise refusal(ask, given.placements, given.short)
    notes = _replaced(notes, said)
    plan = plan_of(ask, given.placements, notes)
    assert plan.prediction is not None
    copied = best_copies(ask, plan.prediction.aggregate) if goal.objective == "serve" else None
    if copied is not None:
        ask, given, copies = copied
        plan = plan_of(ask, given.placements, notes, copies, goal.streams)
    return replace(
        plan,
        alternatives=tuple(alternatives(ask, given)),
        notes=(*plan.notes, *spilled(spec, plan), *_left_out(rig)),
        doubts=tuple(doubts(ask, given)),
    )


def plan_of(
    ask: Ask,
    placements: tuple[Placement, ...],
    notes: Sequence[str],
    copies: tuple[tuple[str, ...], ...] = (),
    streams: int | None = None,
) -> Plan:
    """The plan of placements that fit, with its prediction; `streams` are those of all copies."""
    devices = [next(d for d in ask.devices if d.id == p.device) for p in placements]
    check_placements(ask.spec, placements, devices, copies)
    plan = Plan(
        model=ask.spec.name,
        goal=replace(ask.goal, streams=streams or ask.goal.streams),
        placements=placements,
        transport=transport_of(ask, devices),
        context=ask.context,
        page_size=PAGE_SIZE,
        pages=ask.pages,
        split=_split_of(placements),
        copies=copies,
        notes=tuple(notes),
    )
    return with_prediction(ask.spec, plan, devices, ask.links, ask.knowledge.rates, ask.collectives)


def _replaced(notes: Sequence[str], said: Sequence[str]) -> list[str]:
    """Notes on a choice in place of that on the default context."""
    kept = [note for note in notes if not (said and note.startswith("context "))]
    return [*kept, *said]


def _by_shares(ask: Ask) -> tuple[Placement, ...]:
    """A person's ratio, in the order of the devices."""
    goal, named = ask.goal, len(ask.devices)
    if len(goal.shares) != named:
        raise PlanError(
            f"--shares has {len(goal.shares)} numbers for {named} devices: give one each"
        )
    split = goal.split or ("tensor" if len({d.kind for d in ask.devices}) == 1 else "layer")
    return place(ask.spec, ask.devices, "single" if named == 1 else split, goal)


def _structures(spec: ModelSpec, devices: Sequence[Device], goal: Goal) -> Iterator[Structure]:
    """The ways to put these ranks, in this order, into stages; all of them are used."""
    ranks, split = len(devices), goal.split
    if split == "single" and ranks > 1:
        raise PlanError(
            f"split single takes one device, {ranks} were named: name one, or --split auto"
        )
    if split == "hybrid" and ranks < 3:
        raise PlanError(
            f"split hybrid needs three devices, {ranks} named: use --split tensor or layer"
        )
    if split == "layer" and ranks > spec.dimensions.layers:
        raise PlanError(
            f"{ranks} stages need at least {ranks} layers, the model has {spec.dimensions.layers}"
        )
    found = False
    for structure in _groupings(ranks):
        alike = all(len({devices[i].kind for i in group}) == 1 for group in structure)
        name = split_of(structure)
        wanted = name == split or (split is None and _tried(name, devices)) or ranks == 1
        if alike and wanted and len(structure) <= spec.dimensions.layers:
            found = True
            yield structure
    if not found:
        raise PlanError(
            "the devices of one stage must be of one kind, and each stage holds a layer at "
            f"least: split {split or 'auto'} is not possible here, use --split layer"
        )


def _of_kinds(devices: Sequence[Device], goal: Goal) -> Iterator[str]:
    if goal.split is None and len({d.kind for d in devices}) > 1:
        yield "split by layer where the devices are of different kinds: a stage must be of one kind"


def _groupings(ranks: int) -> Iterator[Structure]:
    """Every way to cut a row of ranks into runs."""
    for cuts in range(1 << (ranks - 1)):
        structure, start = [], 0
        for i in range(1, ranks + 1):
            if i == ranks or cuts >> (i - 1) & 1:
                structure.append(tuple(range(start, i)))
                start = i
        yield tuple(structure)


def _tried(name: Split, devices: Sequence[Device]) -> bool:
    """Ranks on one processor are split by layer or together; cards in groups as well."""
    return name != "hybrid" or len({d.id for d in devices}) == len(devices)


def _alone(ask: Ask, plan: Plan) -> Iterator[str]:
    """Says so where one device would do it faster than all that were named."""
    for device in dict.fromkeys(ask.devices):
        if len(ask.devices) == 1 or plan.prediction is None:
            return
        one = replace(
            ask, devices=(device,), goal=replace(ask.goal, split=None), structures=(((0,),),)
        )
        given = answer(one)
        if given.short:
            continue
        alone = plan_of(one, given.placements, ())
        assert alone.prediction is not None
        if _wait(alone, ask.goal) < _wait(plan, ask.goal):
            yield (
                f"one worker on {device.id} alone: predicted {alone.prediction.decode:.0f} "
                f"tokens/s instead of {plan.prediction.decode:.0f} while nothing else runs "
                f"(--devices {device.id})"
            )


def _wait(plan: Plan, goal: Goal) -> float:
    assert plan.prediction is not None
    return seconds(plan.prediction, goal.objective)


def _cost(spec: ModelSpec, rig: Rig, goal: Goal, knowledge: Knowledge, plan: Plan) -> Iterator[str]:
    """What a person's own choices cost against the best plan without them."""
    named = asked_of(goal)
    if not named:
        return
    free = replace(
        goal,
        devices=(),
        split=None,
        shares=(),
        reserve={},
        context=None if goal.objective == "context" else plan.context,
        dtype="stored" if goal.dtype == "stored" else "auto",
        kv_format=None,
        offload="auto",
    )
    try:
        best = best_plan(spec, rig, replace(free), knowledge)
    except DoesNotFit:
        return
    if best.prediction is None or plan.prediction is None:
        return
    mine, other = plan.prediction, best.prediction
    where = " + ".join(p.device for p in best.placements)
    if goal.objective == "serve":
        figures = mine.aggregate, other.aggregate
    else:
        figures = mine.decode, other.decode
    if _wait(best, goal) < _wait(plan, goal) * (1 - TELLING):
        yield (
            f"as asked ({', '.join(named)}): predicted {figures[0]:.1f} tokens/s; the best plan "
            f"without that reaches {figures[1]:.1f} ({best.split} split on {where})"
        )


def _default_notes(rig: Rig, devices: Sequence[Device]) -> Iterator[str]:
    """Why the processor, and why as many workers."""
    if len(devices) > 1:
        yield (
            f"{len(devices)} workers on the processor, as there is no card to use: they share its "
            "cores and run one part each"
        )
    yield from _left_out(rig)


def _left_out(rig: Rig) -> Iterator[str]:
    for device in rig.devices:
        if reason := why_left_out(device):
            yield f"{device.id} ({device.name}) is left out: {reason}"


def _not_yet(spec: ModelSpec) -> Iterator[str]:
    """What this version plans and cannot run, or runs without."""
    yield from spec.left_out
    if not runs(spec.family):
        yield "planned only: this version cannot run models of this family yet"


def _split_of(placements: Sequence[Placement]) -> Split:
    stages = {p.stage for p in placements}
    if len(placements) == 1:
        return "single"
    if len(stages) == 1:
        return "tensor"
    return "layer" if len(stages) == len(placements) else "hybrid"
