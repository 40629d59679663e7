"""Which rectangles of which stored tensors make up the parameters of one rank, and in which form.

The single source of truth for weight bytes: the planner sums over these parameters and the loader
iterates over the same ones. Knows nothing of files or torch. Fused parameters (q|k|v, gate|up) are
cut apart first and then stacked, never cut as one block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from local_tp.checkpoint.formats import FORMATS, HELD
from local_tp.core import DeviceKind, Dtype, ModelSpec, Placement, Shard, Span
from local_tp.plan.layer_cut import ONE, Cut, Piece, layer_cuts

FEW_LAYERS = 4  # so many are sooner cut than compared
INT8_COLUMNS = 16  # torch's 8-bit kernel takes so many at a time and would read past a shorter row


@dataclass(frozen=True, slots=True)
class Parameter:
    """One matrix (rows, columns) of a rank, or a vector of one column. `held` names its form.

    A form is a row of `checkpoint.formats.HELD` or, where it is held as stored, the stored format
    of most of its bytes; `stored` then has the format of each shard. `replicated` counts the rows
    that other ranks of the stage hold, too. `reason` says why a form takes more than its file does.
    """

    name: str
    rows: int
    columns: int
    held: str
    shards: tuple[Shard, ...]
    vector: bool
    replicated: int = 0
    reason: str = ""
    stored: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes in memory, as held."""
        if self.stored:
            return sum(_stored_bytes(self.shards, self.stored))
        return HELD[self.held].nbytes(self.rows, self.columns)

    @property
    def replicated_bytes(self) -> int:
        """Of `nbytes`, what other ranks of the stage hold, too."""
        return self.nbytes * self.replicated // self.rows


def parameters(
    spec: ModelSpec, placement: Placement, dtype: Dtype, kind: DeviceKind
) -> tuple[Parameter, ...]:
    """Every parameter that `placement` needs, in the order of the forward pass."""
    return tuple(_parameter(spec, cut, dtype, kind) for cut in _cuts(spec, placement))


def layer_parameters(
    spec: ModelSpec, placement: Placement, index: int, dtype: Dtype, kind: DeviceKind
) -> tuple[Parameter, ...]:
    """The parameters of one layer alone, whether or not the placement has that layer."""
    cuts = filter(_holds, layer_cuts(spec, placement, index))
    return tuple(_parameter(spec, cut, dtype, kind) for cut in cuts)


def edge_parameters(
    spec: ModelSpec, placement: Placement, dtype: Dtype, kind: DeviceKind
) -> tuple[Parameter, ...]:
    """The parameters outside the layers: embedding, last norm and head."""
    cuts = filter(_holds, (*_before(spec, placement), *_after(spec, placement)))
    return tuple(_parameter(spec, cut, dtype, kind) for cut in cuts)


def weight_bytes(spec: ModelSpec, placement: Placement, dtype: Dtype, kind: DeviceKind) -> int:
    """Bytes of weights that `placement` holds. Layers that are alike are counted once."""
    total = sum(p.nbytes for p in edge_parameters(spec, placement, dtype, kind))
    for layers in _alike(spec, placement.layers):
        one = layer_parameters(spec, placement, layers[0], dtype, kind)
        total += len(layers) * sum(p.nbytes for p in one)
    return total


def _alike(spec: ModelSpec, layers: Span) -> list[list[int]]:
    """The layers of a span in groups that cost alike."""
    if layers.size <= FEW_LAYERS:
        return [[index] for index in range(*layers)]
    likenesses, groups = spec.likenesses, defaultdict[object, list[int]](list)
    for index in range(*layers):
        groups[likenesses[index]].append(index)
    return list(groups.values())


def column_grain(spec: ModelSpec, dtype: Dtype) -> int:
    """Feed-forward columns at whose multiples a cut meets the grain of every form in question."""
    grain = HELD["int4"].row_grain
    if dtype != "stored":
        return grain
    names = {i.format for n, i in spec.tensors.items() if n.endswith((".down", ".shared_down"))}
    return lcm(grain, *(FORMATS[name].grain for name in names))


# ------------------------------------------------------------------------------- the pieces


def _cuts(spec: ModelSpec, placement: Placement) -> Iterator[Cut]:
    yield from filter(_holds, _before(spec, placement))
    for index in range(*placement.layers):
        yield from filter(_holds, layer_cuts(spec, placement, index))
    yield from filter(_holds, _after(spec, placement))


def _holds(cut: Cut) -> bool:
    return any(piece.rows.size and piece.columns.size for piece in cut.pieces)


def _before(spec: ModelSpec, placement: Placement) -> Iterator[Cut]:
    d = spec.dimensions
    if "rope_factors" in spec.tensors:
        half = Span(0, d.head_dim // 2)
        yield Cut("rope_factors", (Piece("rope_factors", half, ONE),), half.size)
    if placement.layers.start == 0:
        yield Cut("embed", (Piece("embed", placement.vocab, Span(0, d.hidden)),))


def _after(spec: ModelSpec, placement: Placement) -> Iterator[Cut]:
    hidden = Span(0, spec.dimensions.hidden)
    if placement.layers.stop != spec.dimensions.layers:
        return
    yield Cut("norm", (Piece("norm", hidden, ONE),), hidden.size)
    if not spec.traits.tied_head:
        yield Cut("head", (Piece("head", placement.vocab, hidden),))
    elif placement.layers.start:
        yield Cut("head", (Piece("embed", placement.vocab, hidden),))


# --------------------------------------------------------------------------------- the forms


def _parameter(spec: ModelSpec, cut: Cut, dtype: Dtype, kind: DeviceKind) -> Parameter:
    made, offset = [], 0
    for source, rows, columns in cut.pieces:
        made.append(Shard(cut.name, source, rows, columns, offset))
        offset += rows.size
    shards, width = tuple(made), cut.pieces[0].columns.size
    if _is_vector(spec, shards):
        return Parameter(cut.name, offset, width, "float32", shards, True, cut.replicated)
    if dtype == "stored":
        return _as_stored(spec, cut, shards, offset, width)
    held, reason = _held(spec, shards, width, dtype, kind)
    return Parameter(cut.name, offset, width, held, shards, False, cut.replicated, reason)


def _as_stored(
    spec: ModelSpec, cut: Cut, shards: tuple[Shard, ...], rows: int, width: int
) -> Parameter:
    """Held block by block as in the file, as other engines do: a block that a cut goes through
    is held by the ranks on both sides."""
    names = tuple(spec.tensors[shard.source].format for shard in shards)
    sizes = _stored_bytes(shards, names)
    most = names[sizes.index(max(sizes))]
    reasons = (_through(spec, s, n) for s, n in zip(shards, names, strict=True))
    reason = next(filter(None, reasons), "")
    return Parameter(cut.name, rows, width, most, shards, False, cut.replicated, reason, names)


def _through(spec: ModelSpec, shard: Shard, name: str) -> str:
    """Says so where a shard begins or ends inside a block."""
    (start, stop), block = shard.columns, FORMATS[name].grain
    if start % block == 0 and (stop % block == 0 or stop == spec.tensors[shard.source].shape[1]):
        return ""
    return f"columns {start}-{stop} cut through {name}'s blocks of {block}"


def _stored_bytes(shards: tuple[Shard, ...], names: tuple[str, ...]) -> list[int]:
    return [
        FORMATS[name].nbytes(shard.rows.size, shard.columns.size)
        for shard, name in zip(shards, names, strict=True)
    ]


def _held(
    spec: ModelSpec, shards: tuple[Shard, ...], columns: int, dtype: Dtype, kind: DeviceKind
) -> tuple[str, str]:
    """The form a matrix takes in memory, and why it is larger than stored.

    A chosen dtype is obeyed. Otherwise quantized files stay quantized where the device has a
    kernel for the form and the cut meets its grain, and become 16-bit elsewhere.
    """
    stored = {spec.tensors[shard.source].format for shard in shards}
    if dtype == "int8" and kind == "cpu":
        return _int8(columns)
    if dtype not in ("auto", "int8"):
        return dtype, ""
    if kind != "cpu":
        plain = dtype == "auto" and all(not FORMATS[name].quantized for name in stored)
        reason = "" if plain else "cards hold 16 bits in this version"
        return ("float16" if stored == {"F16"} else "bfloat16"), reason
    if any(not FORMATS[name].quantized for name in stored):
        return "bfloat16", ""
    if shards[0].source in ("embed", "head") or stored == {"Q8_0"}:
        return _int8(columns)
    if not stored <= {"Q4_0", "Q4_1"}:
        return "bfloat16", f"no kernel for {' with '.join(sorted(stored))}"
    if not all(map(_meets_int4, shards)):
        return "bfloat16", "the cut does not meet the grain of 4-bit blocks"
    return "int4", ""


def _int8(columns: int) -> tuple[str, str]:
    if columns % INT8_COLUMNS == 0:
        return "int8", ""
    return "bfloat16", f"{columns} columns are not whole steps of {INT8_COLUMNS}"


def _meets_int4(shard: Shard) -> bool:
    grain = HELD["int4"]
    return (
        shard.rows.size % grain.row_grain == 0
        and shard.columns.start % grain.column_grain == 0
        and shard.columns.size % grain.column_grain == 0
    )


def _is_vector(spec: ModelSpec, shards: tuple[Shard, ...]) -> bool:
    return len(spec.tensors[shards[0].source].shape) == 1
