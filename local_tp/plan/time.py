"""Seconds of a step, from work, speeds and channels.

For each part of each stage the slowest rank counts, and a rank takes the longer of reading and
computing, plus the starting of its operations. Pure arithmetic; every constant comes in as an
argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from local_tp.core import DeviceKind
from local_tp.plan.work import Part, Work, expert_bytes
from local_tp.prediction import Prediction, Term
from local_tp.rates import FEW_BLOCK, Attending, Channel, Efficiency, Rates


@dataclass(frozen=True, slots=True)
class Speed:
    """What a device does for one rank: its figures, shared out among the ranks that run there.

    `flops` is of the type that multiplies fastest; the figures of types are 0 where not measured.
    """

    device: str
    kind: DeviceKind
    bandwidth: float  # bytes a second
    flops: float  # dense operations a second
    copy: float = float("inf")  # bytes a second from the PC's memory
    float32: float = 0.0
    bfloat16: float = 0.0

    @property
    def vector(self) -> float:
        """Operations a second of kernels that compute in 32 bits."""
        return self.float32 or self.flops

    def of(self, held: str) -> float:
        """Operations a second of large products; packed weights are unpacked to the fastest."""
        if held == "float32":
            return self.vector
        return (self.bfloat16 if held == "bfloat16" else 0.0) or self.flops


@dataclass(frozen=True, slots=True)
class Rank:
    work: Work
    speed: Speed


@dataclass(frozen=True, slots=True)
class Stage:
    """Ranks that share layers. `total` sums among them, `onward` hands over to the next stage."""

    ranks: tuple[Rank, ...]
    total: Channel
    onward: Channel


@dataclass(frozen=True, slots=True)
class Load:
    """A step: `rows` texts that grow by `tokens` each, `context` tokens long on average."""

    rows: int = 1
    tokens: int = 1
    context: int = 0
    sampled: int = 1


def step_terms(
    stages: Sequence[Stage], hidden: int, rates: Rates, load: Load
) -> tuple[tuple[Term, ...], ...]:
    """What each stage's time goes to, stage by stage."""
    return tuple(_stage_terms(stage, hidden, rates, load) for stage in stages)


def predict(
    stages: Sequence[Stage],
    hidden: int,
    rates: Rates,
    context: int,
    chunk: int,
    streams: int,
    prompt: int = 0,
) -> Prediction:
    """Speeds of one replica: decode with `context` tokens behind it, prefill in chunks.

    `prompt` is the length of the prompt whose prefill is meant; 0 stands for one chunk. What it
    has behind it on average is half of it. The first token is that of one chunk.
    """
    outside = _outside(stages, rates)
    prompt = max(prompt, chunk)
    one = step_terms(stages, hidden, rates, Load(context=context))
    first = step_terms(stages, hidden, rates, Load(tokens=chunk, context=chunk // 2))
    full = step_terms(stages, hidden, rates, Load(tokens=chunk, context=prompt // 2))
    many = step_terms(stages, hidden, rates, Load(rows=streams, context=context, sampled=streams))
    worst = max((term for stage in one for term in stage), key=lambda term: term.seconds)
    return Prediction(
        prefill=prompt / _in_flight(stages, [_seconds(s) for s in full], rates, prompt / chunk),
        decode=1.0 / (_total(one) + outside),
        first_token=_total(first) + outside,
        aggregate=streams / (_total(many) + outside),
        bound=f"{worst.name} on {worst.device}" if worst.device else worst.name,
        decode_terms=tuple(term for stage in one for term in stage),
        prefill_terms=tuple(term for stage in first for term in stage),
    )


def step_seconds(stages: Sequence[Stage], hidden: int, rates: Rates, load: Load) -> float:
    """Seconds of one step through all stages, and of what is outside them."""
    return _total(step_terms(stages, hidden, rates, load)) + _outside(stages, rates)


def prompt_seconds(
    stages: Sequence[Stage], hidden: int, rates: Rates, prompt: int, chunk: int, behind: int = 0
) -> float:
    """Seconds until a prompt is read in chunks, with `behind` tokens before it."""
    load = Load(tokens=chunk, context=behind + prompt // 2)
    terms = step_terms(stages, hidden, rates, load)
    return _in_flight(stages, [_seconds(stage) for stage in terms], rates, prompt / chunk)


def part_seconds(part: Part, speed: Speed, rates: Rates, load: Load) -> dict[str, float]:
    """One rank's seconds for a part, by resource.

    Of reading and computing the longer counts, apart for products and for attention where that has
    constants of its own. Weights that many tokens share are unpacked first, and what is streamed is
    copied while the rest runs, so only what it takes longer counts.
    """
    efficiency, attending = rates.of(speed.kind, part.held), rates.attention.get(speed.kind)
    tokens = load.sampled if part.name == "head" else load.rows * load.tokens
    many = load.rows * load.tokens >= rates.many and part.name != "head"
    read = expert_bytes(part, tokens)
    nbytes = part.weights + read
    computing = _multiplying(part, speed, efficiency, rates, tokens, many)
    if attending is None:
        nbytes += load.rows * part.context_bytes(load.context)
        computing += _scoring(part, speed, efficiency, rates, tokens, load.context, many)
    seconds = _longer({}, nbytes / (speed.bandwidth * efficiency.memory), computing)
    if attending is not None and (part.kv or part.sliding or part.kv_fixed):
        _longer(seconds, *_attending(part, speed, attending, load))
    if part.between and not rates.fused:
        _longer(seconds, tokens * part.between / speed.bandwidth, 0.0)
    if many and efficiency.unpack is not None:
        numbers = part.operations * (read / part.chosen if part.chosen else 1.0)
        seconds["unpacking weights"] = numbers / (speed.vector * efficiency.unpack)
    seconds["operation launches"] = part.launches * rates.launch[speed.kind]
    if part.streamed:
        copying = part.streamed / speed.copy - sum(seconds.values())
        seconds["copying weights"] = max(0.0, copying)
    return seconds


def _longer(seconds: dict[str, float], reading: float, computing: float) -> dict[str, float]:
    """`seconds` with the longer of the two added to its resource."""
    name = "memory bandwidth" if reading >= computing else "arithmetic"
    seconds[name] = seconds.get(name, 0.0) + max(reading, computing)
    return seconds


def _multiplying(
    part: Part, speed: Speed, efficiency: Efficiency, rates: Rates, tokens: int, many: bool
) -> float:
    """Seconds of products. A card takes for one of few rows as long as for `ramp` more; of experts,
    each that is chosen at all has a product of its own."""
    if many:
        padded = 0.0
        if speed.kind != "cpu":
            read = expert_bytes(part, tokens) / part.chosen if part.chosen else 1.0
            padded = rates.ramp * part.operations * read
        operations = tokens * part.operations + padded
        return operations / (speed.of(part.held) * efficiency.compute)
    if efficiency.few is None:
        return tokens * part.operations / (speed.of(part.held) * efficiency.compute)
    rows = tokens + efficiency.first * math.ceil(tokens / FEW_BLOCK)
    return rows * part.operations / (speed.vector * efficiency.few)


def _scoring(
    part: Part,
    speed: Speed,
    efficiency: Efficiency,
    rates: Rates,
    tokens: int,
    context: int,
    many: bool,
) -> float:
    """Seconds of attention that computes as fast as products, and of scores that are written."""
    operations = tokens * part.context_operations(context)
    share = efficiency.compute if many else efficiency.few or efficiency.compute
    return operations / (speed.flops * share) + operations * rates.scores / speed.bandwidth


def _attending(part: Part, speed: Speed, rate: Attending, load: Load) -> tuple[float, float]:
    """Seconds of attention to read keys and values, and to compute whole squares of a chunk."""
    tokens, context = load.rows * load.tokens, load.context + (load.tokens - 1) / 2
    reading = load.rows * part.context_bytes(load.context) / (speed.bandwidth * rate.memory)
    return reading, tokens * part.context_operations(context) / (speed.vector * rate.compute)


def _stage_terms(stage: Stage, hidden: int, rates: Rates, load: Load) -> tuple[Term, ...]:
    sums: dict[tuple[str, str], float] = {}
    exchanges = 0.0
    for parts in zip(*(rank.work for rank in stage.ranks), strict=True):
        times = [
            part_seconds(part, rank.speed, rates, load)
            for part, rank in zip(parts, stage.ranks, strict=True)
        ]
        slowest = max(range(len(times)), key=lambda i: sum(times[i].values()))
        device = stage.ranks[slowest].speed.device
        for name, seconds in times[slowest].items():
            sums[name, device] = sums.get((name, device), 0.0) + seconds
        exchanges += parts[0].layers if parts[0].name != "head" else 0
    terms = [Term(name, seconds, device) for (name, device), seconds in sums.items()]
    nbytes = float(load.rows * load.tokens * hidden * rates.element)
    if len(stage.ranks) > 1:
        seconds = rates.exchanges * exchanges * stage.total.seconds(nbytes)
        terms.append(Term("exchange between ranks", seconds))
    if stage.onward != Channel():
        terms.append(Term("hand-over between stages", stage.onward.seconds(nbytes)))
    return tuple(terms)


def _in_flight(
    stages: Sequence[Stage], seconds: Sequence[float], rates: Rates, chunks: float
) -> float:
    """Seconds of a prompt: chunks one after another, or in batches of several.

    The chunks of a batch follow each other through the stages, as fast as the slowest one lets
    them; the next batch begins when the last chunk is through.
    """
    whole = sum(seconds) + _outside(stages, rates)
    routed = any(part.pool for stage in stages for rank in stage.ranks for part in rank.work)
    batch = min(float(rates.pipelined_experts if routed else rates.pipelined), chunks)
    if batch <= 1 or len(stages) == 1:
        return chunks * whole
    return chunks / batch * (whole + (batch - 1) * max(seconds))


def _outside(stages: Sequence[Stage], rates: Rates) -> float:
    return rates.step + (len(stages) - 1) * rates.stage


def _seconds(terms: Sequence[Term]) -> float:
    return sum(term.seconds for term in terms)


def _total(stages: Sequence[Sequence[Term]]) -> float:
    return sum(map(_seconds, stages))
