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
BLOCK_ELEMENTS = 1 << 20  # the same of one held as stored, on the processor
UNPACKED_BYTES = 10  # of such an element at most, from its bits to the number that is multiplied
SCORE_ELEMENTS = 1 << 23  # of scores over compressed rows, beside which are their shares
UNPACK_FROM_TOKENS = 32  # from here unpacking and one large product beat the packed kernels
SCORED_ROWS = 16  # most prompt tokens of one step whose logits are all wanted
DECODE_ROWS = 31  # most rows of a decode step
SHARPENED = 64  # logits of a row that are computed again in float32
DELTA_BLOCK = 64  # tokens that a gated delta net works on at once
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
    unpacked: int = FLOAT  # bytes of a number of an unpacked matrix and of what it gives
    rotated: int = 0  # elements of a head that rotary embeddings turn, of all of them together

    @property
    def residual(self) -> int:
        return self.tokens * self.hidden * FLOAT

    @property
    def later(self) -> bool:
        """Whether a chunk may stand behind another, which takes a mask."""
        return self.places > self.tokens

    def product(self, held: str) -> int:
        """Bytes of an element that a product of many tokens gives."""
        return self.unpacked if held in ("int4", "int8") else OUTPUT_BYTES.get(held, FLOAT)


def shape_of(
    spec: ModelSpec, goal: Goal, places: int, kind: DeviceKind, ranks: int, kv_bytes: int
) -> Shape:
    """The sizes of a full chunk; `places` is the longest context in tokens.

    Of a processor that was not measured, unpacked numbers are taken to have 32 bits.
    """
    d = spec.dimensions
    return Shape(
        tokens=max(1, min(goal.chunk, places)),
        places=places,
        hidden=d.hidden,
        head_dim=d.head_dim,
        kv_bytes=kv_bytes,
        card=kind != "cpu",
        exchanged=ranks > 1,
        scattered=goal.streams > 1,
        unpacked=OUTPUT_BYTES.get(goal.product or "float32", FLOAT),
        rotated=sum(rope.size or d.head_dim for rope in spec.traits.ropes),
    )


def standing_bytes(shape: Shape) -> int:
    """Tables of rotary embeddings, which stay; the mask of a chunk, and its part of them."""
    tables = 2 * shape.places * shape.rotated * FLOAT
    chunk = 2 * shape.tokens * shape.rotated * FLOAT
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
        if "mix_in" in matrices:
            yield from _delta_net(matrices, shape)
        if "k_up" in matrices:
            yield from _latent(matrices, elements, shape)


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
        found += [_block_bytes(head, shape)] if head.stored else []
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
        size = shape.product(up.held)
        wide, gated = shape.tokens * up.rows * size, shape.tokens * down.columns * size
        yield (*x, *_scratch(up, shape), wide)
        yield (*x, wide, gated)
        yield from ((*x, gated, *phase) for phase in _product(down, shape))
    if "experts_gate_up" in matrices:
        yield from _routed(matrices, spec, shape)


def _routed(matrices: Mapping[str, Parameter], spec: ModelSpec, shape: Shape) -> Iterator[Phase]:
    """One expert at a time, in the worst case with every token.

    Beside the residual stream and its norm there are the sum of all experts, the tokens that one
    of them meets, and what shared experts gave.
    """
    up, down = matrices["experts_gate_up"].expert, matrices["experts_down"].expert
    x = (shape.residual,) * (5 if "shared_gate_up" in matrices else 4)
    scores = shape.tokens * spec.dimensions.experts * FLOAT
    yield (*x, scores, scores, scores)
    size = shape.product(up.held)
    wide, gated = shape.tokens * up.rows * size, shape.tokens * down.columns * size
    yield (*x, *_scratch(up, shape), wide)
    yield (*x, wide, shape.tokens * up.rows * FLOAT, gated)  # with its bias, where it has one
    yield from ((*x, gated, *phase) for phase in _product(down, shape))


def _delta_net(matrices: Mapping[str, Parameter], shape: Shape) -> Iterator[Phase]:
    """Convolution, queries and keys for each value head, blocks of tokens, the gated norm."""
    output, tokens = matrices["mix_o"], shape.tokens
    x = (shape.residual, shape.residual)
    yield from ((*x, *phase) for phase in _product(matrices["mix_in"], shape))
    wide, convolved = (tokens * matrices[n].rows * FLOAT for n in ("mix_in", "mix_conv"))
    mine, values = tokens * output.columns * FLOAT, matrices["mix_gates"].rows // 2
    block = min(DELTA_BLOCK, tokens) * (min(DELTA_BLOCK, tokens) * values + output.columns) * FLOAT
    yield (*x, wide, convolved, convolved)
    yield (*x, wide, convolved, convolved - mine, *[mine] * 5, *[block] * 3)
    yield (*x, wide, *[mine] * 4)
    yield from ((*x, wide, mine, *phase) for phase in _product(output, shape))


def _latent(matrices: Mapping[str, Parameter], row: int, shape: Shape) -> Iterator[Phase]:
    """Attention over compressed rows of so many elements."""
    tokens, x = shape.tokens, (shape.residual, shape.residual)
    q, k_up, v_up, output = (matrices[name] for name in ("q", "k_up", "v_up", "o"))
    heads, kept = q.rows // shape.head_dim, tokens * row * FLOAT
    yield from ((*x, *phase) for phase in _product(matrices["kv_down"], shape))
    down = tokens * q.columns * FLOAT if "q_down" in matrices else 0
    if "q_down" in matrices:
        yield from ((*x, kept, down, *phase) for phase in _product(matrices["q_down"], shape))
    yield from ((*x, kept, down, *phase) for phase in _product(q, shape))
    size, mine = OUTPUT_BYTES.get(k_up.held, FLOAT), tokens * heads * row * shape.kv_bytes
    plain, found = tokens * k_up.rows * size, tokens * heads * k_up.columns
    yield (*x, kept, tokens * q.rows * FLOAT, mine, plain, found * size)
    gathered = (row * shape.places * shape.kv_bytes,) if shape.scattered else ()
    scores = min(max(SCORE_ELEMENTS, heads * shape.places), tokens * heads * shape.places)
    few = scores * shape.kv_bytes, scores * shape.kv_bytes, tokens * tokens, found * shape.kv_bytes
    yield (*x, kept, mine, found * shape.kv_bytes, *gathered, *few)
    values = tokens * v_up.rows * size
    yield (*x, kept, mine, found * shape.kv_bytes, found * size, values, values)
    yield from ((*x, kept, mine, values, *phase) for phase in _product(output, shape))


def _product(matrix: Parameter, shape: Shape) -> Iterator[Phase]:
    """Input as the product takes it, a block unpacked, the result, and that in float32."""
    tokens = shape.tokens
    size = shape.product(matrix.held)
    given = tokens * matrix.rows * size
    yield (*_scratch(matrix, shape), given)
    if size != FLOAT:
        yield (given, tokens * matrix.rows * FLOAT)


def _scratch(matrix: Parameter, shape: Shape) -> Phase:
    if matrix.stored:
        inputs = (shape.tokens * matrix.columns * 2,) * (1 + matrix.ordered)  # as they are ordered
        return (*inputs, _block_bytes(matrix, shape))
    size = shape.product(matrix.held)
    if matrix.held not in ("int4", "int8"):
        return (shape.tokens * matrix.columns * size,) if size != FLOAT else ()
    if shape.tokens < UNPACK_FROM_TOKENS:
        return (shape.tokens * matrix.columns * 2,)
    block = min(matrix.rows * matrix.columns, max(UNPACK_ELEMENTS, 64 * matrix.columns))
    cast = (shape.tokens * matrix.columns * size,) if size != FLOAT else ()
    return (*cast, block * size, block) if matrix.held == "int4" else (*cast, block * size)


def _block_bytes(matrix: Parameter, shape: Shape) -> int:
    """Rows that `model.blocks` has as numbers at once, with what making them takes."""
    most = UNPACK_ELEMENTS if shape.card else BLOCK_ELEMENTS
    return min(matrix.rows * matrix.columns, max(most, matrix.columns)) * UNPACKED_BYTES
