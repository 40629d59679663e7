"""Fast tables of a model: what any share of any layer weighs, reads and computes.

Made by asking `plan.layout`, `plan.work` and `plan.memory` about one layer of each class and one
share at a time, so that a candidate of the search is judged in microseconds and by the same
figures. Knows nothing of devices but their kind. Counts, not spans: within a grain it does not
matter which heads or columns a rank holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from local_tp.core import DeviceKind, Goal, ModelSpec, Placement, Span, Transport
from local_tp.plan.costs_lines import Line, Piece, added, line_through
from local_tp.plan.costs_models import (
    both_grains,
    fewest_columns,
    middle_of,
    model_of,
    tensors_of_layers,
)
from local_tp.plan.layout import (
    column_grain,
    edge_parameters,
    layer_parameters,
)
from local_tp.plan.memory import LARGE, SEGMENT, kv_bytes, state_bytes, with_memory
from local_tp.plan.work import Part, PartName, Work, work_of

T = TypeVar("T")
PARTS: tuple[PartName, ...] = ("mixer", "feed", "experts")
GRAIN = 64  # vocabulary rows that packed forms can hold
FEW = 8  # units up to which each share's workspace is asked
MIDDLE, LAST = Span(1, 2), Span(2, 3)  # layers of a model of three


class Share(NamedTuple):
    """What one rank has of its stage, in counts."""

    query: int = 0
    kv: int = 0
    ffn: int = 0
    experts: int = 0
    vocab: int = 0


NOTHING = Share()


@dataclass(frozen=True, slots=True)
class Tables:
    """A model's costs for one goal and format. Filled as they are asked for, never outdated."""

    spec: ModelSpec
    goal: Goal
    grain: int  # of dense feed-forward columns
    models: tuple[ModelSpec, ...]  # a small one for each class of layers
    middles: tuple[ModelSpec, ...]  # the same with the tensors of its middle layer alone
    of_layer: tuple[int, ...]  # the class of each layer
    known: dict[tuple[object, ...], object] = field(default_factory=dict)

    def counts(self, layers: Span) -> tuple[int, ...]:
        """How many layers of each class lie in a span."""
        mine = self.of_layer[layers.start : layers.stop]
        return tuple(mine.count(index) for index in range(len(self.models)))

    def mixer(self, kind: DeviceKind, index: int, query: int, kv: int) -> Piece:
        key = ("mixer", kind, index, query, kv)
        return self.kept(key, lambda: self._layer_piece("mixer", kind, index, Share(query, kv)))

    def feed(self, kind: DeviceKind, index: int, ffn: int) -> Piece:
        columns = fewest_columns(self.middles[index], ffn, self.grain)
        return self._line("feed", kind, index, columns, self.spec.dimensions.ffn)

    def experts(self, kind: DeviceKind, index: int, experts: int) -> Piece:
        return self._line("experts", kind, index, experts, self.spec.dimensions.experts)

    def head(self, kind: DeviceKind, vocab: int) -> Piece:
        return self._line("head", kind, 0, vocab, self.spec.dimensions.vocab)

    def layer_bytes(self, kind: DeviceKind, index: int, share: Share) -> int:
        """Bytes of one layer's weights."""
        mixer, feed, experts = self._pieces(kind, index, share)
        total = mixer.nbytes + feed.nbytes + experts.nbytes
        return total - (self.common(kind, index) if feed.nbytes and experts.nbytes else 0)

    def layer_slack(self, kind: DeviceKind, index: int, share: Share) -> int:
        """Bytes that a card's allocator rounds one layer's weights up by, on average."""
        return sum(piece.slack for piece in self._pieces(kind, index, share))

    def edge_bytes(self, kind: DeviceKind, share: Share, first: bool, last: bool) -> int:
        """Bytes of weights outside every layer: embedding, head, norm, rotary factors."""
        key = ("edge", kind, share.vocab, first, last)
        return self.kept(key, lambda: self._edge_bytes(kind, share.vocab, first, last))

    def remembered(self, kind: DeviceKind, index: int, share: Share, tokens: int) -> int:
        """Bytes of keys, values and state that one layer keeps."""
        key = ("kv", kind, index, share.query, share.kv, tokens)
        return self.kept(key, lambda: self._remembered(index, share, tokens))

    def overhead(
        self,
        kind: DeviceKind,
        share: Share,
        edges: tuple[bool, bool],
        ranks: int,
        by: Transport,
        tokens: int,
    ) -> int:
        """Bytes on the device that are neither weights nor what is remembered of a text.

        `edges` says whether the stage is the first and whether it is the last. Heads, columns,
        experts and rows of logits are in use one after another on a card, so that the most that
        one of them takes counts; in between it is straight at most. The processor's heap keeps
        all, so that each share is asked, as it is where there are few.
        """
        d = self.spec.dimensions
        if kind == "cpu" or max(d.ffn // self.grain, d.kv_heads, d.experts) <= FEW:
            return self._workspace(kind, share, edges, ranks, by, tokens)
        found, alone, logits = self.kept(
            ("overhead", kind, edges, min(ranks, 2), by, tokens),
            lambda: self._extremes(kind, edges, ranks, by, tokens),
        )
        for count, (whole, most) in zip(
            (share.query, share.ffn, share.experts), alone, strict=True
        ):
            if count and whole > found:
                found += int((whole - found) * count / most)
        return max(found, logits) if share.vocab else found

    def _extremes(
        self, kind: DeviceKind, edges: tuple[bool, bool], ranks: int, by: Transport, tokens: int
    ) -> tuple[int, tuple[tuple[int, int], ...], int]:
        """The workspace of a rank with nothing; with all heads, columns, or experts alone, and how
        many that is; and with all logits, where the stage has them."""
        d = self.spec.dimensions
        wholes = (
            (Share(d.query_heads, d.kv_heads), d.query_heads),
            (Share(ffn=d.ffn), d.ffn),
            (Share(experts=d.experts), d.experts),
        )
        alone = tuple(
            (self._workspace(kind, share, (False, False), ranks, by, tokens), most)
            for share, most in wholes
        )
        logits = Share(vocab=d.vocab)
        return (
            self._workspace(kind, NOTHING, edges, ranks, by, tokens),
            alone,
            self._workspace(kind, logits, (False, True), ranks, by, tokens) if edges[1] else 0,
        )

    def _pieces(self, kind: DeviceKind, index: int, share: Share) -> tuple[Piece, Piece, Piece]:
        return (
            self.mixer(kind, index, share.query, share.kv),
            self.feed(kind, index, share.ffn),
            self.experts(kind, index, share.experts),
        )

    def layer_part(self, name: PartName, kind: DeviceKind, index: int, share: Share) -> Part:
        """One of a layer's parts."""
        if name == "mixer":
            return self.mixer(kind, index, share.query, share.kv).part
        if name == "feed":
            return self.feed(kind, index, share.ffn).part
        return self.experts(kind, index, share.experts).part

    def layer_parts(self, kind: DeviceKind, index: int, share: Share) -> tuple[Part, ...]:
        """Mixer, feed and experts of one layer."""
        return tuple(piece.part for piece in self._pieces(kind, index, share))

    def work(self, kind: DeviceKind, layers: Span, share: Share) -> Work:
        """What a rank with this share of these layers does: as `work_of` its placement."""
        counts = self.counts(layers)
        parts = [
            self.layer_parts(kind, index, share)
            for index, count in enumerate(counts)
            if count or index == 0
        ]
        times = [count for index, count in enumerate(counts) if count or index == 0]
        sums = [
            added(PARTS[column], [(n, row[column]) for n, row in zip(times, parts, strict=True)])
            for column in range(3)
        ]
        if layers.stop == self.spec.dimensions.layers:
            sums.append(self.head(kind, share.vocab).part)
        return tuple(sums)

    # ------------------------------------------------------------------- asking the layout

    def kept(self, key: tuple[object, ...], ask: Callable[[], T]) -> T:
        if key not in self.known:
            self.known[key] = ask()
        return self.known[key]  # type: ignore[return-value]

    def _line(self, name: PartName, kind: DeviceKind, index: int, count: int, most: int) -> Piece:
        """A piece for any count: on a straight line where that is the truth, else asked."""
        key = (name, kind, index, count)
        found = self.known.get(key)
        if found is None:
            found = self._on_line(name, kind, index, count, most)
            self.known[key] = found
        return found  # type: ignore[return-value]

    def _on_line(
        self, name: PartName, kind: DeviceKind, index: int, count: int, most: int
    ) -> Piece:
        line = self.line(name, kind, index)
        if line is None or count in (0, most) or not line.holds(count):
            return self._piece(name, kind, index, count)
        return line.piece(name, count)

    def line(self, name: PartName, kind: DeviceKind, index: int) -> Line | None:
        """What every further unit of a part adds to a layer, where all add the same."""
        return self.kept(("line", name, kind, index), lambda: self._probe(name, kind, index))

    def _unit(self, name: PartName) -> int:
        return {"feed": self.grain, "head": GRAIN}.get(name, 1)

    def _probe(self, name: PartName, kind: DeviceKind, index: int) -> Line | None:
        most = getattr(self.spec.dimensions, {"feed": "ffn", "head": "vocab"}.get(name, name))
        return line_through(
            lambda count: self._piece(name, kind, index, count), self._unit(name), most
        )

    def _piece(self, name: PartName, kind: DeviceKind, index: int, count: int) -> Piece:
        if name == "head":
            model, share = self.models[0], Share(vocab=count)
            nbytes = self._edge_bytes(kind, count, False, True)
            work = work_of(model, placement_of(LAST, share), self.goal, kind)
            return Piece(nbytes, _part(work, "head"))
        field_name = "ffn" if name == "feed" else name
        share = NOTHING._replace(**{field_name: count})
        return self.kept(
            ("piece", name, kind, index, count),
            lambda: self._layer_piece(name, kind, index, share),
        )

    def _layer_piece(self, name: PartName, kind: DeviceKind, index: int, share: Share) -> Piece:
        model = self.middles[index]
        sizes = self._sizes(kind, index, share)
        work = work_of(model, placement_of(MIDDLE, share), self.goal, kind)
        large = sum(size >= LARGE for size in sizes) if kind != "cpu" else 0
        return Piece(sum(sizes), _part(work, name), large * SEGMENT // 2)

    def common(self, kind: DeviceKind, index: int) -> int:
        """Bytes that dense columns and experts of a layer need alike: their norm."""

        def ask() -> int:
            columns = self.spec.dimensions.ffn
            feed, experts = Share(ffn=columns), Share(experts=1)
            both = Share(ffn=columns, experts=1)
            one, two, all_ = (sum(self._sizes(kind, index, s)) for s in (feed, experts, both))
            return one + two - all_

        return self.kept(("common", kind, index), ask)

    def _sizes(self, kind: DeviceKind, index: int, share: Share) -> list[int]:
        """Bytes of each parameter of one layer."""
        placement = placement_of(MIDDLE, share)
        found = layer_parameters(self.middles[index], placement, 1, self.goal.dtype, kind)
        return [p.nbytes for p in found]

    def _edge_bytes(self, kind: DeviceKind, vocab: int, first: bool, last: bool) -> int:
        placement = placement_of(_where(first, last), Share(vocab=vocab))
        found = edge_parameters(self.models[0], placement, self.goal.dtype, kind)
        return sum(p.nbytes for p in found)

    def _remembered(self, index: int, share: Share, tokens: int) -> int:
        model, placement = self.models[index], placement_of(MIDDLE, share)
        kept = state_bytes(model, placement, self.goal.streams)
        return kept + kv_bytes(model, placement, self.goal, tokens)

    def _workspace(
        self,
        kind: DeviceKind,
        share: Share,
        edges: tuple[bool, bool],
        ranks: int,
        by: Transport,
        tokens: int,
    ) -> int:
        key = ("workspace", kind, share, edges, min(ranks, 2), by, tokens)

        def ask() -> int:
            found = 0
            for index in {model.kinds: i for i, model in enumerate(self.models)}.values():
                placement = placement_of(_where(*edges), share)
                model, goal = self.models[index], self.goal
                held = with_memory(model, placement, goal, tokens, kind, ranks, by).memory
                slack = placement.layers.size * self.layer_slack(kind, index, share)
                beside = held.workspace - held.context - slack
                found = max(found, beside)
            return found

        return self.kept(key, ask)


def tables_of(spec: ModelSpec, goal: Goal) -> Tables:
    """Empty tables; layers are of one class if they are of one kind and stored alike."""
    found: dict[int, int] = {}
    models: list[ModelSpec] = []
    of_layer: list[int] = []
    layers = tensors_of_layers(spec)
    for layer, likeness in enumerate(spec.likenesses):
        if likeness not in found:
            found[likeness] = len(models)
            models.append(model_of(spec, layer, layers[layer]))
        of_layer.append(found[likeness])
    grain = both_grains(spec, column_grain(spec, goal.dtype))
    middles = tuple(map(middle_of, models))
    return Tables(spec, goal, grain, tuple(models), middles, tuple(of_layer))


def _where(first: bool, last: bool) -> Span:
    """A layer of the three that stands as a stage does in the model; all, where it is alone."""
    if first and last:
        return Span(0, 3)
    return Span(0, 1) if first else LAST if last else MIDDLE


def placement_of(layers: Span, share: Share) -> Placement:
    """A rank that holds this share, counted from the first unit."""
    return Placement(
        rank=0,
        device="",
        stage=0,
        layers=layers,
        query_heads=Span(0, share.query),
        kv_heads=Span(0, share.kv),
        ffn=Span(0, share.ffn),
        vocab=Span(0, share.vocab),
        experts=Span(0, share.experts),
    )


def _part(work: Work, name: PartName) -> Part:
    return next((part for part in work if part.name == name), Part(name, "bfloat16"))
