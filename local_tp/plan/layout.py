"""Which rectangles of which stored tensors make up the parameters of one rank.

The single source of truth for weight bytes: the planner sums over these parameters and the loader
iterates over the same ones. Knows nothing of files or torch. Fused parameters (q|k|v, gate|up) are
cut apart first and then stacked, never cut as one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from local_tp.checkpoint.formats import FORMATS, HELD
from local_tp.core import DeviceKind, Dtype, ModelSpec, Placement, Shard, Span

INT8_COLUMNS = 16  # torch's 8-bit kernel takes so many at a time and would read past a shorter row


@dataclass(frozen=True, slots=True)
class Parameter:
    """One matrix (rows, columns) of a rank, or a vector of one column. `held` names its form."""

    name: str
    rows: int
    columns: int
    held: str
    shards: tuple[Shard, ...]
    vector: bool

    @property
    def nbytes(self) -> int:
        """Bytes in memory, as held."""
        return HELD[self.held].nbytes(self.rows, self.columns)


def parameters(
    spec: ModelSpec, placement: Placement, dtype: Dtype, kind: DeviceKind
) -> tuple[Parameter, ...]:
    """Every parameter that `placement` needs, in the order of the forward pass."""
    first = placement.layers.start == 0
    last = placement.layers.stop == spec.dimensions.layers
    return tuple(
        _parameter(spec, name, pieces, dtype, kind)
        for name, pieces in _pieces(spec, placement, first, last)
        if any(rows.size and columns.size for _, rows, columns in pieces)
    )


def weight_bytes(spec: ModelSpec, placement: Placement, dtype: Dtype, kind: DeviceKind) -> int:
    """Bytes of weights that `placement` holds."""
    return sum(p.nbytes for p in parameters(spec, placement, dtype, kind))


Piece = tuple[str, Span, Span]


def _pieces(
    spec: ModelSpec, placement: Placement, first: bool, last: bool
) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """(parameter name, its pieces as (source, rows, columns)) for a whole rank."""
    d = spec.dimensions
    hidden, one = Span(0, d.hidden), Span(0, 1)
    if "rope_factors" in spec.tensors:
        yield "rope_factors", (("rope_factors", Span(0, d.head_dim // 2), one),)
    if first:
        yield "embed", (("embed", placement.vocab, hidden),)
    for index in range(*placement.layers):
        prefix = f"layers.{index}."
        for name, pieces in _layer_pieces(spec, placement):
            yield prefix + name, tuple((prefix + source, r, c) for source, r, c in pieces)
    if last:
        yield "norm", (("norm", hidden, one),)
        if not spec.traits.tied_head:
            yield "head", (("head", placement.vocab, hidden),)
        elif not first:
            yield "head", (("embed", placement.vocab, hidden),)


def _layer_pieces(spec: ModelSpec, placement: Placement) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    d = spec.dimensions
    hidden, one, ffn = Span(0, d.hidden), Span(0, 1), placement.ffn
    query = _scaled(placement.query_heads, d.head_dim)
    key = _scaled(placement.kv_heads, d.head_dim)
    if query.size:
        yield "attn_norm", (("attn_norm", hidden, one),)
        yield "qkv", (("q", query, hidden), ("k", key, hidden), ("v", key, hidden))
        if spec.traits.qkv_bias:
            yield "qkv_bias", (("q_bias", query, one), ("k_bias", key, one), ("v_bias", key, one))
        yield "o", (("o", hidden, query),)
    if ffn.size:
        yield "ffn_norm", (("ffn_norm", hidden, one),)
        yield "gate_up", (("gate", ffn, hidden), ("up", ffn, hidden))
        yield "down", (("down", hidden, ffn),)


def _scaled(span: Span, by: int) -> Span:
    return Span(span.start * by, span.stop * by)


def _parameter(
    spec: ModelSpec, name: str, pieces: tuple[Piece, ...], dtype: Dtype, kind: DeviceKind
) -> Parameter:
    shards, offset = [], 0
    for source, rows, columns in pieces:
        shards.append(Shard(name, source, rows, columns, offset))
        offset += rows.size
    width = pieces[0][2].size
    held = _held(spec, tuple(shards), width, dtype, kind)
    return Parameter(name, offset, width, held, tuple(shards), _is_vector(spec, tuple(shards)))


def _held(
    spec: ModelSpec, shards: tuple[Shard, ...], columns: int, dtype: Dtype, kind: DeviceKind
) -> str:
    """The form a parameter takes in memory.

    Vectors stay float32. A chosen dtype is obeyed. Otherwise quantized files stay quantized where
    the device has a kernel for the form and the cut meets its grain, and become 16-bit elsewhere.
    """
    if _is_vector(spec, shards):
        return "float32"
    if dtype != "auto":
        return dtype
    if kind != "cpu":
        return "float16" if _stored(spec, shards) == {"F16"} else "bfloat16"
    stored = _stored(spec, shards)
    if any(not FORMATS[name].quantized for name in stored):
        return "bfloat16"
    if shards[0].source in ("embed", "head") or stored == {"Q8_0"}:
        return "int8" if columns % INT8_COLUMNS == 0 else "bfloat16"
    grain = HELD["int4"]
    aligned = all(
        shard.rows.size % grain.row_grain == 0
        and shard.columns.start % grain.column_grain == 0
        and shard.columns.size % grain.column_grain == 0
        for shard in shards
    )
    return "int4" if aligned and stored <= {"Q4_0", "Q4_1"} else "bfloat16"


def _is_vector(spec: ModelSpec, shards: tuple[Shard, ...]) -> bool:
    return len(spec.tensors[shards[0].source].shape) == 1


def _stored(spec: ModelSpec, shards: tuple[Shard, ...]) -> set[str]:
    return {spec.tensors[shard.source].format for shard in shards}
