"""What the search asks of a machine: each device's speed and room, and what lies between devices.

Answers are kept, since thousands of candidates ask the same. Devices are counted from 0 in the
order given; one that is named several times has several ranks. Knows nothing of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from local_tp.core import Device, DeviceKind, Link, Transport
from local_tp.plan.memory import CARD_CONTEXT, PROCESS
from local_tp.plan.time import Speed
from local_tp.rates import Channel

T = TypeVar("T")
Ranks = tuple[int, ...]  # indices of devices, one a rank
UNLIMITED = 1 << 62
PATHS = tuple(
    frozenset(paths)
    for paths in (
        {"nvlink"},
        {"nvlink", "internal", "PIX"},
        {"nvlink", "internal", "PIX", "PXB"},
        {"nvlink", "internal", "PIX", "PXB", "PHB"},
        {"nvlink", "internal", "PIX", "PXB", "PHB", "NODE"},
    )
)  # each level joins what the one before it does, and more


@dataclass(frozen=True, slots=True)
class Ways:
    """How devices are asked: a rank's speed, the channel of a sum, that of a hand-over."""

    speed: Callable[[Device, int, int], Speed]  # of one of so many ranks of a stage, of all stages
    total: Callable[[Sequence[Device], Transport], Channel]
    onward: Callable[[Sequence[Device], Sequence[Device], Transport], Channel]
    transport: Callable[[Sequence[Device]], Transport]


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices that a plan may use; `rooms` are bytes for ranks: free less what is kept back.

    `known` may be shared by machines that differ in their rooms alone.
    """

    devices: tuple[Device, ...]
    rooms: tuple[int, ...]
    ways: Ways
    links: tuple[Link, ...] = ()
    ratios: tuple[float, ...] = ()  # of each device: measured memory to predicted
    timed: bool = False  # whether sums among some of them were measured
    known: dict[tuple[object, ...], object] = field(default_factory=dict)

    def kind(self, index: int) -> DeviceKind:
        return self.devices[index].kind

    def shared(self, index: int) -> bool:
        """Whether several ranks may lie there, so that its room is theirs together."""
        return self.workers(index) > 1

    def room(self, index: int) -> int:
        """Bytes for one rank; of a device with several, the whole is checked at the end."""
        return UNLIMITED if self.shared(index) else self.rooms[index]

    def context(self, index: int) -> int:
        """Bytes that a process takes there before any data of its own."""
        device = self.devices[index]
        return device.context or (PROCESS if device.kind == "cpu" else CARD_CONTEXT)

    def ratio(self, index: int) -> float:
        """What was measured there of predicted memory; where it was less, it is not relied on."""
        return max(1.0, self.ratios[index]) if self.ratios else 1.0

    def likeness(self, index: int) -> object:
        """Equal for devices that cost alike and have as much room."""

        def ask() -> object:
            speed = replace(self.speed(index, (index,)), device="")
            return speed, self.rooms[index], self.context(index), self.ratio(index)

        return self._kept(("likeness", index, self.rooms[index]), ask)

    def levels(self, cards: Sequence[int]) -> list[list[list[int]]]:
        """Groups of cards by what lies between them: NVLink, the same switch, the same processor.

        Only levels at which some group has several cards and not all are in one.
        """
        found: list[list[list[int]]] = []
        for paths in PATHS:
            groups = self._connected(cards, paths)
            if 1 < len(groups) < len(cards) and groups not in found:
                found.append(groups)
        return found

    def _connected(self, cards: Sequence[int], paths: frozenset[str]) -> list[list[int]]:
        groups = [[i] for i in cards]
        for link in self.links:
            path = "nvlink" if link.kind == "nvlink" else link.facts.path
            if path not in paths:
                continue
            ends = [g for g in groups if {self.devices[i].id for i in g} & {link.a, link.b}]
            if len(ends) == 2 and self.kind(ends[0][0]) == self.kind(ends[1][0]):
                groups = [g for g in groups if g not in ends] + [sorted(ends[0] + ends[1])]
        return sorted(groups)

    def equal_ways(self, members: Sequence[int]) -> bool:
        """Whether it makes no difference which of these devices talk to each other."""
        pairs = [(a, b) for a in members for b in members if a != b]
        if self.timed or len({self.kind(i) for i in members}) > 1:
            return len(members) < 2
        between = {
            (self.onward((a,), (b,), by), self.total((a, b), by))
            for a, b in pairs
            for by in (self.transport((a, b)),)
        }
        return len(between) < 2

    def speed(self, index: int, ranks: Ranks, everywhere: int = 0) -> Speed:
        """The speed of one of a stage's ranks, with so many ranks there in all stages."""
        device, at_once = self.devices[index], 1
        if self.shared(index):
            at_once = sum(self.devices[i].id == device.id for i in ranks)
        total = max(at_once, everywhere)
        key = ("speed", index, at_once, total)
        return self._kept(key, lambda: self.ways.speed(device, at_once, total))

    def workers(self, index: int) -> int:
        """How many ranks lie on a device in all stages, where it is named so often."""

        def ask() -> int:
            return sum(d.id == self.devices[index].id for d in self.devices)

        return self._kept(("workers", index), ask)

    def total(self, ranks: Ranks, transport: Transport) -> Channel:
        key = ("total", tuple(sorted(ranks)), transport)
        return self._kept(key, lambda: self.ways.total([self.devices[i] for i in ranks], transport))

    def onward(self, ranks: Ranks, following: Ranks, transport: Transport) -> Channel:
        """The way from a stage to the next, from its first rank to that one's."""

        def ask() -> Channel:
            a, b = ([self.devices[i] for i in stage] for stage in (ranks, following))
            return self.ways.onward(a, b, transport)

        return self._kept(("onward", ranks, following, transport), ask)

    def transport(self, ranks: Sequence[int]) -> Transport:
        key = ("transport", tuple(sorted(ranks)))
        return self._kept(key, lambda: self.ways.transport([self.devices[i] for i in ranks]))

    def _kept(self, key: tuple[object, ...], ask: Callable[[], T]) -> T:
        try:
            return self.known[key]  # type: ignore[return-value]
        except KeyError:
            value = self.known[key] = ask()
            return value
