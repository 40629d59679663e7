"""Why this plan and not another: runner-ups with their numbers, and what is not sure.

A doubt is an unmeasured number within whose plausible range another plan would win; its first
words are a key, "link A B" or "collective TRANSPORT A B …", by which it can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from local_tp.core import Device, ModelSpec, Plan, Split, Transport
from local_tp.plan.search.ask import Answer, Ask
from local_tp.plan.search.lean import WORTH
from local_tp.plan.search.machine import Machine, Ways
from local_tp.plan.search.objective import seconds
from local_tp.plan.search.plan import prediction_of
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.search import with_device
from local_tp.plan.search.solve import Solution
from local_tp.plan.search.structures import split_of
from local_tp.prediction import Alternative, Prediction
from local_tp.rates import Channel

SPLITS: tuple[Split, ...] = ("single", "layer", "tensor", "hybrid")
PLAUSIBLE = 3.0  # by which an unmeasured latency or bandwidth may be off, either way


def alternatives(ask: Ask, given: Answer) -> Iterator[Alternative]:
    """The best of each other split, and what each unused card would make of the plan."""
    problem, best = given.problem, given.found.best
    mine = _predicted(ask, problem, best)
    for solution in given.found.solutions[1:]:
        other = _predicted(ask, problem, solution)
        yield Alternative(
            what=_what(problem, solution),
            devices=_devices(problem, solution),
            reason=_reason(ask, mine, other),
            prediction=other,
            context=ask.context,
        )
    found = {split_of(solution.structure) for solution in given.found.solutions}
    possible = _possible(ask, problem)
    for split in SPLITS:
        if split in possible - found and ask.goal.split in (None, split):
            yield Alternative(f"{split} split", (), "it has no room on any of the devices")
    if not ask.structures and not given.found.spilled:
        yield from _with_one_more(ask, given, mine)


def comparison(ask: Ask, given: Answer) -> Iterator[str]:
    """The other splits of named devices in a line each."""
    best = split_of(given.found.best.structure)
    mine = _predicted(ask, given.problem, given.found.best)
    for solution in given.found.solutions[1:]:
        other = _predicted(ask, given.problem, solution)
        yield (
            f"{best} split: predicted {mine.decode:.0f} tokens/s in decode, "
            f"{split_of(solution.structure)} split {other.decode:.0f}"
        )
    found = {split_of(solution.structure) for solution in given.found.solutions}
    for split in SPLITS:
        if split in {split_of(structure) for structure in ask.structures} - found:
            yield f"{best} split: {split} split has no room"


def spilled(spec: ModelSpec, plan: Plan) -> Iterator[str]:
    """What lies in the PC's memory, said aloud."""
    layers = sum(p.streamed.size for p in plan.placements if p.rank == plan.stage(p.stage)[0].rank)
    if layers:
        yield (
            f"{layers} of {spec.dimensions.layers} layers stay in the PC's memory and are copied "
            "to the card for every step: the cards have no room for them"
        )
    experts = max((p.experts.size for p in plan.placements if p.device == "cpu"), default=0)
    beside = any(p.device != "cpu" for p in plan.placements)
    tier = sum(p.layers.size for p in plan.placements if p.device == "cpu" and p.query_heads.size)
    if beside and tier:
        yield (
            f"{tier} of {spec.dimensions.layers} layers run on the processor: the cards have no "
            "room for them"
        )
    elif beside and experts:
        yield (
            f"up to {experts} of {spec.dimensions.experts} experts of a layer lie with the "
            "processor: the cards have no room for them"
        )


def doubts(ask: Ask, given: Answer) -> Iterator[str]:
    """The unmeasured numbers on which it depends that this plan is the best one.

    The plan's own channels are taken as slow as is plausible while others keep theirs, and each
    other plan's as fast as is plausible.
    """
    problem, (best, *others) = given.problem, given.found.solutions
    objective = ask.goal.objective

    def wait(of: Solution, channel: Channel | None = None, factor: float = 1.0) -> float:
        asked = problem if channel is None else _with(problem, channel, _times(channel, factor))
        return seconds(_predicted(ask, asked, of), objective)

    mine = wait(best)
    own = _channels(ask, problem, best)
    for key, channel in own.items():
        slower = wait(best, channel, PLAUSIBLE)
        rival = min(others, key=lambda other: wait(other, channel, PLAUSIBLE), default=None)
        if rival is not None and wait(rival, channel, PLAUSIBLE) * (1 + WORTH) < slower:
            yield (
                f"{key}: not measured; if it is {PLAUSIBLE:g} times slower than assumed "
                f"({_shown(channel)}), {_what(problem, rival)} is faster"
            )
    for other in others:
        for key, channel in _channels(ask, problem, other).items():
            if key not in own and wait(other, channel, 1 / PLAUSIBLE) * (1 + WORTH) < mine:
                own[key] = channel
                yield (
                    f"{key}: not measured; if it is {PLAUSIBLE:g} times faster than assumed "
                    f"({_shown(channel)}), {_what(problem, other)} is faster"
                )


def _with_one_more(ask: Ask, given: Answer, mine: Prediction) -> Iterator[Alternative]:
    problem, best = given.problem, given.found.best
    machine = problem.machine
    used = {i for ranks in best.structure for i in ranks}
    seen: set[object] = set()
    for index, device in enumerate(ask.devices):
        if index in used or device.kind == "cpu" or machine.likeness(index) in seen:
            continue
        seen.add(machine.likeness(index))
        larger = with_device(problem, best, index)
        if larger is None:
            continue
        other = _predicted(ask, problem, larger)
        slower = seconds(mine, ask.goal.objective) <= seconds(other, ask.goal.objective)
        yield Alternative(
            what=f"{_what(problem, larger)}, with {device.name} ({device.id}) as well",
            devices=_devices(problem, larger),
            reason=f"this card makes it slower: {_reason(ask, mine, other)}"
            if slower
            else _reason(ask, mine, other),
            prediction=other,
            context=ask.context,
        )


def _reason(ask: Ask, mine: Prediction, other: Prediction) -> str:
    """The numbers that decided, and what the other one waits for."""
    gain = seconds(mine, ask.goal.objective) / seconds(other, ask.goal.objective) - 1
    if gain > 0:
        return (
            f"{gain:.1%} faster, which is less than predictions are off by and not worth its "
            "devices"
        )
    if ask.goal.objective == "serve":
        numbers = f"{other.aggregate:.1f} instead of {mine.aggregate:.1f} tokens/s for all users"
    else:
        numbers = f"{other.decode:.1f} instead of {mine.decode:.1f} tokens/s"
        if other.decode >= mine.decode:
            numbers = (
                f"the first token after {other.first_token:.2f} instead of {mine.first_token:.2f} s"
            )
    return f"{numbers}; it waits most for {other.bound}"


def _predicted(ask: Ask, problem: Problem, solution: Solution) -> Prediction:
    return prediction_of(problem, solution, ask.context, ask.goal.streams)


def _what(problem: Problem, solution: Solution) -> str:
    """A solution in words: its split and its devices, stages apart by arrows."""
    devices = problem.machine.devices
    stages = " → ".join(" + ".join(devices[i].id for i in ranks) for ranks in solution.structure)
    split = split_of(solution.structure)
    return f"{stages} alone" if split == "single" else f"{split} split on {stages}"


def _devices(problem: Problem, solution: Solution) -> tuple[str, ...]:
    return tuple(problem.machine.devices[i].id for ranks in solution.structure for i in ranks)


def _possible(ask: Ask, problem: Problem) -> set[Split]:
    """Splits that the number and kinds of devices allow."""
    if ask.structures:
        return {split_of(structure) for structure in ask.structures}
    kinds = [device.kind for device in ask.devices if device.kind != "cpu"]
    found: set[Split] = {"single"}
    if len(kinds) > 1 and problem.layers > 1:
        found.add("layer")
    if any(kinds.count(kind) > 1 for kind in kinds):
        found.add("tensor")
        if len(kinds) > 2 and problem.layers > 1:
            found.add("hybrid")
    return found


def _channels(ask: Ask, problem: Problem, solution: Solution) -> dict[str, Channel]:
    """The channels of a solution that nobody measured, by the key to measure them with."""
    machine = problem.machine
    found: dict[str, Channel] = {}
    for at, ranks in enumerate(solution.structure):
        ids = tuple(machine.devices[i].id for i in ranks)
        if len(set(ids)) > 1 and not _timed(ask, ids, solution.transport):
            name = f"collective {solution.transport} {' '.join(ids)}"
            found[name] = machine.total(ranks, solution.transport)
        if at + 1 < len(solution.structure):
            following = solution.structure[at + 1]
            pair = ids[0], machine.devices[following[0]].id
            if pair[0] != pair[1] and not _measured(ask, *pair):
                channel = machine.onward(ranks, following, solution.transport)
                found[f"link {pair[0]} {pair[1]}"] = channel
    return found


def _timed(ask: Ask, ids: Sequence[str], transport: Transport) -> bool:
    return any(c.transport == transport and set(c.devices) == set(ids) for c in ask.collectives)


def _measured(ask: Ask, a: str, b: str) -> bool:
    return any(link.measured and {link.a, link.b} == {a, b} for link in ask.links)


def _times(channel: Channel, factor: float) -> Channel:
    return replace(channel, latency=channel.latency * factor, bandwidth=channel.bandwidth / factor)


def _with(problem: Problem, channel: Channel, other: Channel) -> Problem:
    """The same question on a machine where one channel is another."""
    ways = problem.machine.ways

    def total(devices: Sequence[Device], by: Transport) -> Channel:
        found = ways.total(devices, by)
        return other if found == channel else found

    def onward(a: Sequence[Device], b: Sequence[Device], by: Transport) -> Channel:
        found = ways.onward(a, b, by)
        return other if found == channel else found

    machine = problem.machine
    altered: Machine = replace(
        machine, ways=Ways(ways.speed, total, onward, ways.transport), known={}
    )
    return replace(problem, machine=altered, known={})


def _shown(channel: Channel) -> str:
    return f"{channel.latency * 1e6:.0f} us, {channel.bandwidth / 1e9:.1f} GB/s"
