"""A plan as people ask about it: what fills each device, what lies between them, what is sure.

Pure: from a machine and a plan to values and short texts, which a terminal, a page and JSON lay
out alike. Knows nothing of how a plan was found. Every figure is the plan's or the machine's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Literal

from local_tp.core import Device, DeviceKind, Link, Placement, Plan, Rig
from local_tp.hardware.devices import bridge_name, short_names
from local_tp.plan.memory import host_bytes_of_plan, memory_terms
from local_tp.plan.trust import how_sure
from local_tp.prediction import Term

Purpose = Literal["sum", "hand-over"]
FEW = 3  # so many devices or links are named one by one
APART = 2  # the last terms of `memory_terms` lie elsewhere or are part of another


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Bytes of one device. `terms` add up to `used`; `left` is what nobody takes or keeps.

    `weights`, `kv` and `workspace` are the same sum in three parts. `replicated` is a part of the
    weights. Of the processor, the memory is the PC's, and processes beside cards count too.
    """

    device: str
    label: str
    name: str
    kind: DeviceKind
    ranks: tuple[int, ...]
    total: int
    free: int
    reserve: int
    weights: int
    kv: int
    workspace: int
    replicated: int
    terms: tuple[tuple[str, int], ...]

    @property
    def used(self) -> int:
        return self.weights + self.kv + self.workspace

    @property
    def left(self) -> int:
        return self.free - self.used - self.reserve

    @property
    def others(self) -> int:
        """What was taken before: other programs, the display, the driver."""
        return max(0, self.total - self.free)


@dataclass(frozen=True, slots=True)
class Way:
    """What two ranks say to each other, and by what. `sure` is whether it was measured."""

    a: str
    b: str
    purpose: Purpose
    how: str
    bandwidth: float | None = None  # bytes a second
    latency: float | None = None
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything beside the plan itself that its readers are shown."""

    headline: str
    devices: tuple[DeviceUse, ...]
    ways: tuple[Way, ...]
    unsure: tuple[str, ...]


def explain(rig: Rig, plan: Plan) -> Explanation:
    """The explanation of a plan for this machine. `rig` has every device that the plan names."""
    return Explanation(
        headline=headline(rig, plan),
        devices=device_uses(rig, plan),
        ways=tuple(ways(rig, plan)),
        unsure=tuple(unsure(rig, plan)),
    )


def labels(rig: Rig) -> dict[str, str]:
    """The short name of each device id."""
    return {device.id: name for name, device in short_names(rig).items()}


def named(text: str, rig: Rig) -> str:
    """A sentence of the planner with short names in place of bus ids."""
    for device, label in labels(rig).items():
        text = text.replace(device, label)
    return text


def short(name: str) -> str:
    """A card's name without what every such card is called."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def headline(rig: Rig, plan: Plan) -> str:
    """The decision in one line."""
    by_id = {device.id: device for device in rig.devices}
    used = [by_id[p.device] for p in plan.placements]
    where = _counted([short(device.name) for device in dict.fromkeys(used)])
    workers = len(plan.placements)
    how = {
        "single": "one worker",
        "layer": f"{workers} workers, each with some of the layers",
        "tensor": f"{workers} workers, each with a part of every layer",
        "hybrid": f"{workers} workers in {plan.stages} stages",
    }[plan.split]
    copies = f", {plan.replicas} copies" if plan.copies else ""
    return f"{how} on {where}{copies}{_promise(plan)}"


def _promise(plan: Plan) -> str:
    """The speed that the plan was made for."""
    if plan.prediction is None:
        return ""
    if plan.goal.objective == "serve":
        together = f"{plan.prediction.aggregate:.3g} tokens/s"
        return f": {together} predicted for {plan.goal.streams} streams together"
    return f": {plan.prediction.decode:.3g} tokens/s predicted"


def device_uses(rig: Rig, plan: Plan) -> tuple[DeviceUse, ...]:
    """Every device that the plan touches, in rank order; last the PC's memory, if only beside."""
    by_id, names = {device.id: device for device in rig.devices}, labels(rig)
    held: dict[str, list[tuple[int, Placement]]] = {}
    for number, placement in enumerate(every_placement(plan)):
        held.setdefault(placement.device, []).append((number, placement))
    beside = host_bytes_of_plan(every_placement(plan))
    found = [
        _use(by_id[device], names[device], plan, ranks, beside) for device, ranks in held.items()
    ]
    if "cpu" in by_id and "cpu" not in held:
        found.append(_use(by_id["cpu"], names["cpu"], plan, [], beside))
    return tuple(found)


def every_placement(plan: Plan) -> tuple[Placement, ...]:
    """The placements of all replicas, each on its own device; a worker's number is its place."""
    return plan.placements + tuple(
        replace(placement, device=device)
        for copy in plan.copies
        for placement, device in zip(plan.placements, copy, strict=True)
    )


def ways(rig: Rig, plan: Plan) -> Iterator[Way]:
    """What lies between ranks of the first replica: sums inside stages, hand-overs between them."""
    for index in range(plan.stages):
        for a, b in combinations([p.device for p in plan.stage(index)], 2):
            yield _way(rig, plan, a, b, "sum")
    for one, following in pairwise(range(plan.stages)):
        a, b = plan.stage(one)[0].device, plan.stage(following)[0].device
        yield _way(rig, plan, a, b, "hand-over")


def unsure(rig: Rig, plan: Plan) -> Iterator[str]:
    """How far predictions can be trusted, and what this one stands on that nobody measured here."""
    names = labels(rig)
    by_id = {device.id: device for device in rig.devices}
    yield from how_sure(plan, {by_id[p.device].kind for p in plan.placements})
    rated = [
        names[device]
        for device in dict.fromkeys(p.device for p in plan.placements)
        if by_id[device].kind != "cpu" and not by_id[device].facts.matmul
    ]
    if rated:
        which = _listed(rated) if len(rated) <= FEW else f"{len(rated)} cards"
        yield f"speed of {which}: from the data sheet, not measured"
    guessed = [
        f"{names[w.a]} to {names[w.b]}"
        for w in ways(rig, plan)
        if not w.sure and "cpu" not in (w.a, w.b)
    ]
    if guessed:
        which = f"links {_listed(guessed)}"
        if len(guessed) > FEW:
            which = f"{len(guessed)} links between cards"
        yield f"{which}: from their kind and width, not measured"


def largest_terms(terms: Sequence[Term], most: int = 4) -> tuple[Term, ...]:
    """The terms of a step that take longest, those of one name added up over devices."""
    sums: dict[str, Term] = {}
    for term in terms:
        known = sums.get(term.name, Term(term.name, 0.0))
        sums[term.name] = Term(term.name, known.seconds + term.seconds)
    ordered = sorted(sums.values(), key=lambda term: -term.seconds)
    return tuple(term for term in ordered[:most] if term.seconds > 0)


def _use(
    device: Device, label: str, plan: Plan, ranks: Sequence[tuple[int, Placement]], beside: int
) -> DeviceUse:
    memories = [placement.memory for _, placement in ranks]
    rows = [memory_terms(memory)[:-APART] for memory in memories]
    names = list(dict.fromkeys(name for row in rows for name, _ in row))
    terms = [(name, sum(dict(row).get(name, 0) for row in rows)) for name in names]
    workspace = sum(memory.workspace for memory in memories)
    if device.kind == "cpu":
        terms.append(("other processes of local-tp", beside))
        workspace += beside
    return DeviceUse(
        device=device.id,
        label=label,
        name=short(device.name),
        kind=device.kind,
        ranks=tuple(number for number, _ in ranks),
        total=device.total,
        free=device.free,
        reserve=plan.goal.reserve.get(device.id, device.reserve),
        weights=sum(memory.weights for memory in memories),
        kv=sum(memory.kv + memory.state for memory in memories),
        workspace=workspace,
        replicated=sum(memory.replicated for memory in memories),
        terms=tuple((name, nbytes) for name, nbytes in terms if nbytes),
    )


def _way(rig: Rig, plan: Plan, a: str, b: str, purpose: Purpose) -> Way:
    if a == b or "cpu" in (a, b):
        how = "shared memory" if plan.transport == "shared-memory" else "the PC's memory"
        return Way(a, b, purpose, how)
    link = next((link for link in rig.links if {link.a, link.b} == {a, b}), None)
    if link is None:
        return Way(a, b, purpose, "the PC's memory")
    return Way(a, b, purpose, _how(link, rig), link.bandwidth, link.latency, link.measured)


def _how(link: Link, rig: Rig) -> str:
    return {
        "nvlink": bridge_name(link, rig),
        "p2p": "PCIe, peer to peer",
        "host": "the PC's memory",
    }[link.kind]


def _counted(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return _listed([f"{n} × {name}" if n > 1 else name for name, n in counts.items()])


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
