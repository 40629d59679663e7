"""What would change a plan's answer: the same question with one thing different, asked again.

Pure. Each change is really planned, so its figures are those of a plan; one that makes no
difference is not mentioned. Questions come in the order of their worth, so that a caller who has
waited long enough can stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from local_tp.core import Device, Goal, Link, Plan, Rig
from local_tp.errors import InputError
from local_tp.plan.explain import labels, short, ways
from local_tp.plan.search.objective import seconds
from local_tp.prediction import Prediction

MIB = 1 << 20
DIFFERENCE = 1.03  # a plan that is less than so many times as fast is the same to a person
CROWDED = 300 * MIB  # that others hold on a card before closing them is worth a word
DIRECT_OF_STAGED = 0.82 / 0.60  # shares of the lanes' rate: peer to peer, and through memory
SMALLEST_CONTEXT = 1024

Planner = Callable[[Rig, Goal], Plan]


@dataclass(frozen=True, slots=True)
class Question:
    """Something different, in words that begin a sentence, and what is then asked.

    `gain` says that only a better answer is worth telling; without it a worse one is, too.
    """

    what: str
    rig: Rig
    goal: Goal
    gain: bool = True


def changes(
    rig: Rig, goal: Goal, plan: Plan, planner: Planner, another: Device | None = None
) -> Iterator[str]:
    """What would be different, a sentence each, with the figures of both plans.

    `planner` answers a question as the plan was made; `another` is a card that one could add.
    """
    for question in questions(rig, goal, plan, another):
        try:
            other = planner(question.rig, question.goal)
        except InputError:  # such a machine or wish has no plan: nothing to tell
            continue
        if question.gain and not _better(plan, other):
            continue
        if said := difference(question.rig, plan, other):
            yield f"{question.what}: {said}"


def questions(
    rig: Rig, goal: Goal, plan: Plan, another: Device | None = None
) -> Iterator[Question]:
    """What is worth asking of this machine."""
    if goal.objective != "context":
        longest = replace(goal, objective="context", context=None)
        yield Question("for the longest context (--objective context)", rig, longest)
        if (half := plan.context // 2) >= SMALLEST_CONTEXT:
            asked = replace(goal, context=half)
            yield Question(f"with a context of {half:,} instead of {plan.context:,}", rig, asked)
    for device in rig.devices:
        if device.kind != "cpu" and (freed := _closed(device)) is not None:
            mib = (freed.free - device.free) // MIB
            what = f"with programs closed that hold {mib:,} MiB on {device.id}"
            yield Question(what, _with_device(rig, freed), goal)
    if another is not None:
        more = (*goal.devices, another.id) if goal.devices else ()
        yield Question(
            f"with another card, {short(another.name)}",
            _with_another(rig, another),
            replace(goal, devices=more, split=None, shares=()),
        )
    yield from _links_measured(rig, goal, plan)


def difference(rig: Rig, plan: Plan, other: Plan) -> str:
    """What another plan does that this one does not, or nothing."""
    said = []
    if plan.prediction is not None and other.prediction is not None:
        before, after = (_rate(p, plan.goal) for p in (plan.prediction, other.prediction))
        if max(before, after) >= DIFFERENCE * min(before, after):
            said.append(f"{after:.3g} tokens/s instead of {before:.3g}")
        early, late = plan.prediction.first_token, other.prediction.first_token
        if max(early, late) >= 1.1 * min(early, late) and max(early, late) > 0.1:
            said.append(f"first token after {late:.2g} s instead of {early:.2g} s")
    if other.context > plan.context:
        said.append(f"context {other.context:,} instead of {plan.context:,}")
    if said and (where := _where(rig, other)) != _where(rig, plan):
        said.append(where)
    if said and other.goal.dtype != plan.goal.dtype:
        said.append(f"weights in {other.goal.dtype}")
    return ", ".join(said)


def _rate(prediction: Prediction, goal: Goal) -> float:
    """Tokens a second of what the goal is about: one user, or all together."""
    return prediction.aggregate if goal.objective == "serve" else prediction.decode


def _better(plan: Plan, other: Plan) -> bool:
    """Whether somebody waits less, or may write more."""
    if other.context != plan.context and other.goal.context is None:
        return other.context > plan.context
    if plan.prediction is None or other.prediction is None:
        return False
    now, then = (seconds(p, plan.goal.objective) for p in (plan.prediction, other.prediction))
    return then < now


def _where(rig: Rig, plan: Plan) -> str:
    names = labels(rig)
    ids = dict.fromkeys(p.device for p in plan.placements)
    how = "single " if plan.split == "single" else f"{plan.split} split "
    copies = f" and {plan.replicas - 1} more copies" if plan.copies else ""
    return f"{how}on {', '.join(names[device] for device in ids if device in names)}{copies}"


def _closed(device: Device) -> Device | None:
    """The card as it would be with nobody else on it, if that is worth a word."""
    hidden = device.facts.hidden or 0
    free = device.total - hidden
    return replace(device, free=free) if free - device.free >= CROWDED else None


def _links_measured(rig: Rig, goal: Goal, plan: Plan) -> Iterator[Question]:
    """The plan's links between cards, if they turn out better or worse than was assumed."""
    pairs = {frozenset((way.a, way.b)) for way in ways(rig, plan)}
    unsure = [
        link for link in rig.links if not link.measured and frozenset((link.a, link.b)) in pairs
    ]
    if not unsure:
        return
    names = labels(rig)
    ends = f"{names[unsure[0].a]} and {names[unsure[0].b]}"
    which, link = f"between {ends}", f"if the link between {ends} is"
    if len(unsure) > 1:
        which, link = f"between {len(unsure)} pairs of cards", f"if {len(unsure)} links are"
    staged = [link for link in unsure if link.kind == "host"]
    if staged:
        direct = _with_links(rig, staged, _direct)
        yield Question(f"if peer to peer is measured to work {which}", direct, goal)
    slow = _with_links(rig, unsure, lambda link: _scaled(link, 0.5))
    yield Question(f"{link} measured at half the speed assumed", slow, goal, gain=False)


def _direct(link: Link) -> Link:
    return replace(_scaled(link, DIRECT_OF_STAGED), kind="p2p", verified=True)


def _scaled(link: Link, factor: float) -> Link:
    return replace(link, bandwidth=None if link.bandwidth is None else link.bandwidth * factor)


def _with_links(rig: Rig, changed: list[Link], change: Callable[[Link], Link]) -> Rig:
    links = tuple(change(link) if link in changed else link for link in rig.links)
    return replace(rig, links=links)


def _with_device(rig: Rig, changed: Device) -> Rig:
    devices = tuple(changed if d.id == changed.id else d for d in rig.devices)
    return replace(rig, devices=devices)


def _with_another(rig: Rig, another: Device) -> Rig:
    """The machine with one more card, joined to the others through the PC's memory."""
    links = tuple(
        Link(device.id, another.id, "host") for device in rig.devices if device.kind != "cpu"
    )
    return replace(rig, devices=(another, *rig.devices), links=(*rig.links, *links))
