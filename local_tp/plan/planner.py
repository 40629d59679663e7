"""From a model, a machine and a goal to a plan, by arithmetic.

Pure: no files, no torch, no clock. Where the goal leaves a choice open the planner makes it and
says why in `notes`; where nothing fits it refuses with device, need, have and remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from local_tp.core import (
    EMPTY,
    Device,
    Goal,
    KvFormat,
    ModelSpec,
    Placement,
    Plan,
    Span,
    Split,
    Transport,
)
from local_tp.errors import DoesNotFit, PlanError
from local_tp.plan.check import check_placements
from local_tp.plan.layout import weight_bytes
from local_tp.plan.memory import with_memory
from local_tp.plan.partition import cut, cut_heads, cut_layers
from local_tp.plan.speed import predict

PAGE_SIZE = 32
DEFAULT_CONTEXT = 4096
FFN_GRAIN = 64  # rows of a gate or up shard that packed forms can hold; a multiple of every block
VOCAB_GRAIN = 64
MIB = 1024 * 1024


def make_plan(
    spec: ModelSpec,
    devices: Sequence[Device],
    goal: Goal,
    placements: tuple[Placement, ...] | None = None,
    transport: Transport | None = None,
) -> Plan:
    """The plan for `devices`, one rank each (a device may appear several times).

    `placements` overrides the split with a person's own; it is checked, not trusted. `transport`
    is what was found to work between the devices, where somebody looked. Raises `PlanError` for a
    split that is not possible and `DoesNotFit` for one that has no room.
    """
    if not devices:
        raise PlanError("a plan needs at least one device")
    notes: list[str] = []
    if placements is None:
        split = goal.split or _choose_split(spec, devices, goal, notes)
        placements = place(spec, devices, split, goal)
    else:
        split = _split_of(placements)
    check_placements(spec, placements, devices)
    goal = replace(goal, kv_format=goal.kv_format or default_kv_format(devices))
    context = _context(spec, goal, notes)
    pages = -(-context // PAGE_SIZE) * goal.streams
    kinds = [devices[p.rank].kind for p in placements]
    placements = tuple(
        with_memory(spec, p, goal, pages * PAGE_SIZE, kind)
        for p, kind in zip(placements, kinds, strict=True)
    )
    check_room(placements, devices, goal, pages)
    plan = Plan(
        model=spec.name,
        goal=goal,
        placements=placements,
        transport=transport or choose_transport([devices[p.rank] for p in placements]),
        context=context,
        page_size=PAGE_SIZE,
        pages=pages,
        split=split,
        notes=tuple(notes),
    )
    return predict(spec, plan, devices)


def place(
    spec: ModelSpec, devices: Sequence[Device], split: Split, goal: Goal
) -> tuple[Placement, ...]:
    """Placements for one named split over `devices`, shares by memory bandwidth."""
    ranks = len(devices)
    if split == "single" and ranks > 1:
        raise PlanError(
            f"split single takes one device, {ranks} were named: name one, or --split auto"
        )
    if split == "hybrid" and ranks < 3:
        raise PlanError(
            f"split hybrid needs three devices, {ranks} named: use --split tensor or layer"
        )
    groups = {
        "single": [range(1)],
        "layer": [range(i, i + 1) for i in range(ranks)],
        "tensor": [range(ranks)],
        "hybrid": [range(ranks - 1), range(ranks - 1, ranks)],
    }[split]
    weights = _bandwidth_weights(devices)
    costs = _layer_costs(spec, goal)
    stages = cut_layers(costs, [sum(weights[i] for i in group) for group in groups])
    return tuple(
        placement
        for stage, (group, layers) in enumerate(zip(groups, stages, strict=True))
        for placement in _place_stage(spec, devices, weights, stage, group, layers)
    )


def _place_stage(
    spec: ModelSpec,
    devices: Sequence[Device],
    weights: Sequence[float],
    stage: int,
    group: range,
    layers: Span,
) -> list[Placement]:
    d = spec.dimensions
    shares = [weights[i] for i in group]
    heads = cut_heads(d.query_heads, d.kv_heads, shares)
    ffn = cut(d.ffn, shares, _grain(d.ffn, FFN_GRAIN, len(group)))
    speaks = layers.start == 0 or layers.stop == d.layers
    vocab = cut(d.vocab, shares, VOCAB_GRAIN) if speaks else [EMPTY] * len(group)
    return [
        Placement(rank, devices[rank].id, stage, layers, *heads[i], ffn=ffn[i], vocab=vocab[i])
        for i, rank in enumerate(group)
    ]


def _grain(total: int, grain: int, ranks: int) -> int:
    """The largest halving of `grain` at which every rank can own something."""
    while grain > 1 and total // grain < ranks:
        grain //= 2
    return grain


def _bandwidth_weights(devices: Sequence[Device]) -> list[float]:
    """Shares by memory bandwidth where all are known and of one kind, else equal."""
    known = [d.bandwidth for d in devices if d.bandwidth]
    if len(known) == len(devices) and all(d.kind != "cpu" for d in devices):
        return known
    return [1.0] * len(devices)


def _layer_costs(spec: ModelSpec, goal: Goal) -> list[float]:
    """Bytes of each layer that a token reads; the head counts with the last."""
    d = spec.dimensions
    whole = Placement(
        0, "", 0, Span(0, 1), Span(0, d.query_heads), Span(0, d.kv_heads), Span(0, d.ffn), EMPTY
    )
    costs = []
    for index in range(d.layers):
        one = replace(whole, layers=Span(index, index + 1))
        costs.append(float(weight_bytes(spec, one, goal.dtype, "cpu")))
    head = spec.tensors["embed" if spec.traits.tied_head else "head"].nbytes
    costs[-1] += float(head)
    return costs


def _choose_split(
    spec: ModelSpec, devices: Sequence[Device], goal: Goal, notes: list[str]
) -> Split:
    if len(devices) == 1:
        return "single"
    if len({d.kind for d in devices}) > 1:
        notes.append(
            "layer split: the devices are of different kinds, and a stage must be of one kind"
        )
        return "layer"
    candidates: list[Split] = ["tensor", "layer"]
    if len(devices) > spec.dimensions.layers:
        candidates.remove("layer")
    speeds: dict[Split, float] = {}
    refusals: dict[Split, DoesNotFit] = {}
    for split in candidates:
        try:
            speeds[split] = make_plan(spec, devices, replace(goal, split=split)).decode or 0.0
        except DoesNotFit as refusal:
            refusals[split] = refusal
    if not speeds:
        raise refusals[candidates[0]]
    best = max(speeds, key=lambda s: speeds[s])
    for other in candidates:
        if other in refusals:
            notes.append(f"{best} split: {other} split has no room, {refusals[other]}")
        elif other != best:
            notes.append(
                f"{best} split: predicted {speeds[best]:.0f} tokens/s in decode, "
                f"{other} split {speeds[other]:.0f}"
            )
    notes += _alone(spec, devices, goal, speeds[best])
    return best


def _alone(spec: ModelSpec, devices: Sequence[Device], goal: Goal, speed: float) -> Iterator[str]:
    """Says so where one device would do it faster than all that were named."""
    for device in {device.id: device for device in devices}.values():
        try:
            single = make_plan(spec, [device], replace(goal, split="single", devices=(device.id,)))
        except DoesNotFit:
            continue
        if (single.decode or 0.0) > speed:
            yield (
                f"one worker on {device.id} alone: predicted {single.decode:.0f} tokens/s "
                f"instead of {speed:.0f} while nothing else runs (--devices {device.id})"
            )


def _split_of(placements: Sequence[Placement]) -> Split:
    stages = {p.stage for p in placements}
    if len(placements) == 1:
        return "single"
    if len(stages) == 1:
        return "tensor"
    return "layer" if len(stages) == len(placements) else "hybrid"


def _context(spec: ModelSpec, goal: Goal, notes: list[str]) -> int:
    most = spec.dimensions.context
    if goal.context is None:
        chosen = min(most, DEFAULT_CONTEXT)
        if chosen < most:
            notes.append(f"context {chosen:,} of the model's {most:,}: raise it with --context")
        return chosen
    if goal.context < 1:
        raise PlanError(f"--context {goal.context} is not a length: give at least 1")
    if goal.context > most:
        raise PlanError(
            f"--context {goal.context:,} is more than the model's {most:,}: lower it to {most:,}"
        )
    return goal.context


def default_kv_format(devices: Sequence[Device]) -> KvFormat:
    """float32 on the CPU, where torch attends fastest in it; 16 bits as soon as a card takes part.

    bfloat16 needs compute capability 8.0, which an unknown one is not assumed to have.
    """
    cards = [d for d in devices if d.kind != "cpu"]
    if not cards:
        return "float32"
    modern = all(d.kind != "cuda" or (d.capability or (0, 0)) >= (8, 0) for d in cards)
    return "bfloat16" if modern else "float16"


def choose_transport(devices: Sequence[Device]) -> Transport:
    """How ranks exchange activations: host memory among CPU ranks, NCCL among distinct cards.

    Anything else goes through the host by gloo, since no direct path between the devices has been
    verified.
    """
    if len(devices) == 1:
        return "none"
    kinds = {d.kind for d in devices}
    if kinds == {"cpu"}:
        return "shared-memory" if all(d.ordered_stores for d in devices) else "gloo"
    if kinds == {"cuda"} and len({d.id for d in devices}) == len(devices):
        return "nccl"
    return "gloo"


def check_room(
    placements: Sequence[Placement], devices: Sequence[Device], goal: Goal, pages: int
) -> None:
    """Raise `DoesNotFit` if the ranks of a device need more than it has free.

    Of several such devices it names the tightest, whose remedy helps the others too.
    """
    short: list[tuple[int, DoesNotFit]] = []
    for device in {d.id: d for d in devices}.values():
        mine = [p for p in placements if p.device == device.id]
        reserve = goal.reserve.get(device.id, device.reserve)
        need = sum(p.weights + p.kv + p.workspace for p in mine) + reserve
        if need > device.free:
            fitting = _fitting_context(mine, need - device.free, pages, goal)
            remedy = _remedy(device, mine, need - device.free, fitting, pages, goal)
            short.append((fitting, DoesNotFit(device.id, need, device.free, remedy)))
    if short:
        raise min(short, key=lambda entry: entry[0])[1]


def _fitting_context(mine: Sequence[Placement], over: int, pages: int, goal: Goal) -> int:
    """The longest context, in whole pages, whose keys and values are `over` bytes smaller."""
    kv = sum(p.kv for p in mine)
    tokens = pages * PAGE_SIZE // goal.streams
    return tokens * (kv - over) // kv // PAGE_SIZE * PAGE_SIZE if kv > over else 0


def _remedy(
    device: Device, mine: Sequence[Placement], over: int, fitting: int, pages: int, goal: Goal
) -> str:
    """The setting that makes it fit, and by how much."""
    kv = sum(p.kv for p in mine)
    fewer = goal.streams * max(kv - over, 0) // kv if kv else 0
    streams = f"--streams {fewer} instead of {goal.streams}"
    if fitting:
        context = f"set --context {fitting} instead of {pages * PAGE_SIZE // goal.streams}"
        return f"{context}, or {streams}" if 0 < fewer < goal.streams else context
    if fewer:
        return f"set {streams}"
    asked = goal.reserve.get(device.id, 0)
    if asked >= over:
        return f"set --reserve {device.id}={(asked - over) // MIB} instead of {asked // MIB}"
    weights = sum(p.weights for p in mine)
    return (
        f"its weights alone take {weights >> 20:,} MiB: add a device with --devices, "
        "or choose a smaller or more quantized model"
    )
