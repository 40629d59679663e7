"""A question with everything that belongs to it, and its answer held to the exact byte.

The search counts memory by tables, which round a little; here every answer is counted again by
`plan.memory`, and the search is told by how much it was wrong, until both agree. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from local_tp.core import Device, Goal, Link, ModelSpec, Placement, Split, Transport
from local_tp.errors import PlanError
from local_tp.facts import Collective
from local_tp.plan.costs import Tables, tables_of
from local_tp.plan.memory import with_memory
from local_tp.plan.search.machine import Machine
from local_tp.plan.search.objective import weighted_loads
from local_tp.plan.search.plan import placements_of
from local_tp.plan.search.problem import Problem
from local_tp.plan.search.search import Found, any_fit, roomy, search
from local_tp.plan.search.solve import Solution, Structure, solve
from local_tp.plan.search.structures import split_of
from local_tp.plan.search.ways import choose_transport, ways_of
from local_tp.rates import Rates

PAGE_SIZE = 32
HYBRID = 3  # devices of a hybrid split, at least
AGREEMENTS = 5  # times that the search is told how far off it was
MIB = 1 << 20
PRECISION = 1 << 14  # to one part of so many, what is lacking is worked out


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known beyond the machine: constants, and what was measured of engine and transport.

    `ratios` are measured to predicted memory by device id; `threads` those of a CPU worker;
    `transport` is what was found to work between cards, where somebody looked.
    """

    rates: Rates
    ratios: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None
    transport: Transport | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A model on devices, with nothing left open but what `structures` leaves.

    Without `structures` every subset and grouping of `devices` may be used. `made` are tables,
    which questions that come of one another share.
    """

    spec: ModelSpec
    devices: tuple[Device, ...]
    goal: Goal
    knowledge: Knowledge
    context: int
    links: tuple[Link, ...] = ()
    collectives: tuple[Collective, ...] = ()
    structures: tuple[Structure, ...] = ()
    made: list[Tables] = field(default_factory=list, compare=False, repr=False)

    @property
    def pages(self) -> int:
        return -(-self.context // PAGE_SIZE) * self.goal.streams

    def free(self, device: Device) -> int:
        """Bytes there for ranks: free less what is kept back, by default or by a person."""
        return device.free - self.goal.reserve.get(device.id, device.reserve)

    @property
    def tables(self) -> Tables:
        """The tables of the model for this goal, which say the same for every split and reserve."""
        goal = replace(self.goal, split=None, reserve={}, offload="none")
        for tables in self.made:
            if tables.goal == goal and tables.spec is self.spec:
                return tables
        self.made.append(tables_of(self.spec, goal))
        return self.made[-1]

    def problem(self) -> Problem:
        """The question for the search."""
        rooms = tuple(self.free(device) for device in self.devices)
        known = self.knowledge
        ways = ways_of(
            self.spec, self.goal, known.rates, self.links, self.collectives, known.transport
        )
        ratios = tuple(self.knowledge.ratios.get(device.id, 1.0) for device in self.devices)
        timed = bool(self.collectives)
        machine = Machine(self.devices, rooms, ways, self.links, ratios, timed)
        return Problem(
            tables=self.tables,
            machine=machine,
            rates=self.knowledge.rates,
            loads=weighted_loads(self.goal, self.context, self.goal.streams),
            tokens=self.pages * PAGE_SIZE,
        )

    def search(self, problem: Problem) -> Found | None:
        """The best of each split; among the structures, where they are given."""
        if not self.structures:
            members = range(len(self.devices))
            return search(problem, members, self.goal.split, self.goal.offload)
        best: dict[Split, Solution] = {}
        for structure in self.structures:
            solution, name = solve(problem, structure), split_of(structure)
            if solution and (name not in best or solution.seconds < best[name].seconds):
                best[name] = solution
        return Found(tuple(sorted(best.values(), key=lambda s: s.seconds))) if best else None

    def fits(self) -> bool:
        """Whether one of the roomiest structures has room, without leaving the cards."""
        problem = self.problem()
        if self.structures:
            found = self.search(problem)
            solution = found.best if found else None
        else:
            solution = any_fit(problem, self.members, self.goal.split)
        if solution is None:
            return False
        return not short_of(self, with_memories(self, placements_of(problem, solution)))

    @property
    def members(self) -> list[int]:
        """The cards, or without any the processor."""
        cards = [i for i, device in enumerate(self.devices) if device.kind != "cpu"]
        return cards or list(range(len(self.devices)))


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, with memory; `short` are bytes that a device lacks, by its id."""

    problem: Problem
    found: Found
    placements: tuple[Placement, ...]
    short: Mapping[str, int]


def answer(ask: Ask) -> Answer:
    """The best solution that fits to the byte, or the one that lacks least (`short` says it)."""
    asked = ask.problem()
    rooms, correction = asked.machine.rooms, [0] * len(ask.devices)
    for _ in range(AGREEMENTS):
        problem = asked.with_rooms(map(sum, zip(rooms, correction, strict=True)))
        found = ask.search(problem) or _nearest(ask, problem)
        placements = with_memories(ask, placements_of(problem, found.best))
        given = Answer(problem, found, placements, short_of(ask, placements))
        before = correction
        correction = _errors(problem, found.best, placements, before)
        if not given.short or correction == before:
            break
    return given


def _errors(
    problem: Problem, solution: Solution, placements: Sequence[Placement], known: Sequence[int]
) -> list[int]:
    """By how many bytes the search counts the ranks of each device too large."""
    errors = list(known)
    counted = dict.fromkeys((i for ranks in solution.structure for i in ranks), 0)
    by_rank = iter(placements)
    for at, ranks in enumerate(solution.structure):
        mix = problem.tables.counts(solution.spans[at])
        edges = at == 0, at == len(solution.structure) - 1
        for index, share in zip(ranks, solution.shares[at], strict=True):
            need = problem.beside(index, share, edges, len(ranks), solution.transport)
            need += problem.layers_bytes(index, mix, share)
            counted[index] += need - next(by_rank).memory.total
    for index, error in counted.items():
        if not any(span.size for span in solution.streamed):
            errors[index] = error
    return errors


def _nearest(ask: Ask, problem: Problem) -> Found:
    """What would fit with the least more room on every device, of the roomiest structures."""
    structures = list(ask.structures) or roomy(problem, ask.members, ask.goal.split)
    best: Solution | None = None
    least = 1 << 50
    for structure in structures:
        solution = solve(_roomier(problem, least - 1), structure)
        if solution is None:
            continue
        low, high = -1, least - 1  # does not fit, fits
        guess = MIB
        while high - low > 1 + high // PRECISION:
            middle = guess if low < guess < high else (low + high) // 2
            guess *= 4
            tried = solve(_roomier(problem, middle), structure)
            if tried is None:
                low = middle
            else:
                high, solution, guess = middle, tried, 0
        best, least = solution, high
    if best is None:
        raise PlanError(_no_structure(ask))
    return Found((best,))


def _roomier(problem: Problem, more: int) -> Problem:
    """The same question with so many bytes more on every device."""
    return problem.with_rooms(room + more for room in problem.machine.rooms)


def _no_structure(ask: Ask) -> str:
    named, layers = len(ask.members), ask.spec.dimensions.layers
    if ask.goal.split == "layer" and named > layers:
        return f"{named} stages need at least {named} layers, the model has {layers}"
    if ask.goal.split == "hybrid" and named < HYBRID:
        return f"split hybrid needs {HYBRID} cards, {named} here: use --split tensor or layer"
    return (
        f"split {ask.goal.split} is not possible on {named} "
        f"{'device' if named == 1 else 'devices'} of this kind: use --split auto"
    )


def with_memories(ask: Ask, placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """The placements with their memory predicted."""
    devices = {device.id: device for device in ask.devices}
    transport = transport_of(ask, [devices[p.device] for p in placements])
    filled = []
    for p in placements:
        device = devices[p.device]
        ranks = sum(other.stage == p.stage for other in placements)
        filled.append(
            with_memory(
                ask.spec,
                p,
                ask.goal,
                ask.pages * PAGE_SIZE,
                device.kind,
                ranks,
                transport,
                ask.knowledge.ratios.get(device.id, 1.0),
                device.context,
            )
        )
    return tuple(filled)


def transport_of(ask: Ask, devices: Sequence[Device]) -> Transport:
    """What ranks on these devices use between them: what was verified, else what is safe."""
    return choose_transport(devices, ask.knowledge.transport)


def short_of(ask: Ask, placements: Sequence[Placement]) -> dict[str, int]:
    """Bytes by which ranks exceed what their devices have."""
    need: defaultdict[str, int] = defaultdict(int)
    for p in placements:
        need[p.device] += p.memory.total
    devices = {device.id: device for device in ask.devices}
    return {
        id: total - ask.free(devices[id])
        for id, total in need.items()
        if total > ask.free(devices[id])
    }
