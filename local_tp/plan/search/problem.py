"""One question of the search: a model, a machine, a goal, and how long a text may get.

Turns shares into seconds and bytes by the tables; the seconds are those of `plan.time`. Knows
nothing of which structures there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from local_tp.core import Span, Transport
from local_tp.plan.costs import Share, Tables
from local_tp.plan.search.machine import Machine, Ranks
from local_tp.plan.search.mixes import Mix, Mixes
from local_tp.plan.shares import Seconds
from local_tp.plan.time import Load, Stage, part_seconds, step_terms
from local_tp.plan.work import PartName
from local_tp.rates import Channel, Rates

T = TypeVar("T")
Edges = tuple[bool, bool]  # whether a stage is the first, and whether it is the last


@dataclass(frozen=True, slots=True)
class Problem:
    """`loads` are the steps that count, and how often; `tokens` the places of the cache.

    `known` is shared by questions that differ in rooms alone: answers that hang on those have the
    rooms in their keys.
    """

    tables: Tables
    machine: Machine
    rates: Rates
    loads: tuple[tuple[float, Load], ...]
    tokens: int
    known: dict[tuple[object, ...], object] = field(default_factory=dict)

    @property
    def mixes(self) -> Mixes:
        return self.tables.kept(("mixes",), lambda: Mixes(self.tables))

    @property
    def whole(self) -> Mix:
        """How many layers of each class the model has."""
        return self.kept(("whole",), lambda: self.tables.counts(Span(0, self.layers)))

    @property
    def layers(self) -> int:
        return self.tables.spec.dimensions.layers

    def with_rooms(self, rooms: Iterable[int]) -> Problem:
        """The same question with so many bytes on each device."""
        return replace(self, machine=replace(self.machine, rooms=tuple(rooms)))

    def stage_seconds(self, stage: Stage) -> float:
        """Seconds of a stage under all loads."""
        hidden = self.tables.spec.dimensions.hidden
        return sum(
            times * sum(term.seconds for term in terms)
            for times, load in self.loads
            for terms in step_terms((stage,), hidden, self.rates, load)
        )

    def hand_over(self, onward: Channel) -> float:
        """Seconds of handing over to the next stage, under all loads."""
        stage = Stage((), Channel(), onward)
        return self.kept(("onward", onward), lambda: self.stage_seconds(stage))

    def outside(self, first: bool) -> float:
        """Seconds of a stage beside its devices: the step's own with the first, else a stage's."""
        return sum(times for times, _ in self.loads) * (
            self.rates.step if first else self.rates.stage
        )

    def part_cost(
        self, index: int, ranks: Ranks, name: PartName, mix: Mix, share: Share
    ) -> Seconds:
        """Seconds of one rank for one part of so many layers of each class, load by load."""
        kind = self.machine.kind(index)
        speed = self.machine.speed(index, ranks, self.machine.workers(index))
        if name == "head":
            part = self.tables.head(kind, share.vocab).part
        else:
            part = self.mixes.part(name, kind, mix, share)
        return tuple(
            times * sum(part_seconds(part, speed, self.rates, load).values())
            for times, load in self.loads
        )

    def beside(self, index: int, share: Share, edges: Edges, ranks: int, by: Transport) -> int:
        """Bytes of a rank that do not grow with its layers."""
        kind = self.machine.kind(index)
        overhead = self.tables.overhead(kind, share, edges, ranks, by, self.tokens)
        workspace = overhead + self.machine.context(index)
        edge = self.tables.edge_bytes(kind, share, *edges)
        return int(workspace * self.machine.ratio(index)) + edge

    def layer_bytes(self, index: int, position: int, share: Share, streamed: float = 0.0) -> int:
        """Bytes that one layer of a class takes: its weights and what it remembers."""
        kind, tables = self.machine.kind(index), self.tables
        weights = tables.layer_bytes(kind, position, share)
        kept = tables.remembered(kind, position, share, self.tokens)
        slack = tables.layer_slack(kind, position, share)
        return kept + slack + weights - int(weights * streamed)

    def layers_bytes(self, index: int, mix: Mix, share: Share, streamed: float = 0.0) -> int:
        """Bytes that so many layers of each class take."""
        if streamed:
            layers = enumerate(mix)
            return sum(n * self.layer_bytes(index, c, share, streamed) for c, n in layers if n)
        return self.mixes.nbytes(self.machine.kind(index), mix, share, self.tokens)

    def buffers(self, index: int, share: Share) -> int:
        """Bytes on the device through which streamed layers pass: two layers."""
        kind, classes = self.machine.kind(index), range(len(self.tables.models))
        return 2 * max(self.tables.layer_bytes(kind, position, share) for position in classes)

    def kept(self, key: tuple[object, ...], ask: Callable[[], T]) -> T:
        try:
            return self.known[key]  # type: ignore[return-value]
        except KeyError:
            value = self.known[key] = ask()
            return value
