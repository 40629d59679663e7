"""The constants of the time model, as values: what kernels and transports reach of what is rated.

Knows nothing of files or devices: `hardware.rates` reads them from `presets/rates.toml`, where
each has its source, and measured figures of a machine replace rated ones before they come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from local_tp.core import DeviceKind

Route = Literal["nvlink", "direct", "host"]  # how data goes from one device to another
FEW_BLOCK = 4  # rows of a product of few tokens that share a conversion of the weights


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of a device's rated figures: of memory bandwidth, and of dense 16-bit operations.

    `few` is the share of 32-bit operations where a step has fewer tokens than `Rates.many`. Such a
    product converts weights once for every block of `FEW_BLOCK` rows, which takes as long as
    `first` further rows. `unpack` is the share of 32-bit operations, two a number, at which
    weights are unpacked before a product of many tokens.
    """

    memory: float
    compute: float
    few: float | None = None
    first: float = 0.0
    unpack: float | None = None


@dataclass(frozen=True, slots=True)
class Attending:
    """What attention reaches where it is not as fast as products: shares of the memory bandwidth
    for keys and values, and of 32-bit operations.

    Its kernel computes whole squares of a chunk, also what the mask hides.
    """

    memory: float
    compute: float


@dataclass(frozen=True, slots=True)
class Channel:
    """What ranks have between them: a message of n bytes takes latency + n / bandwidth seconds.

    Its first `small` bytes pass at `slow` bytes a second.
    """

    latency: float = 0.0
    bandwidth: float = float("inf")
    small: float = 0.0
    slow: float = float("inf")

    def seconds(self, nbytes: float) -> float:
        first = min(nbytes, self.small)
        return self.latency + first / self.slow + (nbytes - first) / self.bandwidth


@dataclass(frozen=True, slots=True)
class Wire:
    """A sum among ranks over one transport and route, and what a hand-over takes.

    Among n ranks a sum takes `latency` + (n - 2) `rank` seconds beside the bytes, which pass at
    `share` of the slowest link's bandwidth; `most` bounds it where no link does. The first
    `small` bytes pass at `slow` bytes a second. `crowded` says that all ranks share the way for
    the others, as they do where everything goes through the PC's memory.
    """

    latency: float
    rank: float = 0.0
    share: float = 1.0
    most: float = float("inf")
    small: float = 0.0
    slow: float = float("inf")
    crowded: bool = False

    def of(self, ranks: int, link: float) -> Channel:
        """The channel of a sum over links of that many bytes a second.

        A ring passes every byte 2 (n - 1) / n times over each link.
        """
        crowd = ranks / 2 if self.crowded else 1.0
        latency = self.latency + (ranks - 2) * self.rank
        return self._channel(latency, link, 2 * (ranks - 1) / ranks, crowd)

    def onward(self, link: float) -> Channel:
        """The channel of a hand-over from one rank to another."""
        return self._channel(self.latency, link, 1.0, 1.0)

    def _channel(self, latency: float, link: float, times: float, crowd: float) -> Channel:
        rate = min(link * self.share, self.most)
        if not self.small:
            return Channel(latency, rate / (times * crowd))
        return Channel(latency, rate / (times * crowd), self.small, min(self.slow, rate) / times)


@dataclass(frozen=True, slots=True)
class Rates:
    """One engine's constants.

    Keys of `efficiency` are "kind form" as in "cpu int4", "kind class" where `classes` names the
    form's class, or "kind other"; those of `wires` are "transport route". `pipelined` chunks of a
    prompt follow each other through the stages: this program sends one at a time.
    """

    engine: str
    efficiency: Mapping[str, Efficiency]
    launch: Mapping[DeviceKind, float]  # seconds to start one operation
    step: float  # seconds a step costs outside every device
    pipelined: int = 1
    pipelined_experts: int = 1  # the same of models with routed experts
    classes: Mapping[str, str] = field(default_factory=dict)
    wires: Mapping[str, Wire] = field(default_factory=dict)
    stage: float = 0.0  # seconds each further stage adds to a step
    many: int = 32  # tokens from which products are of matrices rather than of vectors
    element: int = 4  # bytes of an element that ranks exchange
    ramp: float = 0.0  # rows of a product at which a card reaches half of its rate
    scores: float = (
        0.0  # bytes that an operation of attention writes and reads where it is not fused
    )
    exchanges: float = 1.0  # sums for each part of a layer that ranks share
    joule: Mapping[str, float] = field(default_factory=dict)  # operations a joule, by capability
    attention: Mapping[DeviceKind, Attending] = field(default_factory=dict)
    asleep: float = 0.0  # seconds a sum takes longer among more ranks than the processor has cores
    fused: bool = True  # operations between products write and read no memory of their own

    def of(self, kind: DeviceKind, held: str) -> Efficiency:
        """The efficiency of kernels for a form; the general one where the form has none."""
        for name in (held, self.class_of(held), "other"):
            if (found := self.efficiency.get(f"{kind} {name}")) is not None:
                return found
        raise KeyError(f"{self.engine} has no constants for {kind}")

    def class_of(self, held: str) -> str:
        """The class of a form, which what stands behind a hyphen in its name does not change."""
        return self.classes.get(held) or self.classes.get(held.split("-")[0], "other")

    def wire(self, transport: str, route: Route) -> Wire:
        """What a transport reaches on a route, or on the host's where it knows no other."""
        found = self.wires.get(f"{transport} {route}") or self.wires.get(f"{transport} host")
        return found or Wire(0.0)
