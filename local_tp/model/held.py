"""The empty matrix of a parameter, in the form that the layout chose for it."""

from __future__ import annotations

from itertools import groupby

from local_tp.checkpoint.formats import FORMATS
from local_tp.model.blocks import Blocks, Stacked
from local_tp.model.expert_matrices import ExpertMatrices
from local_tp.model.linear import Allocate, Linear, make_linear
from local_tp.model.ordered import Ordered
from local_tp.model.processor import Processor
from local_tp.plan.layout import Parameter


def linear_of(parameter: Parameter, processor: Processor, allocate: Allocate) -> Linear:
    """An empty (rows, columns) matrix; `fill` takes the shards' stored bytes."""
    if parameter.experts:
        one = parameter.expert
        matrices = [linear_of(one, processor, allocate) for _ in range(parameter.experts)]
        return ExpertMatrices(matrices, [shard.rows.size for shard in one.shards])
    if not parameter.stored:
        return make_linear(parameter.held, parameter.rows, parameter.columns, processor, allocate)
    start = parameter.shards[0].columns.start
    pieces = zip(parameter.stored, parameter.shards, strict=True)
    parts: list[Blocks] = []
    if parameter.ordered:
        parts = [
            Ordered(name, shard.rows.size, parameter.columns, processor, allocate)
            for name, shard in pieces
        ]
    else:
        parts = [
            Blocks(
                name,
                sum(shard.rows.size for _, shard in alike),
                parameter.columns,
                processor,
                allocate,
                start % FORMATS[name].grain,
            )
            for name, alike in groupby(pieces, key=lambda piece: piece[0])
        ]
    return parts[0] if len(parts) == 1 else Stacked(parts)
