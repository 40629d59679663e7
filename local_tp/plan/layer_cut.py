"""Which rectangles of a layer's tensors one rank holds, for every kind of layer.

Knows nothing of forms in memory or of files. What heads, columns, experts or vocabulary rows cut
is owned by one rank of a stage; what they cannot cut every rank holds whole. Sizes come from the
tensors' own shapes, since layers of one model may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from local_tp.core import ModelSpec, Placement, Span, TensorInfo

SHARED_GRAIN = 64  # columns of shared experts, where their cut follows that of other columns
ONE = Span(0, 1)


class Piece(NamedTuple):
    """A rectangle of a stored tensor."""

    source: str
    rows: Span
    columns: Span


class Cut(NamedTuple):
    """A parameter of a rank: pieces one above the other. `replicated` rows others hold, too."""

    name: str
    pieces: tuple[Piece, ...]
    replicated: int = 0


def layer_cuts(spec: ModelSpec, placement: Placement, index: int) -> Iterator[Cut]:
    """Every parameter of one layer, in the order of the forward pass."""
    layer = _Layer(spec, placement, index)
    kind = spec.kind(index)
    if placement.query_heads.size:
        yield from layer.whole("attn_norm")
        yield from _MIXERS[kind.mixer](layer)
        yield from layer.whole("post_attn_norm")
    feeds = _experts(layer) if kind.feed == "experts" else _dense(layer)
    parameters = [cut for cut in feeds if any(p.rows.size and p.columns.size for p in cut.pieces)]
    if parameters:
        yield from layer.whole("ffn_norm")
        yield from parameters
        yield from layer.whole("post_ffn_norm")


def kv_elements(spec: ModelSpec, placement: Placement, index: int) -> int:
    """Elements that a token leaves on this rank in one layer: 0 in a recurrent one.

    A compressed row is held whole by every rank that has query heads there.
    """
    if not placement.query_heads.size or spec.kind(index).mixer == "recurrent":
        return 0
    if spec.dimensions.kv_row:
        return spec.dimensions.kv_row
    return 2 * _Layer(spec, placement, index).keys().size


class _Layer:
    """One layer's tensors, and the spans of a placement in their rows and columns."""

    __slots__ = ("_placement", "_prefix", "_spec")

    def __init__(self, spec: ModelSpec, placement: Placement, index: int) -> None:
        self._spec, self._placement = spec, placement
        self._prefix = f"layers.{index}."

    @property
    def placement(self) -> Placement:
        return self._placement

    def has(self, role: str) -> bool:
        return self._prefix + role in self._spec.tensors

    def info(self, role: str) -> TensorInfo:
        return self._spec.tensors[self._prefix + role]

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

    def recurrent_keys(self, total: int) -> Span:
        return _scaled(self._placement.kv_heads, self._spec.dimensions.kv_heads, total)

    def copied(self, keys: int) -> int:
        """Key and value rows that the ranks beside this one hold, too."""
        d, p = self._spec.dimensions, self._placement
        size = self.info("o").shape[1] // d.query_heads
        group = d.query_heads * size // self.info("k").shape[0]
        return 0 if p.query_heads.size * size == keys * group else keys

    def copied_groups(self) -> int:
        """1 where other ranks hold a part of this one's group of query heads, else 0."""
        d, p = self._spec.dimensions, self._placement
        return int(p.query_heads.size * d.kv_heads < p.kv_heads.size * d.query_heads)

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
    yield from layer.whole("q_norm", "k_norm")
    if layer.has("sinks"):
        yield layer.rows("sinks", layer.placement.query_heads, "sinks")
    yield from _output(layer, "o")


def _compressed(layer: _Layer) -> Iterator[Cut]:
    """Compressed keys and values: the way down on every rank, the way up by heads."""
    yield from layer.whole("q_down", "q_down_norm")
    yield layer.rows("q", layer.queries(layer.info("q").shape[0]), "q")
    yield from layer.whole("kv_down", "kv_down_norm")
    yield layer.rows("kv", layer.queries(layer.info("kv").shape[0]), "kv")
    yield from _output(layer, "o")


def _recurrent(layer: _Layer) -> Iterator[Cut]:
    """A gated delta net: values follow query heads, keys follow KV heads and are copied as they."""
    values = layer.queries(layer.info("mix_v").shape[0])
    keys = layer.recurrent_keys(layer.info("mix_k").shape[0])
    spans = {"q": keys, "k": keys, "v": values, "z": values}
    copied = layer.copied_groups() * 2 * keys.size
    inputs = ((f"mix_{n}", span, layer.width(f"mix_{n}")) for n, span in spans.items())
    yield layer.cut("mix_in", *inputs, replicated=copied)
    heads = layer.queries(layer.info("mix_beta").shape[0])
    yield layer.rows("mix_gates", heads, "mix_beta", "mix_alpha")
    convolved = ((f"mix_conv_{n}", spans[n], layer.width(f"mix_conv_{n}")) for n in "qkv")
    yield layer.cut("mix_conv", *convolved, replicated=copied)
    yield layer.rows("mix_decay", heads, "mix_decay")
    yield layer.rows("mix_step", heads, "mix_step")
    yield from layer.whole("mix_norm")
    yield from _output(layer, "mix_o")


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
        yield from layer.whole("router")
        gates = ("experts_gate", "experts_up")
        yield layer.rows("experts_gate_up", layer.experts("experts_gate"), *gates)
        yield layer.rows("experts_down", layer.experts("experts_down"), "experts_down")
    if shared:
        yield from _gated(layer, shared, "shared_")


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
