"""A rank's group and links, over what the plan chose.

CPU ranks share memory. Cards use NCCL. Everything else goes through host memory by gloo. Which rank
talks to which follows from the plan alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as distributed

from local_tp.core import Plan
from local_tp.model.collectives import Group, Link, Solo, TorchGroup, TorchLink, join
from local_tp.model.shared_memory import SharedGroup, SharedLink
from local_tp.runtime.arena import cut_arena
from local_tp.runtime.wire import Load

SPINS = 4000  # turns of a waiting loop before it yields: about 200 us, longer than any reduction


@dataclass(frozen=True, slots=True)
class Transport:
    """`incoming` and `outgoing` are absent at the ends of the line.

    `outgoing` is there on every rank of a stage; only its leader sends.
    """

    group: Group
    incoming: Link | None
    outgoing: Link | None


def connect(load: Load, memory: memoryview | None, device: torch.device) -> Transport:
    """Join the other ranks; returns when all are there."""
    if load.plan.transport == "none":
        return Transport(Solo(), None, None)
    if load.plan.transport == "shared-memory":
        assert memory is not None
        return _shared(load, memory)
    return _torch(load, device)


def _shared(load: Load, memory: memoryview) -> Transport:
    plan, mine = load.plan, load.plan.placements[load.rank]
    arena = cut_arena(load.spec, plan)
    hidden = load.spec.dimensions.hidden
    index = _index(plan, load.rank)
    crowded = len(plan.placements) * plan.replicas > usable_cores()
    spins = 1 if crowded else SPINS
    widths = [p.vocab.size for p in plan.stage(mine.stage)]
    group: Group = Solo()
    if len(widths) > 1:
        group = SharedGroup(memory, arena.groups[mine.stage], index, widths, spins, load.timeout)
    incoming = outgoing = None
    if mine.stage > 0:
        region = arena.links[mine.stage - 1]
        incoming = SharedLink(memory, region, 1 + index, hidden, spins, load.timeout)
    if mine.stage + 1 < plan.stages:
        region = arena.links[mine.stage]
        outgoing = SharedLink(memory, region, 0, hidden, spins, load.timeout)
    return Transport(group, incoming, outgoing)


def _torch(load: Load, device: torch.device) -> Transport:
    """Every rank makes every subgroup, in the same order, as torch.distributed demands."""
    plan, mine = load.plan, load.plan.placements[load.rank]
    backend = load.plan.transport
    staged = backend == "gloo" and device.type != "cpu"
    assert load.meeting is not None
    join(backend, load.meeting, load.rank, len(plan.placements), load.timeout)
    group: Group = Solo()
    incoming = outgoing = None
    for stage in range(plan.stages):
        ranks = [p.rank for p in plan.stage(stage)]
        members = distributed.new_group(ranks)
        if stage == mine.stage and len(ranks) > 1:
            widths = [p.vocab.size for p in plan.stage(stage)]
            group = TorchGroup(members, _index(plan, load.rank), widths, staged)
        if stage + 1 < plan.stages:
            receivers = [p.rank for p in plan.stage(stage + 1)]
            line = distributed.new_group([ranks[0], *receivers])
            link = TorchLink(line, ranks[0], load.spec.dimensions.hidden, device, staged)
            if load.rank in receivers:
                incoming = link
            if stage == mine.stage:
                outgoing = link
    return Transport(group, incoming, outgoing)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _index(plan: Plan, rank: int) -> int:
    """A rank's place within its stage; 0 leads."""
    return rank - plan.stage(plan.placements[rank].stage)[0].rank
