"""Fills the longest context of every stream, and lays what was measured beside what was predicted.

The steps are the widest there are: whole chunks, pages as scattered as they can lie, as many scored
rows as a step may have, and all streams in one decode step. Knows nothing of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from local_tp.core import Device, Plan, Rig, Row, Sampling, Step
from local_tp.hardware.memory_ratios import VERSION, Conditions, Kept, driver_of, worst
from local_tp.plan.activations import DECODE_ROWS, SCORED_ROWS
from local_tp.prediction import Memory
from local_tp.runtime.crew import Crew
from local_tp.runtime.wire import Held, Measured

MIB = 1 << 20
SAMPLED = Sampling(temperature=1.0, top_p=0.95, seed=1, logprobs=20)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank in bytes: predicted and measured after loading, and at most, with a full cache."""

    rank: int
    device: str
    predicted_loaded: int
    loaded: int
    predicted: int
    peak: int
    ratio: float  # measured to predicted of what is neither weights nor cache


def fill(
    crew: Crew, plan: Plan, vocab: int, report: Callable[[int, int], None] = lambda done, all: None
) -> tuple[RankMemory, ...]:
    """Write every place of the cache, and say what each rank took.

    `report` gets tokens done and in all. Raises `WorkerError`. Nobody else may use the crew.
    """
    total = plan.context * plan.goal.streams
    done = 0
    for step in filling_steps(plan, vocab):
        crew.send(step)
        crew.receive()
        done += sum(len(row.tokens) for row in step.rows)
        report(done, total)
    return compared(plan, crew.measured, crew.measure())


def compared(
    plan: Plan, measured: Mapping[int, Measured], held: Mapping[int, Held]
) -> tuple[RankMemory, ...]:
    """Each rank's prediction beside what it held after loading and held at most."""
    return tuple(
        RankMemory(
            rank=p.rank,
            device=p.device,
            predicted_loaded=loaded_bytes(p.memory, p.device == "cpu"),
            loaded=measured[p.rank].held.now,
            predicted=p.memory.total,
            peak=held[p.rank].peak,
            ratio=workspace_ratio(p.memory, held[p.rank].peak),
        )
        for p in plan.placements
    )


def kept_figures(
    rig: Rig, devices: Sequence[Device], plan: Plan, ranks: Sequence[RankMemory]
) -> tuple[Kept, ...]:
    """What `MemoryRatios` keeps of a filled plan; `devices` by rank."""
    goal = plan.goal
    conditions = Conditions(
        model=plan.model,
        split=plan.split,
        ranks=len(plan.placements),
        context=plan.context,
        streams=goal.streams,
        chunk=goal.chunk,
        dtype=goal.dtype,
        kv_format=goal.kv_format or "float32",
    )
    return worst(
        Kept(
            device=device.name,
            driver=driver_of(rig, device.kind),
            version=VERSION,
            predicted=rank.predicted,
            measured=rank.peak,
            ratio=rank.ratio,
            conditions=conditions,
        )
        for device, rank in zip(devices, ranks, strict=True)
    )


def loaded_bytes(memory: Memory, processor: bool) -> int:
    """Bytes that should be held after loading, before any step.

    On the processor keys and values take no room before they are written.
    """
    held = memory.weights + memory.context
    return held if processor else held + memory.kv + memory.state


def workspace_ratio(memory: Memory, peak: int) -> float:
    """Measured to predicted, of what is neither weights nor remembered text."""
    exact = memory.weights + memory.kv + memory.state
    return max(0, peak - exact) / memory.workspace if memory.workspace else 1.0


def memory_table(ranks: tuple[RankMemory, ...]) -> str:
    """Lines for a person, in MiB."""
    lines = ["rank device        after loading  predicted   full context  predicted   difference"]
    for r in ranks:
        lines.append(
            f"{r.rank:<4} {r.device:<12} {r.loaded / MIB:14,.0f} {r.predicted_loaded / MIB:10,.0f}"
            f" {r.peak / MIB:14,.0f} {r.predicted / MIB:10,.0f}"
            f" {(r.predicted - r.peak) / MIB:+8,.0f} ({r.predicted / r.peak - 1:+.1%})"
        )
    return "\n".join(lines)


def filling_steps(plan: Plan, vocab: int) -> Iterator[Step]:
    """Steps after which every place of the cache was written, in the order they must run."""
    number = 0
    scored = min(SCORED_ROWS, plan.goal.chunk, plan.context - 1)
    before = plan.context - 1 - scored
    for stream in range(plan.goal.streams):
        pages = pages_of(plan, stream)
        for start in range(0, before, plan.goal.chunk):
            number += 1
            tokens = _tokens(start, min(start + plan.goal.chunk, before), vocab)
            yield Step(number, (Row(stream, tokens, start, pages, stream=stream),))
        if scored:
            number += 1
            tokens = _tokens(before, before + scored, vocab)
            row = Row(stream, tokens, before, pages, targets=tokens, score=5, stream=stream)
            yield Step(number, (row,))
    last = plan.context - 1
    for first in range(0, plan.goal.streams, DECODE_ROWS):
        number += 1
        streams = range(first, min(first + DECODE_ROWS, plan.goal.streams))
        token = _tokens(last, last + 1, vocab)
        rows = (Row(s, token, last, pages_of(plan, s), sampling=SAMPLED, stream=s) for s in streams)
        yield Step(number, tuple(rows))


def pages_of(plan: Plan, stream: int) -> tuple[int, ...]:
    """Every page of a stream; its neighbours are those of the other streams."""
    return tuple(range(stream, plan.pages, plan.goal.streams))


def _tokens(start: int, stop: int, vocab: int) -> tuple[int, ...]:
    return tuple(at % vocab for at in range(start, stop))
