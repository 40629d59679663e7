"""From placements to stages with work, speeds and channels, and the prediction of a plan.

Joins what a model asks for with what devices and links give; `plan.time` does the arithmetic.
Rated figures of a device are shared out among the ranks that run there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import Device, Goal, Link, ModelSpec, Placement, Plan, Transport
from local_tp.facts import Collective
from local_tp.plan.channels import copy_rate, hand_over, sum_channel
from local_tp.plan.time import Rank, Speed, Stage, predict
from local_tp.plan.work import work_of
from local_tp.rates import Channel, Rates

# A figure for a device of which no source gives one, on the careful side.
CPU_BANDWIDTH, CPU_FLOPS = 20e9, 3e11
CARD_BANDWIDTH, CARD_FLOPS = 300e9, 2e13
CORES_EXPONENT = 0.45  # a part of the cores reaches so much of what all reach: half, three quarters


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
        total = sum_channel(members, links, collectives, transport, rates)
        onward = Channel()
        if at + 1 < len(ordered):
            following = ordered[at + 1][0][1]
            onward = hand_over(members[0], following, links, transport, rates)
        stages.append(Stage(ranks, total, onward))
    return tuple(stages)


def with_prediction(
    spec: ModelSpec,
    plan: Plan,
    devices: Sequence[Device],
    rig_links: Sequence[Link],
    rates: Rates,
    collectives: Sequence[Collective] = (),
) -> Plan:
    """`plan` with its prediction; replicas answer side by side and share the streams."""
    goal, copies = plan.goal, plan.replicas
    stages = stages_of(
        spec, plan.placements, devices, rig_links, collectives, plan.transport, rates, goal
    )
    streams = max(1, -(-goal.streams // copies))
    chunk = min(goal.chunk, plan.context)
    found = predict(stages, spec.dimensions.hidden, rates, plan.context, chunk, streams)
    together = min(copies, goal.streams) * found.aggregate
    return replace(plan, prediction=replace(found, aggregate=together))


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
    alone = (1 / ranks) ** CORES_EXPONENT
    bandwidth = (device.bandwidth or CPU_BANDWIDTH) * min(1 / at_once, alone)
    rate = max((value for _, value in device.facts.matmul), default=device.flops or CPU_FLOPS)
    return Speed(device.id, device.kind, bandwidth, rate / ranks)


def _card_flops(device: Device, rates: Rates) -> float:
    """Operations a second: as measured, else as rated within what the power limit allows."""
    rated = device.flops or CARD_FLOPS
    watts = device.facts.power_limit or device.facts.power_default
    if device.facts.matmul or not watts or device.capability is None:
        return rated
    major, minor = device.capability
    return min(rated, watts * rates.joule.get(f"{major}.{minor}", float("inf")))
