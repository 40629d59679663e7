"""What lies between the ranks of a plan, as latency and bandwidth.

Made from links, transport and the engine's constants; a measured sum or link wins over what is
rated. Knows nothing of models. A sum is as slow as the slowest pair that takes part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from local_tp.core import Device, Link, Transport
from local_tp.facts import Collective
from local_tp.hardware.rigs import DIRECT, LANE, STAGED
from local_tp.rates import Channel, Rates, Route

UNKNOWN_LANES = LANE * 2**3 * 8  # of a card of which no slot is known: PCI Express 3.0 x8
MEMORY_COPY = 8e9  # bytes a second between processes through the PC's memory, where not measured
# NCCL goes from card to card only below one PCI Express switch, or between no more than two cards.
ALWAYS_DIRECT = 2
NEAR = ("nvlink", "internal", "PIX", "PXB")
_ORDER: tuple[Route, ...] = ("nvlink", "direct", "host")


@dataclass(frozen=True, slots=True)
class _Way:
    """A pair's route and bytes a second on it, and through the PC's memory."""

    route: Route
    bandwidth: float
    staged: float
    near: bool = False


def sum_channel(
    devices: Sequence[Device],
    links: Sequence[Link],
    collectives: Sequence[Collective],
    transport: Transport,
    rates: Rates,
) -> Channel:
    """An all-reduce among `devices`, one rank each: by what was measured there, else by links."""
    ranks = len(devices)
    if ranks < 2:
        return Channel()
    if (measured := _measured(devices, collectives, transport)) is not None:
        return measured
    routes = [_route(a, b, links) for a, b in combinations(devices, 2)]
    route = max((found.route for found in routes), key=_ORDER.index)
    if ranks > ALWAYS_DIRECT and route == "direct" and not all(way.near for way in routes):
        route = "host"
    slowest = min(way.staged if route == "host" else way.bandwidth for way in routes)
    return rates.wire(transport, route).of(ranks, slowest)


def hand_over(
    a: Device, b: Device, links: Sequence[Link], transport: Transport, rates: Rates
) -> Channel:
    """The way of activations from a stage on `a` to the next on `b`."""
    way = _route(a, b, links)
    return rates.wire(transport, way.route).onward(way.bandwidth)


def copy_rate(device: Device) -> float:
    """Bytes a second from the PC's memory to a device, pinned."""
    if device.kind == "cpu":
        return float("inf")
    return device.facts.copy_to or DIRECT * _lanes(device)


def _measured(
    devices: Sequence[Device], collectives: Sequence[Collective], transport: Transport
) -> Channel | None:
    """A line through the smallest and the largest timed sum of these very ranks."""
    members = sorted(device.id for device in devices)
    found = sorted(
        (c.nbytes, c.seconds)
        for c in collectives
        if c.transport == transport and sorted(c.devices) == members and c.correct is not False
    )
    if not found:
        return None
    (small, least), (large, most) = found[0], found[-1]
    if large == small or most <= least:
        return Channel(least)
    bandwidth = (large - small) / (most - least)
    return Channel(max(0.0, least - small / bandwidth), bandwidth)


def _route(a: Device, b: Device, links: Sequence[Link]) -> _Way:
    """How two devices reach each other."""
    if "cpu" in (a.kind, b.kind):
        card = a if b.kind == "cpu" else b
        rate = MEMORY_COPY if card.kind == "cpu" else copy_rate(card)
        return _Way("host", rate, rate)
    link = next((link for link in links if {link.a, link.b} == {a.id, b.id}), None)
    slot = min(_lanes(a), _lanes(b))
    staged = STAGED * slot
    if link is None:
        return _Way("host", staged, staged)
    staged = link.facts.staged or staged
    if link.kind == "host" or not link.verified:
        staged = link.bandwidth or staged if link.kind == "host" else staged
        return _Way("host", staged, staged)
    route: Route = "nvlink" if link.kind == "nvlink" else "direct"
    near = route == "nvlink" or link.facts.path in NEAR
    return _Way(route, link.bandwidth or DIRECT * slot, staged, near)


def _lanes(device: Device) -> float:
    """Bytes a second one way of a card's slot, as rated."""
    pcie = device.pcie
    generation = pcie and (pcie.max_generation or pcie.generation)
    width = pcie and (pcie.width or pcie.max_width)
    if not generation or not width:
        return UNKNOWN_LANES
    return LANE * (1 << generation) * width
