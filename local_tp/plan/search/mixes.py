"""Layers of several classes at once: what a share of so many of each weighs, reads and computes.

The sums are those of `plan.costs`, class by class; where every class adds the same with every unit,
so does their sum, and any count is one multiplication away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from local_tp.core import DeviceKind
from local_tp.plan.costs import Share, Tables
from local_tp.plan.costs_lines import Line, Piece, added, extended
from local_tp.plan.work import Part, PartName

T = TypeVar("T")
Mix = tuple[int, ...]  # how many layers of each class


@dataclass(frozen=True, slots=True)
class _Slope:
    """A part of all layers of a mix where units are alike: of `first`, and of each further one."""

    unit: int
    first: int
    start: Part
    step: Part
    nbytes: tuple[int, int]
    slack: int

    def holds(self, count: int, most: int) -> bool:
        """Whether it says what that count is; of all units each class is asked."""
        return self.first * self.unit <= count < most and count % self.unit == 0


@dataclass(frozen=True, slots=True)
class Mixes:
    """The tables of a model, asked for many layers at a time; filled as they are asked for."""

    tables: Tables
    known: dict[tuple[object, ...], object] = field(default_factory=dict)

    def part(self, name: PartName, kind: DeviceKind, mix: Mix, share: Share) -> Part:
        """One part of so many layers of each class."""
        if name == "mixer":
            heads = (kind, mix, share.query, share.kv)
            return self._kept(("mixer", *heads), lambda: self._added(name, kind, mix, share))
        count = share.ffn if name == "feed" else share.experts
        slope = self._slope(name, kind, mix)
        if slope is None or not slope.holds(count, self._most(name)):
            return self._kept((name, kind, mix, count), lambda: self._added(name, kind, mix, share))
        return extended(name, slope.start, slope.step, count // slope.unit - slope.first)

    def nbytes(self, kind: DeviceKind, mix: Mix, share: Share, tokens: int) -> int:
        """Bytes of weights, of what they are rounded up by, and of what the layers remember."""
        heads = self._kept(
            ("heads", kind, mix, share.query, share.kv, tokens),
            lambda: self._heads(kind, mix, share, tokens),
        )
        feed = self._weight("feed", kind, mix, share.ffn)
        experts = self._weight("experts", kind, mix, share.experts)
        if not (share.ffn and share.experts):
            return heads + feed + experts
        columns = self._asked("feed", kind, mix, share.ffn)
        among = self._asked("experts", kind, mix, share.experts)
        key = ("common", kind, mix, columns, among)
        return heads + feed + experts - self._kept(key, lambda: self._common(kind, mix, share))

    def _asked(self, name: PartName, kind: DeviceKind, mix: Mix, count: int) -> int:
        """The count, or 0 where a slope says that no other differs from it."""
        slope = self._slope(name, kind, mix)
        return count if slope is None or count < slope.first * slope.unit else 0

    def _heads(self, kind: DeviceKind, mix: Mix, share: Share, tokens: int) -> int:
        total = 0
        for position, times in enumerate(mix):
            if times:
                piece = self.tables.mixer(kind, position, share.query, share.kv)
                kept = self.tables.remembered(kind, position, share, tokens)
                total += times * (piece.nbytes + piece.slack + kept)
        return total

    def _weight(self, name: PartName, kind: DeviceKind, mix: Mix, count: int) -> int:
        slope = self._slope(name, kind, mix)
        if slope is None or not slope.holds(count, self._most(name)):
            key = ("weight", name, kind, mix, count)
            return self._kept(key, lambda: self._weighed(name, kind, mix, count))
        start, step = slope.nbytes
        return start + (count // slope.unit - slope.first) * step + slope.slack

    def _weighed(self, name: PartName, kind: DeviceKind, mix: Mix, count: int) -> int:
        pieces = [(times, self._piece(name, kind, c, count)) for c, times in enumerate(mix)]
        return sum(times * (piece.nbytes + piece.slack) for times, piece in pieces if times)

    def _common(self, kind: DeviceKind, mix: Mix, share: Share) -> int:
        """Bytes that dense columns and experts of the same layers need alike, where both are."""
        return sum(
            times * self.tables.common(kind, position)
            for position, times in enumerate(mix)
            if times
            and self.tables.feed(kind, position, share.ffn).nbytes
            and self.tables.experts(kind, position, share.experts).nbytes
        )

    def _piece(self, name: PartName, kind: DeviceKind, position: int, count: int) -> Piece:
        ask = self.tables.feed if name == "feed" else self.tables.experts
        return ask(kind, position, count)

    def _added(self, name: PartName, kind: DeviceKind, mix: Mix, share: Share) -> Part:
        layers = enumerate(mix)
        return added(
            name,
            [
                (times, self.tables.layer_part(name, kind, position, share))
                for position, times in layers
            ],
        )

    def _slope(self, name: PartName, kind: DeviceKind, mix: Mix) -> _Slope | None:
        return self._kept(("slope", name, kind, mix), lambda: self._sloped(name, kind, mix))

    def _sloped(self, name: PartName, kind: DeviceKind, mix: Mix) -> _Slope | None:
        found: list[tuple[int, Line]] = []
        for position, times in enumerate(mix):
            line = self.tables.line(name, kind, position) if times else None
            if line is not None:
                found.append((times, line))
            elif times:
                return None
        if not found:
            return None
        first = max(line.first for _, line in found)
        starts = [(times, line.piece(name, first * line.unit)) for times, line in found]
        step = added(name, [(times, line.step.part) for times, line in found])
        start = added(name, [(times, piece.part) for times, piece in starts])
        return _Slope(
            unit=found[0][1].unit,
            first=first,
            start=replace(start, held=step.held),
            step=step,
            nbytes=(
                sum(times * piece.nbytes for times, piece in starts),
                sum(times * line.step.nbytes for times, line in found),
            ),
            slack=sum(times * line.slack for times, line in found),
        )

    def _most(self, name: PartName) -> int:
        d = self.tables.spec.dimensions
        return d.ffn if name == "feed" else d.experts

    def _kept(self, key: tuple[object, ...], ask: Callable[[], T]) -> T:
        try:
            return self.known[key]  # type: ignore[return-value]
        except KeyError:
            value = self.known[key] = ask()
            return value
