"""What lies between devices and what they do, as the search asks for it.

The figures come from where `plan.predict` takes them, so that search and prediction agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from local_tp.core import EMPTY, Device, Goal, Link, ModelSpec, Placement, Transport
from local_tp.facts import Collective
from local_tp.plan.channels import hand_over
from local_tp.plan.predict import stage_channel, stages_of
from local_tp.plan.search.machine import Ways
from local_tp.plan.time import Speed
from local_tp.rates import Channel, Rates


def ways_of(
    spec: ModelSpec,
    goal: Goal,
    rates: Rates,
    links: Sequence[Link],
    collectives: Sequence[Collective],
    verified: Transport | None,
) -> Ways:
    """How the search asks about these devices, with what is known of links and transports."""
    empty = replace(spec, tensors={}, kinds=())

    def speed(device: Device, at_once: int, everywhere: int) -> Speed:
        stages = [0] * at_once + list(range(1, everywhere - at_once + 1))
        ranks = tuple(
            Placement(i, device.id, stage, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
            for i, stage in enumerate(stages)
        )
        devices = [device] * everywhere
        made = stages_of(empty, ranks, devices, links, collectives, "none", rates, goal)
        return made[0].ranks[0].speed

    def total(devices: Sequence[Device], by: Transport) -> Channel:
        return stage_channel(devices, devices, links, collectives, by, rates)

    def onward(devices: Sequence[Device], following: Sequence[Device], by: Transport) -> Channel:
        return hand_over(devices[0], following[0], links, by, rates)

    return Ways(speed, total, onward, lambda devices: choose_transport(devices, verified))


def choose_transport(devices: Sequence[Device], verified: Transport | None = None) -> Transport:
    """How ranks exchange activations: host memory among CPU ranks, NCCL among distinct cards.

    `verified` is what was found to work between cards, where somebody looked. Anything else goes
    through the host by gloo, since no direct path between the devices has been verified.
    """
    if len(devices) == 1:
        return "none"
    kinds = {d.kind for d in devices}
    if kinds == {"cpu"}:
        return "shared-memory" if all(d.ordered_stores for d in devices) else "gloo"
    if kinds == {"cuda"} and len({d.id for d in devices}) == len(devices):
        return verified or "nccl"
    return "gloo"
