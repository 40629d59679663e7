"""Which heads of a gated delta net one rank has, and what they keep of a text.

Value heads follow query heads, key heads follow KV heads and are copied as those are. Knows nothing
of forms in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from local_tp.core import EMPTY, ModelSpec, Placement, Span


class DeltaHeads(NamedTuple):
    """Heads of `size` elements. Of the key heads `copied` are held by other ranks, too."""

    size: int
    values: Span
    keys: Span
    copied: int = 0

    @property
    def value_rows(self) -> Span:
        return Span(self.values.start * self.size, self.values.stop * self.size)

    @property
    def key_rows(self) -> Span:
        return Span(self.keys.start * self.size, self.keys.stop * self.size)

    @property
    def channels(self) -> int:
        """Rows of queries, keys and values, which the convolution goes over."""
        return (2 * self.keys.size + self.values.size) * self.size


def delta_heads(spec: ModelSpec, placement: Placement, index: int) -> DeltaHeads:
    """The heads of layer `index` that `placement` has.

    Where query heads do not divide the value heads, boundaries are rounded down alike on both
    sides. Where value heads are tiled over key heads, a rank has every key head.
    """
    d, total = spec.dimensions, _total(spec, index)
    query, kv = placement.query_heads, placement.kv_heads
    count = total.values.size
    values = Span(*(at * count // d.query_heads for at in query))
    if not values.size:
        return DeltaHeads(total.size, EMPTY, EMPTY)
    if spec.traits.values_tiled:
        copied = total.keys.size if values != total.values else 0
        return DeltaHeads(total.size, values, total.keys, copied)
    count = total.keys.size
    keys = Span(kv.start * count // d.kv_heads, -(-kv.stop * count // d.kv_heads))
    owned = query.size * count == keys.size * d.query_heads
    return DeltaHeads(total.size, values, keys, 0 if owned else keys.size)


def key_of_values(spec: ModelSpec, placement: Placement, index: int) -> tuple[int, ...]:
    """For each value head of the rank the key head that it uses, counted among the rank's own."""
    total, mine = _total(spec, index), delta_heads(spec, placement, index)
    keys, each = total.keys.size, total.values.size // total.keys.size
    tiled = spec.traits.values_tiled
    return tuple((v % keys if tiled else v // each) - mine.keys.start for v in range(*mine.values))


def state_elements(spec: ModelSpec, placement: Placement, index: int) -> int:
    """Elements that layer `index` keeps of one text: a matrix for each value head, and the
    convolution's last inputs."""
    heads = delta_heads(spec, placement, index)
    return heads.values.size * heads.size**2 + heads.channels * (kernel_of(spec, index) - 1)


def kernel_of(spec: ModelSpec, index: int) -> int:
    """Tokens that the convolution of layer `index` sees, its own among them."""
    return spec.tensors[f"layers.{index}.mix_conv_v"].shape[1]


def _total(spec: ModelSpec, index: int) -> DeltaHeads:
    at = f"layers.{index}."
    size, count = spec.tensors[at + "mix_norm"].shape[0], spec.tensors[at + "mix_decay"].shape[0]
    return DeltaHeads(size, Span(0, count), Span(0, spec.tensors[at + "mix_k"].shape[0] // size))
