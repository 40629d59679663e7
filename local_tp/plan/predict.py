"""From placements to stages with work, speeds and channels, and the prediction of a plan.

Joins what a model asks for with what devices and links give; `plan.time` does the arithmetic.
Rated figures of a device are shared out among the ranks that run there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log

from local_tp.core import Device, Goal, Link, ModelSpec, Placement, Plan, Transport
from local_tp.facts import Collective
from local_tp.plan.channels import copy_rate, hand_over, sum_channel
from local_tp.plan.time import Rank, Speed, Stage, predict
from local_tp.plan.work import work_of
from local_tp.prediction import Prediction
from local_tp.rates import Channel, Rates

# A figure for a device of which no source gives one, on the careful side.
CPU_BANDWIDTH, CPU_FLOPS = 20e9, 3e11
CARD_BANDWIDTH, CARD_FLOPS = 300e9, 2e13
# Of the memory bandwidth of all cores a part of them draws (part of the cores) ** exponent: half of
# them three quarters. Where one core was measured beside all, that tells the exponent.
CORES_EXPONENT = 0.45
LONG = 8  # chunks of a long prompt


def stages_of(
    spec: ModelSpec,
    placements: Sequence[Placement],
    devices: Sequence[Device],
    links: Sequence[Link],
    collectives: Sequence[Collective],
    transport: Transport,
    rates: Rates,
    goal: Goal,
) -> tuple[Stage, ...]:
    """The stages of one replica; `devices` are those of the ranks, in rank order."""
    groups: dict[int, list[tuple[Placement, Device]]] = {}
    for placement in placements:
        pair = (placement, devices[placement.rank])
        groups.setdefault(placement.stage, []).append(pair)
    ordered = [groups[index] for index in sorted(groups)]
    stages = []
    for at, group in enumerate(ordered):
        members = [device for _, device in group]
        ranks = tuple(
            Rank(work_of(spec, p, goal, d.kind), _speed(d, members, devices, rates))
            for p, d in group
        )
        total = stage_channel(members, devices, links, collectives, transport, rates)
        onward = Channel()
        if at + 1 < len(ordered):
            following = ordered[at + 1][0][1]
            onward = hand_over(members[0], following, links, transport, rates)
        stages.append(Stage(ranks, total, onward))
    return tuple(stages)


def stage_channel(
    members: Sequence[Device],
    everywhere: Sequence[Device],
    links: Sequence[Link],
    collectives: Sequence[Collective],
    transport: Transport,
    rates: Rates,
) -> Channel:
    """A sum among the ranks of a stage, slower where all ranks together outnumber the cores."""
    total = sum_channel(members, links, collectives, transport, rates)
    processors = [device for device in everywhere if device.kind == "cpu"]
    cores = processors[0].facts.cores if processors else None
    if len(members) < 2 or not cores or len(processors) <= cores:
        return total
    return replace(total, latency=total.latency + rates.asleep)


def with_prediction(
    spec: ModelSpec,
    plan: Plan,
    devices: Sequence[Device],
    rig_links: Sequence[Link],
    rates: Rates,
    collectives: Sequence[Collective] = (),
) -> Plan:
    """`plan` with its prediction; replicas answer side by side and share the streams.

    `devices` are those of the ranks. A copy that lies on the same processor shares its cores.
    """
    goal, by_id = plan.goal, {device.id: device for device in devices}
    beside = [by_id[id] for copy in plan.copies for id in copy if id in by_id]
    everywhere = [*devices, *beside]
    stages = stages_of(
        spec, plan.placements, everywhere, rig_links, collectives, plan.transport, rates, goal
    )
    chunk = min(goal.chunk, plan.context)

    def of(streams: int) -> Prediction:
        prompt = long_prompt(plan.context, chunk)
        return predict(stages, spec.dimensions.hidden, rates, plan.context, chunk, streams, prompt)

    total = together(lambda streams: of(streams).aggregate, goal.streams, plan.replicas)
    return replace(plan, prediction=replace(of(goal.streams), aggregate=total))


def long_prompt(context: int, chunk: int) -> int:
    """Tokens of the prompt whose prefill a plan promises: several chunks, if the context has room.

    With one chunk no stage could work while another does.
    """
    return min(context, LONG * chunk)


def together(aggregate: Callable[[int], float], streams: int, copies: int) -> float:
    """Tokens a second of all replicas, among which the streams are divided as evenly as can be.

    `aggregate` is that of one replica with so many streams.
    """
    each, more = divmod(streams, copies)
    total = more * aggregate(each + 1) if more else 0.0
    return total + (copies - more) * aggregate(each) if each else total


def _speed(
    device: Device, stage: Sequence[Device], everywhere: Sequence[Device], rates: Rates
) -> Speed:
    """A rank's part of its device: of the memory what runs at the same time leaves, of the
    processor's cores those that its workers have at all times."""
    at_once = sum(other.id == device.id for other in stage)
    ranks = max(at_once, sum(other.id == device.id for other in everywhere))
    if device.kind != "cpu":
        bandwidth = (device.bandwidth or CARD_BANDWIDTH) / at_once
        flops = _card_flops(device, rates) / at_once
        return Speed(device.id, device.kind, bandwidth, flops, copy_rate(device))
    share = _share_of_cores(device.facts.cores, at_once, ranks)
    whole, exponent = _memory(device)
    bandwidth = whole * min(1 / at_once, share**exponent)
    types = dict(device.facts.matmul)
    float32, bfloat16 = (share * types.get(name, 0.0) for name in ("float32", "bfloat16"))
    fastest = max(float32, bfloat16) or share * (device.flops or CPU_FLOPS)
    return Speed(device.id, device.kind, bandwidth, fastest, float32=float32, bfloat16=bfloat16)


def _share_of_cores(cores: int | None, at_once: int, ranks: int) -> float:
    """The part of the processor that computes for one rank: its threads, as long as each of the
    ranks that run at once has cores of its own."""
    if not cores:
        return 1 / ranks
    return min(worker_threads(cores, ranks) / cores, 1 / at_once)


def _memory(device: Device) -> tuple[float, float]:
    """Bytes a second by all cores, and the exponent by which a part of them draws less."""
    cores, one = device.facts.cores or 1, device.facts.core_bandwidth or 0.0
    whole = device.bandwidth or CPU_BANDWIDTH
    if cores == 1 or not one:
        return whole, CORES_EXPONENT
    if one >= whole:  # nobody measured more than one core
        return one * cores**CORES_EXPONENT, CORES_EXPONENT
    return whole, log(whole / one) / log(cores)


def worker_threads(cores: int, ranks: int) -> int:
    """Threads of each of `ranks` workers on the processor: the cores shared out, one at least.

    Of more than two cores one is left to everything else that runs: threads that wait for one
    another are only as fast as the one that has to share its core.
    """
    usable = cores - 1 if cores > 2 else cores
    return max(1, usable // max(1, ranks))


def _card_flops(device: Device, rates: Rates) -> float:
    """Operations a second: as measured, else as rated within what the power limit allows."""
    rated = device.flops or CARD_FLOPS
    watts = device.facts.power_limit or device.facts.power_default
    if device.facts.matmul or not watts or device.capability is None:
        return rated
    major, minor = device.capability
    return min(rated, watts * rates.joule.get(f"{major}.{minor}", float("inf")))
