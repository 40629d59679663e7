"""Every plan there is on a small machine, looked at one by one: the judge of the search.

Stands on placements, `plan.memory` and `plan.predict` alone, and shares no code with the search
but the names of objectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations, product

from local_tp.core import EMPTY, Device, Goal, Link, ModelSpec, Placement, Span, Transport
from local_tp.plan.memory import with_memory
from local_tp.plan.planner import PAGE_SIZE, Knowledge, choose_transport
from local_tp.plan.predict import stages_of
from local_tp.plan.search.objective import seconds
from local_tp.plan.time import Rank, Stage, predict

Stages = tuple[tuple[Device, ...], ...]
Counts = tuple[int, ...]


def every_structure(devices: Sequence[Device], layers: int) -> Iterator[Stages]:
    """Every order of every grouping of every subset; groups are of one kind."""
    for size in range(1, len(devices) + 1):
        for order in permutations(devices, size):
            for stages in range(1, min(size, layers) + 1):
                for cuts in combinations(range(1, size), stages - 1):
                    bounds = [0, *cuts, size]
                    groups = tuple(order[a:b] for a, b in pairwise(bounds))
                    if all(len({d.kind for d in group}) == 1 for group in groups):
                        yield groups


def every_split(units: int, ranks: int) -> list[Counts]:
    """Every way to give `units` to `ranks`, some of whom may get nothing."""
    return [c for c in product(range(units + 1), repeat=ranks) if sum(c) == units]


def every_heads(query: int, kv: int, ranks: int) -> list[Counts]:
    """Query heads of each rank: whole groups, or a part of one where a neighbour has the rest."""
    group = query // kv
    return [way for way in every_split(query, ranks) if _whole_or_part(way, group)]


def _whole_or_part(way: Counts, group: int) -> bool:
    start = 0
    for count in way:
        stop = start + count
        groups = -(-stop // group) - start // group
        if count and count != groups * group and groups != 1:
            return False
        start = stop
    return True


def grain_of(total: int, grain: int, ranks: int) -> int:
    while grain > 1 and total // grain < ranks:
        grain //= 2
    return grain


@dataclass
class Every:
    """All plans of a model for a goal; costs of a rank are worked out once for each share."""

    spec: ModelSpec
    goal: Goal
    knowledge: Knowledge
    context: int
    links: tuple[Link, ...] = ()
    kept: dict[object, object] = field(default_factory=dict)

    def best(self, devices: Sequence[Device], largest: int = 8) -> float | None:
        """Seconds of the best plan that fits, by the goal's objective.

        Only of those whose stages have at most so many ranks.
        """
        found = [
            time
            for groups in every_structure(devices, self.spec.dimensions.layers)
            if max(map(len, groups)) <= largest and (time := self._best_of(groups)) is not None
        ]
        return min(found, default=None)

    def _best_of(self, groups: Stages) -> float | None:
        layers = self.spec.dimensions.layers
        best: float | None = None
        for cuts in combinations(range(1, layers), len(groups) - 1):
            bounds = [0, *cuts, layers]
            spans = [Span(a, b) for a, b in pairwise(bounds)]
            choices = [list(self._stages(groups, at, span)) for at, span in enumerate(spans)]
            for stages in product(*choices):
                found = self._seconds(stages)
                if best is None or found < best:
                    best = found
        return best

    def _seconds(self, stages: tuple[Stage, ...]) -> float:
        chunk = min(self.goal.chunk, self.context)
        predicted = predict(
            stages,
            self.spec.dimensions.hidden,
            self.knowledge.rates,
            self.context,
            chunk,
            self.goal.streams,
        )
        return seconds(predicted, self.goal.objective)

    def _stages(self, groups: Stages, at: int, layers: Span) -> Iterator[Stage]:
        """A stage with all shares of its ranks for which each has room."""
        d, ranks = self.spec.dimensions, len(groups[at])
        speaks = layers.start == 0 or layers.stop == d.layers
        ffn, vocab = grain_of(d.ffn, 64, ranks), grain_of(d.vocab, 64, ranks)
        for query in every_heads(d.query_heads, d.kv_heads, ranks):
            for columns in every_split(d.ffn // ffn, ranks):
                for rows in every_split(d.vocab // vocab, ranks) if speaks else [(0,) * ranks]:
                    shares = zip(query, columns, rows, strict=True)
                    sizes = [(q, c * ffn, v * vocab) for q, c, v in shares]
                    if (stage := self._stage(groups, at, layers, sizes)) is not None:
                        yield stage

    def _stage(
        self, groups: Stages, at: int, layers: Span, sizes: Sequence[tuple[int, int, int]]
    ) -> Stage | None:
        used = [d for group in groups for d in group]
        transport = choose_transport(used)
        starts = [0, 0, 0]
        ranks = []
        for device, size in zip(groups[at], sizes, strict=True):
            spans = [Span(a, a + n) for a, n in zip(starts, size, strict=True)]
            starts = [span.stop for span in spans]
            placement = self._placement(device, layers, spans)
            alone = len(groups[at]), transport
            rank, room = self._rank(device, placement, *alone)
            if not room:
                return None
            ranks.append(rank)
        between = self._between(groups, at, transport)
        return Stage(tuple(ranks), between.total, between.onward)

    def _placement(self, device: Device, layers: Span, spans: Sequence[Span]) -> Placement:
        query, ffn, vocab = spans
        group = self.spec.dimensions.query_heads // self.spec.dimensions.kv_heads
        first = query.start // group
        kv = Span(first, -(-query.stop // group) if query.size else first)
        return Placement(0, device.id, 0, layers, query, kv, ffn, vocab)

    def _rank(
        self, device: Device, p: Placement, ranks: int, transport: Transport
    ) -> tuple[Rank, bool]:
        sizes = tuple(s.size for s in (p.query_heads, p.kv_heads, p.ffn, p.vocab))
        key = (device.id, p.layers, sizes, ranks, transport)
        if key not in self.kept:
            tokens = -(-self.context // PAGE_SIZE) * self.goal.streams * PAGE_SIZE
            memory = with_memory(
                self.spec, p, self.goal, tokens, device.kind, ranks, transport, 1.0, device.context
            ).memory
            rates = self.knowledge.rates
            (stage,) = stages_of(self.spec, [p], [device], self.links, (), "none", rates, self.goal)
            fits = memory.total <= device.free - device.reserve
            self.kept[key] = stage.ranks[0], fits
        return self.kept[key]  # type: ignore[return-value]

    def _between(self, groups: Stages, at: int, transport: Transport) -> Stage:
        key = (groups, at)
        if key not in self.kept:
            devices = [d for group in groups for d in group]
            ranks = [
                Placement(i, d.id, stage, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
                for i, (stage, d) in enumerate((s, d) for s, g in enumerate(groups) for d in g)
            ]
            rates = self.knowledge.rates
            made = stages_of(self.spec, ranks, devices, self.links, (), transport, rates, self.goal)
            self.kept[key] = made[at]
        return self.kept[key]  # type: ignore[return-value]
