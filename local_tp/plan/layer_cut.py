"""Which rectangles of a layer's tensors one rank holds, for every kind of layer.

Knows nothing of forms in memory or of files. What heads, columns, experts or vocabulary rows cut
is owned by one rank of a stage; what they cannot cut every rank holds whole. Sizes come from the
tensors' own shapes, since layers of one model may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from local_tp.core import ModelSpec, Placement, Span, TensorInfo
from local_tp.plan.delta_heads import DeltaHeads, delta_heads

SHARED_GRAIN = 64  # columns of shared experts, where their cut follows that of other columns
ONE = Span(0, 1)


class Piece(NamedTuple):
    """A rectangle of a stored tensor."""

    source: str
    rows: Span
    columns: Span


class Cut(NamedTuple):
    """A parameter of a rank: pieces one above the other. `replicated` rows others hold, too.

    Of `experts` it has a matrix each; a piece has as many rows of every one, one after another.
    """

    name: str
    pieces: tuple[Piece, ...]
    replicated: int = 0
    experts: int = 0


def layer_cuts(spec: ModelSpec, placement: Placement, index: int) -> Iterator[Cut]:
    """Every parameter of one layer, in the order of the forward pass."""
    layer = _Layer(spec, placement, index)
    kind = spec.kind(index)
    if placement.query_heads.size:
        yield from layer.whole("attn_norm")
        yield from _MIXERS[kind.mixer](layer)
    yield from layer.whole("o_bias", "post_attn_norm")
    feeds = _experts(layer) if kind.feed == "experts" else _dense(layer)
    parameters = [cut for cut in feeds if any(p.rows.size and p.columns.size for p in cut.pieces)]
    if parameters:
        shared = not layer.has("ffn_norm") and not placement.query_heads.size
        yield from layer.whole("attn_norm" if shared else "ffn_norm")
        yield from parameters
    yield from layer.whole("down_bias", "post_ffn_norm")


def kv_elements(spec: ModelSpec, placement: Placement, index: int) -> int:
    """Elements that a token leaves on this rank in one layer: 0 in a recurrent one.

    A compressed row is held whole by every rank that has query heads there.
    """
    if not placement.query_heads.size or spec.kind(index).mixer == "recurrent":
        return 0
    if spec.dimensions.kv_row:
        return spec.dimensions.kv_row
    return 2 * _Layer(spec, placement, index).keys().size


def head_size(spec: ModelSpec, index: int) -> int:
    """Elements of a head of one attention layer."""
    return spec.tensors[f"layers.{index}.o"].shape[1] // spec.dimensions.query_heads


def has_wide_norms(spec: ModelSpec, index: int) -> bool:
    """Whether queries and keys of a layer are normed over all heads together, of which there are
    several."""
    at = f"layers.{index}."
    gains = spec.tensors.get(at + "q_norm")
    if gains is None or spec.dimensions.query_heads == 1:
        return False
    return gains.shape == spec.tensors[at + "o"].shape[1:]


class _Layer:
    """One layer's tensors, and the spans of a placement in their rows and columns."""

    __slots__ = ("_index", "_placement", "_prefix", "_spec")

    def __init__(self, spec: ModelSpec, placement: Placement, index: int) -> None:
        self._spec, self._placement, self._index = spec, placement, index
        self._prefix = f"layers.{index}."

    @property
    def placement(self) -> Placement:
        return self._placement

    def has(self, role: str) -> bool:
        return self._prefix + role in self._spec.tensors

    def info(self, role: str) -> TensorInfo:
        return self._spec.tensors[self._prefix + role]

    def has_wide_norms(self) -> bool:
        return has_wide_norms(self._spec, self._index)

    def cut(self, name: str, *pieces: tuple[str, Span, Span], replicated: int = 0) -> Cut:
        named = tuple(Piece(self._prefix + role, r, c) for role, r, c in pieces)
        return Cut(self._prefix + name, named, replicated)

    def rows(self, name: str, rows: Span, *roles: str) -> Cut:
        """These rows of each of these tensors, every column."""
        return self.cut(name, *((role, rows, self.width(role)) for role in roles))

    def whole(self, *roles: str) -> Iterator[Cut]:
        """Parameters that every rank holds whole, where the model has them."""
        for role in filter(self.has, roles):
            rows = Span(0, self.info(role).shape[0])
            yield self.cut(role, (role, rows, self.width(role)), replicated=rows.size)

    def width(self, role: str) -> Span:
        shape = self.info(role).shape
        return Span(0, shape[1]) if len(shape) == 2 else ONE

    def queries(self, total: int) -> Span:
        """The part of `total` rows or columns, spread over the query heads, that is held here."""
        return _scaled(self._placement.query_heads, self._spec.dimensions.query_heads, total)

    def keys(self) -> Span:
        """Rows of the key projection. A layer with fewer KV heads copies them to more ranks."""
        d, total = self._spec.dimensions, self.info("k").shape[0]
        size = self.info("o").shape[1] // d.query_heads
        if total == d.kv_heads * size:
            return _scaled(self._placement.kv_heads, d.kv_heads, total)
        group = d.query_heads * size // total
        query = self._placement.query_heads
        return Span(query.start // group * size, -(-query.stop // group) * size)

    def delta_heads(self) -> DeltaHeads:
        return delta_heads(self._spec, self._placement, self._index)

    def copied(self, keys: int) -> int:
        """Key and value rows that the ranks beside this one hold, too."""
        d, p = self._spec.dimensions, self._placement
        size = self.info("o").shape[1] // d.query_heads
        group = d.query_heads * size // self.info("k").shape[0]
        return 0 if p.query_heads.size * size == keys * group else keys

    def experts(self, role: str) -> Span:
        return _scaled(
            self._placement.experts, self._spec.dimensions.experts, self.info(role).shape[0]
        )

    def columns(self, total: int) -> Span:
        """The part of `total` columns that goes with this rank's share of dense columns."""
        span, dense = self._placement.ffn, self._spec.dimensions.ffn
        if dense == total:
            return span
        return Span(*(_proportional(at, dense, total) for at in span))


def _full(layer: _Layer) -> Iterator[Cut]:
    if layer.has("kv_down"):
        yield from _compressed(layer)
        return
    query, keys = layer.queries(layer.info("q").shape[0]), layer.keys()
    roles = [role for role in ("k", "v") if layer.has(role)]
    copied = layer.copied(keys.size) * len(roles)
    pieces = [("q", query), *((role, keys) for role in roles)]
    yield layer.cut("qkv", *((r, s, layer.width(r)) for r, s in pieces), replicated=copied)
    if layer.has("q_bias"):
        biases = ((f"{role}_bias", span, ONE) for role, span in pieces)
        yield layer.cut("qkv_bias", *biases, replicated=copied)
    yield from _norms(layer, query, keys)
    if layer.has("sinks"):
        yield layer.rows("sinks", layer.placement.query_heads, "sinks")
    yield from _output(layer, "o")


def _norms(layer: _Layer, query: Span, keys: Span) -> Iterator[Cut]:
    """Of each head alone, with gains that all share, or of all heads together."""
    if layer.has_wide_norms():
        copied = layer.copied(keys.size)
        yield layer.cut("q_norm", ("q_norm", query, ONE))
        yield layer.cut("k_norm", ("k_norm", keys, ONE), replicated=copied)
    else:
        yield from layer.whole("q_norm", "k_norm")


def _compressed(layer: _Layer) -> Iterator[Cut]:
    """Compressed keys and values: the way down on every rank, the ways up by heads."""
    yield from layer.whole("q_down", "q_down_norm")
    yield layer.rows("q", layer.queries(layer.info("q").shape[0]), "q")
    yield from layer.whole("kv_down", "kv_down_norm")
    for role in ("k_up", "v_up"):
        yield layer.rows(role, layer.queries(layer.info(role).shape[0]), role)
    yield from _output(layer, "o")


def _recurrent(layer: _Layer) -> Iterator[Cut]:
    """A gated delta net. A rank may have query heads and no value heads."""
    heads = layer.delta_heads()
    if not heads.values.size:
        return
    keys, values = heads.key_rows, heads.value_rows
    spans = {"q": keys, "k": keys, "v": values, "z": values}
    copied = 2 * heads.copied * heads.size
    inputs = ((f"mix_{n}", span, layer.width(f"mix_{n}")) for n, span in spans.items())
    yield layer.cut("mix_in", *inputs, replicated=copied)
    yield layer.rows("mix_gates", heads.values, "mix_beta", "mix_alpha")
    convolved = ((f"mix_conv_{n}", spans[n], layer.width(f"mix_conv_{n}")) for n in "qkv")
    yield layer.cut("mix_conv", *convolved, replicated=copied)
    yield layer.rows("mix_decay", heads.values, "mix_decay")
    yield layer.rows("mix_step", heads.values, "mix_step")
    yield from layer.whole("mix_norm")
    yield layer.cut("mix_o", ("mix_o", Span(0, layer.info("mix_o").shape[0]), values))


def _output(layer: _Layer, role: str) -> Iterator[Cut]:
    rows, columns = layer.info(role).shape
    yield layer.cut(role, (role, Span(0, rows), layer.queries(columns)))


def _dense(layer: _Layer) -> Iterator[Cut]:
    yield from _gated(layer, layer.placement.ffn, "")


def _gated(layer: _Layer, columns: Span, prefix: str) -> Iterator[Cut]:
    yield layer.rows(f"{prefix}gate_up", columns, f"{prefix}gate", f"{prefix}up")
    rows = Span(0, layer.info(f"{prefix}down").shape[0])
    yield layer.cut(f"{prefix}down", (f"{prefix}down", rows, columns))


def _experts(layer: _Layer) -> Iterator[Cut]:
    """Routed experts whole, by their span; shared ones by columns; every rank chooses alike."""
    routed = layer.placement.experts
    shared = layer.columns(layer.info("shared_gate").shape[0]) if layer.has("shared_gate") else None
    if routed.size:
        yield from layer.whole("router", "router_bias", "router_correction")
        yield from _routed(layer, "experts_gate_up", "experts_gate", "experts_up")
        yield from _routed(layer, "experts_down", "experts_down")
    if shared and shared.size:
        yield from layer.whole("shared_router")
        yield from _gated(layer, shared, "shared_")


def _routed(layer: _Layer, name: str, *roles: str) -> Iterator[Cut]:
    """The matrices of this rank's experts, and their biases where there are any."""
    rows, count = layer.experts(roles[0]), layer.placement.experts.size
    yield layer.rows(name, rows, *roles)._replace(experts=count)
    if layer.has(f"{roles[0]}_bias"):
        yield layer.rows(f"{name}_bias", rows, *(f"{role}_bias" for role in roles))


_MIXERS: dict[str, Callable[[_Layer], Iterator[Cut]]] = {
    "full": _full,
    "sliding": _full,
    "recurrent": _recurrent,
}


def _scaled(span: Span, units: int, total: int) -> Span:
    """A span of `units` in `total` elements. Units that do not divide them are rounded outward."""
    return Span(span.start * total // units, -(-span.stop * total // units))


def _proportional(at: int, dense: int, total: int) -> int:
    """Where a boundary among `dense` columns lies among `total` ones, at a grain."""
    return total if at == dense else at * total // dense // SHARED_GRAIN * SHARED_GRAIN
