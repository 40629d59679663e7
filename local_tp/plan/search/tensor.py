"""Shares of the ranks of a stage: heads, dense columns, experts, vocabulary, each at its grain.

Every part is divided so that its slowest rank is as fast as can be; where memory does not allow
that, the parts are divided together under the limits. Knows nothing of which layers the stage
holds but how many of each class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import NamedTuple

from local_tp.core import Transport
from local_tp.plan.costs import GRAIN, NOTHING, Share
from local_tp.plan.partition import apportion, grain_of
from local_tp.plan.search.machine import Ranks
from local_tp.plan.search.mixes import Mix
from local_tp.plan.search.problem import Edges, Problem
from local_tp.plan.shares import Cost, Counts, Seconds, all_ways, slowest, spread, ways
from local_tp.plan.shares_heads import HeadCost, Heads, head_ways
from local_tp.plan.work import PartName

EVERY = 200  # ways to divide all but the largest part, up to which all are looked at
TILTS = (0.0, 0.5, 1.0)  # from shares by speed to shares by room


class _Axis(NamedTuple):
    """One thing that is shared in units of `grain`; `rest` are single ones left over."""

    name: PartName
    field: str
    units: int
    grain: int
    rest: int

    def amounts(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Units as numbers; what is left over goes to the last rank that has any."""
        found = [count * self.grain for count in counts]
        owners = [i for i, count in enumerate(counts) if count] or [0]
        found[owners[-1]] += self.rest
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a stage, and what is to be shared among them."""

    problem: Problem
    ranks: Ranks
    mix: Mix
    edges: Edges
    transport: Transport
    experts: int  # of them, those that these ranks share
    streamed: float = 0.0  # of each layer's weights, the part that stays in the PC's memory

    def shares(self) -> tuple[Share, ...] | None:
        """The fastest shares that every rank has room for; None where there are none."""
        if len(self.ranks) == 1:
            whole = (whole_share(self.problem, any(self.edges))._replace(experts=self.experts),)
            return whole if self.fits(whole) else None
        heads, free = self._free()
        best = _joined(heads[0], free)
        return best if self.fits(best) else self._tight(heads, free)

    def floor(self) -> tuple[float, float] | None:
        """Seconds of all the model's layers and of the head that no shares can beat.

        Of no part a rank takes more than it has room for beside nothing else, where these ranks
        have all layers; None where that does not do.
        """
        heads, free = self._free()
        spent = {"head": 0.0}
        for axis, counts in free.items():
            costs, within = self._costs(axis), counts
            if all(self.edges):
                caps = [self._cap(axis, i, NOTHING) for i in self.ranks]
                if any(count > cap for count, cap in zip(counts, caps, strict=True)):
                    found = spread(costs, axis.units, caps)
                    if found is None:
                        return None
                    within = found
            spent[axis.name] = slowest(costs, within)
        head = spent.pop("head")
        return self._head_seconds(heads[0]) + sum(spent.values()), head if self.edges[1] else 0.0

    def _free(self) -> tuple[list[tuple[Heads, ...]], dict[_Axis, Counts]]:
        """Ways to hand out the heads, and the fastest counts on each axis, whatever the room."""

        def ask() -> tuple[list[tuple[Heads, ...]], dict[_Axis, Counts]]:
            d = self.problem.tables.spec.dimensions
            heads = head_ways(d.query_heads, d.kv_heads, self._head_costs())
            free: dict[_Axis, Counts] = {}
            for axis in self._axes():
                counts = spread(self._costs(axis), axis.units, [axis.units] * len(self.ranks))
                assert counts is not None
                free[axis] = counts
            return heads, free

        key = ("free", self.ranks, self.edges, self.experts, self._rooms())
        return self.problem.kept(key, ask)

    def fits(self, shares: Sequence[Share]) -> bool:
        return all(self.over(i, share) <= 0 for i, share in zip(self.ranks, shares, strict=True))

    def over(self, index: int, share: Share) -> int:
        """Bytes that a rank would have too many."""
        problem = self.problem
        need = problem.beside(index, share, self.edges, len(self.ranks), self.transport)
        need += problem.layers_bytes(index, self.mix, share, self.streamed)
        if self.streamed:
            need += problem.buffers(index, share)
        return need - problem.machine.room(index)

    # ----------------------------------------------------------------- where memory is short

    def _tight(
        self, heads: Sequence[tuple[Heads, ...]], free: dict[_Axis, Counts]
    ) -> tuple[Share, ...] | None:
        """Parts divided one inside another, the last as well as the room left allows.

        The axis with the most bytes is the last. What cannot become faster than the best so far
        is passed over; with few ways on every axis the answer is exact.
        """
        if not free:
            fitting = (_joined(way, {}) for way in heads)
            return next((shares for shares in fitting if self.fits(shares)), None)
        *others, last = sorted(free, key=self._weight)
        few = len(heads) * prod(ways(axis.units, len(self.ranks)) for axis in others) <= EVERY
        floor, costs = slowest(self._costs(last), free[last]), self._costs(last)
        best: tuple[float, tuple[Share, ...]] | None = None
        for way, chosen, seconds in self._choices(heads, others, free, few):
            if best and seconds + floor >= best[0]:
                continue
            counts = self._filled(last, costs, _joined(way, chosen))
            if counts is None:
                continue
            total = seconds + slowest(costs, counts)
            if best is None or total < best[0]:
                best = total, _joined(way, {**chosen, last: counts})
        return best[1] if best else None

    def _filled(
        self, axis: _Axis, costs: Sequence[Cost], shares: tuple[Share, ...]
    ) -> Counts | None:
        """The axis divided into what room the other shares leave, checked byte by byte."""
        caps = [self._cap(axis, i, share) for i, share in zip(self.ranks, shares, strict=True)]
        for _ in range(4):
            counts = spread(costs, axis.units, caps)
            if counts is None:
                return None
            amounts = zip(self.ranks, shares, axis.amounts(counts), strict=True)
            over = [
                self.over(i, share._replace(**{axis.field: amount})) for i, share, amount in amounts
            ]
            if max(over) <= 0:
                return counts
            if any(o > 0 and not count for o, count in zip(over, counts, strict=True)):
                return None
            caps = [
                count - 1 if o > 0 else c for c, count, o in zip(caps, counts, over, strict=True)
            ]
        return None

    def _cap(self, axis: _Axis, index: int, share: Share) -> int:
        """The most units that a rank has room for beside what it has; memory grows steadily."""

        def over(count: int) -> int:
            return self.over(index, share._replace(**{axis.field: count * axis.grain}))

        low, high = 0, axis.units
        above = over(high)
        if above <= 0:
            return high
        below = over(low)
        if below > 0:
            return 0
        while high - low > 1:
            guess = low + int((high - low) * -below / (above - below))
            guess = min(max(guess, low + 1), high - 1)
            value = over(guess)
            if value > 0:
                high, above = guess, value
            elif high - guess == 1 or -value * (axis.units - guess) < above:
                return guess
            else:
                low, below = guess, value
        return low

    def _choices(
        self,
        heads: Sequence[tuple[Heads, ...]],
        axes: Sequence[_Axis],
        free: dict[_Axis, Counts],
        few: bool,
    ) -> Iterator[tuple[tuple[Heads, ...], dict[_Axis, Counts], float]]:
        """Ways to divide all but the last axis, with their seconds: every way where those are few.

        Else by speed, by room, and between.
        """
        ranks = len(self.ranks)
        if few:
            for way in heads:
                for counts in product(*(all_ways(axis.units, ranks) for axis in axes)):
                    chosen = dict(zip(axes, counts, strict=True))
                    yield way, chosen, self._seconds(way, chosen)
            return
        rooms = [float(self.problem.machine.room(i)) for i in self.ranks]
        by_room = min(heads, key=lambda way: _distance(way, rooms))
        for tilt in TILTS:
            chosen = {
                axis: tuple(apportion(axis.units, _tilted(free[axis], rooms, tilt)))
                for axis in axes
            }
            for way in dict.fromkeys((heads[0], by_room)):
                yield way, chosen, self._seconds(way, chosen)

    def _seconds(self, way: Sequence[Heads], chosen: dict[_Axis, Counts]) -> float:
        return self._head_seconds(way) + sum(
            slowest(self._costs(axis), counts) for axis, counts in chosen.items()
        )

    def _weight(self, axis: _Axis) -> int:
        """Bytes of the whole axis in the stage."""
        i, units = self.ranks[0], axis.units * axis.grain
        share = NOTHING._replace(**{axis.field: units})
        if axis.name == "head":
            kind = self.problem.machine.kind(i)
            return self.problem.tables.edge_bytes(kind, share, *self.edges)
        return self.problem.layers_bytes(i, self.problem.whole, share)

    # -------------------------------------------------------------------------------- costs

    def _axes(self) -> list[_Axis]:
        d = self.problem.tables.spec.dimensions
        found: list[_Axis] = []
        for name, field, total, grain in (
            ("experts", "experts", self.experts, 1),
            ("feed", "ffn", d.ffn, self.problem.tables.grain),
            ("head", "vocab", d.vocab if any(self.edges) else 0, GRAIN),
        ):
            if total:
                step = grain_of(total, grain, len(self.ranks))
                found.append(_Axis(name, field, total // step, step, total % step))  # type: ignore[arg-type]
        return found

    def _costs(self, axis: _Axis) -> list[Cost]:
        key = ("axis", axis, self.ranks, self.edges, self._rooms())
        return self.problem.kept(key, lambda: [self._cost(axis, i) for i in self.ranks])

    def _rooms(self) -> tuple[int, ...]:
        """The ranks' rooms where shares hang on them even if they are large: of an embedding."""
        room = self.problem.machine.room
        return tuple(map(room, self.ranks)) if self.edges == (True, False) else ()

    def _cost(self, axis: _Axis, index: int) -> Cost:
        """Seconds for a count; an embedding alone costs none, and is divided by room."""
        if axis.name == "head" and not self.edges[1]:
            room, loads = float(self.problem.machine.room(index)), len(self.problem.loads)
            return lambda count: (1e-9 * count / room,) * loads
        ask, ranks, mix = self.problem.part_cost, self.ranks, self.problem.whole

        def cost(count: int) -> Seconds:
            if (found := known.get(count)) is None:
                share = NOTHING._replace(**{axis.field: count * axis.grain})
                found = known[count] = ask(index, ranks, axis.name, mix, share)
            return found

        known = self._known(index, axis.name, axis.grain)
        return cost

    def _known(self, index: int, *what: object) -> dict[object, Seconds]:
        """Seconds that were worked out before for such a device, also in other stages."""
        machine = self.problem.machine
        speed = machine.speed(index, self.ranks, machine.workers(index))
        return self.problem.kept(("known", replace(speed, device=""), *what), dict)

    def _head_costs(self) -> list[HeadCost]:
        key = ("heads", self.ranks)
        return self.problem.kept(key, lambda: [self._head_cost(i) for i in self.ranks])

    def _head_cost(self, index: int) -> HeadCost:
        ask, ranks, mix = self.problem.part_cost, self.ranks, self.problem.whole

        def cost(query: int, kv: int) -> Seconds:
            if (found := known.get((query, kv))) is None:
                found = known[query, kv] = ask(index, ranks, "mixer", mix, Share(query, kv))
            return found

        known = self._known(index, "mixer")
        return cost

    def _head_seconds(self, way: Sequence[Heads]) -> float:
        times = [cost(*heads) for cost, heads in zip(self._head_costs(), way, strict=True)]
        return float(sum(max(load) for load in zip(*times, strict=True)))


def whole_share(problem: Problem, speaks: bool) -> Share:
    """What a rank alone in its stage holds."""
    d = problem.tables.spec.dimensions
    return Share(d.query_heads, d.kv_heads, d.ffn, d.experts, d.vocab if speaks else 0)


def _joined(heads: Sequence[Heads], counts: dict[_Axis, Counts]) -> tuple[Share, ...]:
    """The shares of all ranks from heads and counts of units."""
    shares = [Share(query, kv) for query, kv in heads]
    for axis, units in counts.items():
        for i, amount in enumerate(axis.amounts(units)):
            shares[i] = shares[i]._replace(**{axis.field: amount})
    return tuple(shares)


def _tilted(counts: Sequence[int], rooms: Sequence[float], tilt: float) -> list[float]:
    """Weights between counts by speed and counts by room."""
    scale = sum(counts) / sum(rooms)
    return [
        (1 - tilt) * count + tilt * room * scale for count, room in zip(counts, rooms, strict=True)
    ]


def _distance(way: Sequence[Heads], rooms: Sequence[float]) -> float:
    """How far query heads are from being handed out by room."""
    scale = sum(query for query, _ in way) / sum(rooms)
    return sum(abs(query - room * scale) for (query, _), room in zip(way, rooms, strict=True))
