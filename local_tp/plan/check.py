"""Holds any placement, ours or a person's, to the rules every rank relies on.

Within a stage every query head, ffn column, routed expert and (where the stage speaks) vocabulary
row is owned exactly once; stages own consecutive layers; a rank holds whole groups of query heads
or a part of one; replicas are whole and share no card.
"""

from __future__ import annotations

from collections.abc import Sequence

from local_tp.core import Device, ModelSpec, Placement, Span
from local_tp.errors import PlanError


def check_placements(
    spec: ModelSpec,
    placements: Sequence[Placement],
    devices: Sequence[Device],
    copies: Sequence[Sequence[str]] = (),
) -> None:
    """Raise `PlanError`, naming rank and field, if `placements` is not a whole model.

    `copies` names the devices of each further replica, in rank order.
    """
    if [p.rank for p in placements] != list(range(len(placements))):
        raise PlanError("placements must be numbered rank 0, 1, 2, … in order")
    if len(placements) != len(devices):
        raise PlanError(f"{len(placements)} placements for {len(devices)} devices: give one each")
    for p, device in zip(placements, devices, strict=True):
        if p.device != device.id:
            raise PlanError(
                f"rank {p.rank} is placed on {p.device}, the device named is {device.id}"
            )
    stages = [p.stage for p in placements]
    if stages != sorted(stages) or sorted(set(stages)) != list(range(len(set(stages)))):
        raise PlanError("stages must be numbered 0, 1, 2, … and ranks ordered by stage")
    _check_layers(spec, placements)
    for stage in range(max(stages) + 1):
        ranks = [p for p in placements if p.stage == stage]
        _check_stage(spec, ranks)
        kinds = sorted({devices[p.rank].kind for p in ranks if not _experts_alone(p)})
        if len(kinds) > 1:
            raise PlanError(
                f"stage {stage} mixes {' and '.join(kinds)}: the devices of one stage must be of "
                "one kind, use --split layer"
            )

    _check_copies(placements, copies)


def _experts_alone(p: Placement) -> bool:
    """Such a rank may run beside others of another kind: it takes no part in attention."""
    return bool(p.experts.size) and not (p.query_heads.size or p.ffn.size or p.vocab.size)


def _check_copies(placements: Sequence[Placement], copies: Sequence[Sequence[str]]) -> None:
    used = {p.device for p in placements}
    for number, copy in enumerate(copies, start=2):
        if len(copy) != len(placements):
            raise PlanError(
                f"replica {number} names {len(copy)} devices for {len(placements)} ranks: "
                "give one each"
            )
        taken = sorted(set(copy) & used - {"cpu"})
        if taken:
            raise PlanError(f"replica {number} uses {taken[0]}, which another replica has")
        used |= set(copy)


def _check_layers(spec: ModelSpec, placements: Sequence[Placement]) -> None:
    at = 0
    for stage in range(max(p.stage for p in placements) + 1):
        spans = {p.layers for p in placements if p.stage == stage}
        if len(spans) != 1:
            raise PlanError(f"the ranks of stage {stage} must hold the same layers")
        span = spans.pop()
        if span.start != at or span.size < 1:
            raise PlanError(f"stage {stage} must hold layers from {at} on, at least one")
        for p in (p for p in placements if p.stage == stage and p.streamed.size):
            if p.streamed.start < span.start or p.streamed.stop > span.stop:
                raise PlanError(
                    f"rank {p.rank} streams layers {p.streamed.start}-{p.streamed.stop} and holds "
                    f"{span.start}-{span.stop}"
                )
        at = span.stop
    if at != spec.dimensions.layers:
        raise PlanError(
            f"the stages hold layers up to {at}, the model has {spec.dimensions.layers}"
        )


def _check_stage(spec: ModelSpec, ranks: Sequence[Placement]) -> None:
    d = spec.dimensions
    _check_cover(ranks, "query_heads", [p.query_heads for p in ranks], d.query_heads)
    _check_cover(ranks, "ffn", [p.ffn for p in ranks], d.ffn)
    layers = ranks[0].layers
    routed = any(spec.kind(index).feed == "experts" for index in range(*layers))
    if routed or any(p.experts.size for p in ranks):
        _check_cover(ranks, "experts", [p.experts for p in ranks], d.experts)
    if layers.start == 0 or layers.stop == d.layers:
        _check_cover(ranks, "vocab", [p.vocab for p in ranks], d.vocab)
    group = d.query_heads // d.kv_heads
    for p in ranks:
        if p.query_heads.size == 0:
            if p.kv_heads.size:
                raise PlanError(f"rank {p.rank} holds KV heads and no query heads")
            continue
        needed = Span(p.query_heads.start // group, -(-p.query_heads.stop // group))
        if p.kv_heads != needed:
            raise PlanError(
                f"rank {p.rank}: query heads {p.query_heads.start}-{p.query_heads.stop} need "
                f"KV heads {needed.start}-{needed.stop}"
            )
        whole = p.query_heads.size == needed.size * group
        if not whole and needed.size != 1:
            raise PlanError(f"rank {p.rank} cuts through a group of {group} query heads")


def _check_cover(ranks: Sequence[Placement], field: str, spans: Sequence[Span], total: int) -> None:
    at = 0
    for p, span in zip(ranks, spans, strict=True):
        if span.size == 0:
            continue
        if span.start != at or span.size < 0:
            raise PlanError(f"rank {p.rank}: {field} must start at {at}, it starts at {span.start}")
        at = span.stop
    if at != total:
        raise PlanError(f"stage {ranks[0].stage}: {field} is covered up to {at} of {total}")
