"""Which rectangles of which stored tensors make up the parameters of one rank, and in which form.

The single source of truth for weight bytes: the planner sums over these parameters and the loader
iterates over the same ones. Knows nothing of files or torch. Fused parameters (q|k|v, gate|up) are
cut apart first and then stacked, never cut as one block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm

from local_tp.checkpoint.formats import FORMATS, HELD
from local_tp.core import DeviceKind, Dtype, ModelSpec, Placement, Shard, Span
from local_tp.plan.layer_cut import ONE, Cut, Piece, layer_cuts
from local_tp.traits import ROPE_FACTORS

FEW_LAYERS = 4  # so many are sooner cut than compared
ORDER_BYTES = 4  # of a column's place in the order of groups
INT8_COLUMNS = 16  # torch's 8-bit kernel takes so many at a time and would read past a shorter row
ROUTER = ".router"  # held in float32: rounded scores would choose other experts
BY_HEAD = (".k_up", ".v_up")  # each head's part is multiplied alone, and keys' from the other side
# What torch's packed forms for the processor hold: 4-bit codes as they are, with scales rounded to
# bfloat16; and what loses less in a row's 8 bits than it has lost already.
INT4_STORED = frozenset(("Q4_0", "Q4_1", "Q4_K"))
INT8_STORED = INT4_STORED | {"Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "IQ4_XS"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One matrix (rows, columns) of a rank, or a vector of one column. `held` names its form.

    A form is a row of `checkpoint.formats.HELD` or, where it is held as stored, the stored format
    of most of its bytes; `stored` then has the format of each shard. `replicated` counts the rows
    that other ranks of the stage hold, too. `reason` says why a form takes more than its file does.
    Of `experts` it has a matrix each: every shard is as many rows of one after another. Where it is
    `ordered`, the order of its columns is held beside each shard.
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
    experts: int = 0
    ordered: bool = False

    @property
    def expert(self) -> Parameter:
        """The matrix of its first expert; the others' are alike."""
        shards = tuple(
            replace(
                shard,
                rows=Span(shard.rows.start, shard.rows.start + shard.rows.size // self.experts),
                offset=shard.offset // self.experts,
            )
            for shard in self.shards
        )
        return replace(self, rows=self.rows // self.experts, shards=shards, experts=0)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, as held."""
        if self.stored:
            order = ORDER_BYTES * self.columns * len(self.shards) if self.ordered else 0
            return sum(_stored_bytes(self.shards, self.stored)) + order
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
    if dtype not in ("auto", "stored"):
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
    for name in ROPE_FACTORS:
        if name in spec.tensors:
            half = Span(0, spec.tensors[name].shape[0])
            yield Cut(name, (Piece(name, half, ONE),), half.size)
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
    if cut.name.endswith(ROUTER):
        return Parameter(cut.name, offset, width, "float32", shards, False, cut.replicated)
    if dtype == "stored":
        return _as_stored(spec, cut, shards, offset, width)
    if cut.name.endswith(BY_HEAD):
        held, reason = _by_head(spec, shards, dtype, kind)
        return Parameter(cut.name, offset, width, held, shards, False, cut.replicated, reason)
    held, reason = _held(spec, cut, shards, width, dtype, kind)
    through = next(filter(None, (_through_order(spec, cut, shard) for shard in shards)), "")
    if held == "stored" and through:
        held, reason = "bfloat16", through
    if held == "stored":
        stored = _as_stored(spec, cut, shards, offset, width)
        if stored.nbytes <= HELD["bfloat16"].nbytes(offset, width):
            return stored
        held, reason = "bfloat16", stored.reason
    return Parameter(
        cut.name, offset, width, held, shards, False, cut.replicated, reason, experts=cut.experts
    )


def _by_head(
    spec: ModelSpec, shards: tuple[Shard, ...], dtype: Dtype, kind: DeviceKind
) -> tuple[str, str]:
    """Plain numbers: to unpack them for every step would take longer than to read them."""
    if dtype in ("float32", "bfloat16", "float16"):
        return dtype, ""
    stored = {spec.tensors[shard.source].format for shard in shards}
    plain = "float16" if kind != "cpu" and stored == {"F16"} else "bfloat16"
    if dtype == "int8" or any(FORMATS[name].quantized for name in stored):
        return plain, "heads of compressed keys and values are multiplied one by one"
    return plain, ""


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
    order = any(spec.tensors[shard.source].ordered for shard in shards)
    made = Parameter(
        cut.name, rows, width, most, shards, False, cut.replicated, reason, names, cut.experts
    )
    return replace(made, ordered=order)


def _through_order(spec: ModelSpec, cut: Cut, shard: Shard) -> str:
    """Says so where columns that are sorted by group are cut, or are of experts."""
    if not spec.tensors[shard.source].ordered:
        return ""
    if cut.experts:
        return "experts in the order of activations (act-order)"
    start, stop = shard.columns
    if stop - start == spec.tensors[shard.source].shape[1]:
        return ""
    return f"columns {start}-{stop} cut through groups in the order of activations (act-order)"


def _through(spec: ModelSpec, shard: Shard, name: str) -> str:
    """Says so where a shard begins or ends inside a block."""
    (start, stop), block = shard.columns, FORMATS[name].grain
    if start % block == 0 and (stop % block == 0 or stop == spec.tensors[shard.source].shape[1]):
        return ""
    return f"columns {start}-{stop} cut through {name}'s blocks of {block}"


def _stored_bytes(shards: tuple[Shard, ...], names: tuple[str, ...]) -> list[int]:
    """Bytes of each shard in whole blocks, also where a cut goes through the first."""
    found = []
    for shard, name in zip(shards, names, strict=True):
        stored = FORMATS[name]
        lead = shard.columns.start % stored.grain
        found.append(stored.nbytes(shard.rows.size, lead + shard.columns.size))
    return found


def _held(
    spec: ModelSpec,
    cut: Cut,
    shards: tuple[Shard, ...],
    columns: int,
    dtype: Dtype,
    kind: DeviceKind,
) -> tuple[str, str]:
    """The form a matrix takes in memory, or "stored", and why it is larger than in the file.

    A chosen dtype is obeyed. Otherwise quantized files stay quantized: in a form that the device
    has a fast kernel for, where there is one and the cut meets its grain, or as stored.
    """
    stored = {spec.tensors[shard.source].format for shard in shards}
    if dtype == "int8" and kind == "cpu":
        return _int8(columns)
    if dtype not in ("auto", "int8"):
        return dtype, ""
    plain = "float16" if kind != "cpu" and stored == {"F16"} else "bfloat16"
    if dtype == "int8":
        return plain, "int8 is a form of the processor"
    if all(not FORMATS[name].quantized for name in stored):
        return plain, ""
    unread = sorted(name for name in stored if not FORMATS[name].readable)
    if unread:
        return "bfloat16", f"no kernel for {' with '.join(unread)}"
    return _packed(cut, stored, columns) if kind == "cpu" else ("stored", "")


def _packed(cut: Cut, stored: set[str], columns: int) -> tuple[str, str]:
    """The form of torch's kernels for the processor, where they take such a matrix."""
    looked_up = cut.pieces[0].source in ("embed", "head")
    if stored <= INT4_STORED and not looked_up and _meets_int4(cut):
        return "int4", ""
    if not stored <= INT8_STORED or columns % INT8_COLUMNS:
        return "stored", ""
    longer = sorted(stored - {"Q8_0"})
    reason = f"{' with '.join(longer)} here is multiplied faster so by the processor"
    return "int8", reason if longer and not looked_up else ""


def _int8(columns: int) -> tuple[str, str]:
    if columns % INT8_COLUMNS == 0:
        return "int8", ""
    return "bfloat16", f"{columns} columns are not whole steps of {INT8_COLUMNS}"


def _meets_int4(cut: Cut) -> bool:
    grain = HELD["int4"]
    return all(
        piece.rows.size % (grain.row_grain * max(1, cut.experts)) == 0
        and piece.columns.start % grain.column_grain == 0
        and piece.columns.size % grain.column_grain == 0
        for piece in cut.pieces
    )


def _is_vector(spec: ModelSpec, shards: tuple[Shard, ...]) -> bool:
    return len(spec.tensors[shards[0].source].shape) == 1
