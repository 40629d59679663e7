"""What a step holds beside weights and cache, buffer by buffer, phase by phase of a layer.

Written after `model.decoder`, `model.operations` and `model.linear`, whose temporary tensors it
lists: a change there is a change here. Every figure is of a full chunk at the end of the longest
context, so an upper bound of any step. Knows nothing of allocators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from local_tp.core import DeviceKind, Goal, ModelSpec, Placement
from local_tp.plan.layer_cut import kv_elements
from local_tp.plan.layout import (
    Parameter,
    edge_parameters,
    layer_parameters,
)

UNPACK_ELEMENTS = 1 << 22  # of a quantized matrix that are numbers at the same time
UNPACK_FROM_TOKENS = 32  # from here unpacking and one large product beat the packed kernels
SCORED_ROWS = 16  # most prompt tokens of one step whose logits are all wanted
DECODE_ROWS = 31  # most rows of a decode step
SHARPENED = 64  # logits of a row that are computed again in float32
FLOAT = 4
OUTPUT_BYTES = {"float16": 2, "bfloat16": 2}  # of an element that a product gives; else FLOAT

Phase = tuple[int, ...]  # bytes of the tensors that live at the same time


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that phases depend on. `kv_bytes` is of one element of the cache."""

    tokens: int  # of a step
    places: int  # of the longest text
    hidden: int
    head_dim: int
    kv_bytes: int
    card: bool
    exchanged: bool  # partial sums are added up with other ranks
    scattered: bool  # pages may lie apart, and are gathered then

    @property
    def residual(self) -> int:
        return self.tokens * self.hidden * FLOAT

    @property
    def later(self) -> bool:
        """Whether a chunk may stand behind another, which takes a mask."""
        return self.places > self.tokens


def shape_of(
    spec: ModelSpec, goal: Goal, places: int, kind: DeviceKind, ranks: int, kv_bytes: int
) -> Shape:
    """The sizes of a full chunk; `places` is the longest context in tokens."""
    d = spec.dimensions
    tokens = max(1, min(goal.chunk, places))
    return Shape(
        tokens, places, d.hidden, d.head_dim, kv_bytes, kind != "cpu", ranks > 1, goal.streams > 1
    )


def standing_bytes(shape: Shape) -> int:
    """Tables for the rotary embedding, which stay; the mask of a chunk, and its part of them."""
    tables = 2 * shape.places * shape.head_dim * FLOAT
    chunk = 2 * shape.tokens * shape.head_dim * FLOAT
    mask = shape.tokens * shape.places if shape.later else 0
    return tables + chunk + mask


def layer_phases(
    spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind, shape: Shape
) -> Iterator[Phase]:
    """Every phase of every layer that differs from those before it."""
    yield (shape.residual, shape.residual, shape.residual)  # looking tokens up
    if shape.later:  # a mask is cut from one of the same size
        yield (shape.tokens * shape.places,)
    likenesses, seen = spec.likenesses, set()
    for index in range(*placement.layers):
        if likenesses[index] in seen:
            continue
        seen.add(likenesses[index])
        matrices = {
            parameter.name.rpartition(".")[2]: parameter
            for parameter in layer_parameters(spec, placement, index, goal.dtype, kind)
            if not parameter.vector
        }
        elements = kv_elements(spec, placement, index)
        if "qkv" in matrices and "o" in matrices:
            yield from _attention(matrices, elements, shape)
        yield from _feed_forward(matrices, spec, shape)
        yield from _others(matrices, shape)


def logits_phase(
    spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind, shape: Shape
) -> Phase:
    """Product, exact best, the whole row on the leader, and the sampling of one row."""
    edges = {p.name: p for p in edge_parameters(spec, placement, goal.dtype, kind)}
    head = edges.get("head") or edges.get("embed")
    if placement.layers.stop < spec.dimensions.layers or head is None:
        return ()
    rows = max(min(goal.streams, DECODE_ROWS), min(SCORED_ROWS, shape.tokens))
    vocab = spec.dimensions.vocab
    best = rows * min(SHARPENED, head.rows) * shape.hidden
    found = [shape.residual, rows * shape.hidden * FLOAT, rows * head.rows * FLOAT]
    if head.held != "float32":
        stored = OUTPUT_BYTES.get(head.held, 1)
        found += [rows * head.rows * 2, best * stored, best * FLOAT]
        found += [best * FLOAT] if head.held == "int8" else []
    if shape.exchanged:
        found.append(rows * vocab * FLOAT)
    return (*found, *[vocab * FLOAT] * 4, vocab * 8)  # scores, shares, logarithms; an order


def _attention(matrices: Mapping[str, Parameter], elements: int, shape: Shape) -> Iterator[Phase]:
    qkv, output = matrices["qkv"], matrices["o"]
    tokens, x = shape.tokens, (shape.residual, shape.residual)  # residual stream and its norm
    yield from ((*x, *phase) for phase in _product(qkv, shape))
    mine = tokens * qkv.rows * FLOAT
    yield (*x, mine, tokens * (qkv.rows - elements // 2) * FLOAT)  # turned queries and keys
    cast = tokens * output.columns * shape.kv_bytes
    casts = (cast,) if shape.kv_bytes != FLOAT else ()
    gathered = (elements * shape.places * shape.kv_bytes,) if shape.scattered else ()
    mask = (tokens * shape.places * shape.kv_bytes,) if shape.later else ()
    yield (*x, mine, *casts, *gathered, *mask, cast, *_scores(output.columns, shape))
    yield from ((*x, mine, cast, *phase) for phase in _product(output, shape))


def _scores(query_columns: int, shape: Shape) -> Phase:
    """On cards a masked product with fewer KV heads than heads is done step by step.

    Keys and values once a query head, scores and their shares, all in float32.
    """
    if not shape.card:
        return ()
    heads = query_columns // shape.head_dim
    scores = heads * shape.tokens * shape.places * FLOAT
    return (scores, scores, 2 * heads * shape.places * shape.head_dim * FLOAT)


def _feed_forward(
    matrices: Mapping[str, Parameter], spec: ModelSpec, shape: Shape
) -> Iterator[Phase]:
    x = (shape.residual, shape.residual)
    for prefix in ("", "shared_"):
        if f"{prefix}gate_up" not in matrices:
            continue
        up, down = matrices[f"{prefix}gate_up"], matrices[f"{prefix}down"]
        size = OUTPUT_BYTES.get(up.held, FLOAT)
        wide, gated = shape.tokens * up.rows * size, shape.tokens * down.columns * size
        yield (*x, *_scratch(up, shape), wide)
        yield (*x, wide, gated)
        yield from ((*x, gated, *phase) for phase in _product(down, shape))
    if "experts_gate_up" in matrices:  # one expert at a time, in the worst case with every token
        d = spec.dimensions
        wide = shape.tokens * d.expert_ffn * FLOAT
        yield (*x, 2 * wide, wide, shape.residual * max(1, d.active_experts))


def _others(matrices: Mapping[str, Parameter], shape: Shape) -> Iterator[Phase]:
    """Matrices of mixers that this version only plans."""
    x = (shape.residual, shape.residual)
    for name in ("mix_in", "mix_o", "kv_down", "kv", "q_down"):
        if name in matrices:
            yield from ((*x, *phase) for phase in _product(matrices[name], shape))


def _product(matrix: Parameter, shape: Shape) -> Iterator[Phase]:
    """Input as the product takes it, a block unpacked, the result, and that in float32."""
    tokens = shape.tokens
    size = OUTPUT_BYTES.get(matrix.held, FLOAT)
    given = tokens * matrix.rows * size
    yield (*_scratch(matrix, shape), given)
    if size != FLOAT:
        yield (given, tokens * matrix.rows * FLOAT)


def _scratch(matrix: Parameter, shape: Shape) -> Phase:
    size = OUTPUT_BYTES.get(matrix.held, FLOAT)
    if matrix.held not in ("int4", "int8"):
        return (shape.tokens * matrix.columns * size,) if size != FLOAT else ()
    if shape.tokens < UNPACK_FROM_TOKENS:
        return (shape.tokens * matrix.columns * 2,)
    block = min(matrix.rows * matrix.columns, max(UNPACK_ELEMENTS, 64 * matrix.columns))
    return (block * size, block) if matrix.held == "int4" else (block * size,)
