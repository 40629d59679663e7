"""What one rank reads and computes in a step, part by part.

Made from the same parameters that loading iterates, so it is about what is really held. Knows
nothing of devices or seconds: `plan.time` turns work into time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from local_tp.core import DeviceKind, Goal, KvFormat, Mixer, ModelSpec, Placement
from local_tp.plan.layer_cut import kv_elements
from local_tp.plan.layout import (
    Parameter,
    edge_parameters,
    layer_parameters,
)

PartName = Literal["mixer", "feed", "experts", "head"]

# Operations that a layer starts, as the decoder lists them: `docs/performance.md`.
MIXER_LAUNCHES: dict[Mixer, int] = {"full": 16, "sliding": 16, "recurrent": 32}
FEED_LAUNCHES, EXPERTS_LAUNCHES, HEAD_LAUNCHES = 6, 18, 4
KV_BYTES: dict[KvFormat, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
STATE_BYTES = 4
STATE_OPERATIONS = 6.0  # for each element of recurrent state: decay, read, update
PASSED = 8  # bytes of an activation that an operation reads and writes, in 32 bits
NORM_PASSES, QKV_PASSES = 4, 4  # operations over each element of a norm; cast, rope and cache


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's share of one kind of operation, summed over its layers.

    The ranks of a stage wait for one another after every part of every layer, so a stage takes,
    for each part, the time of its slowest rank. Bytes and operations; an operation is half a
    multiply-add. `held` is the form whose kernels read most of the weights.
    """

    name: PartName
    held: str
    layers: float = 0.0  # how often the part occurs in a step: so many exchanges, too
    launches: float = 0.0  # operations started in a step
    weights: float = 0.0  # bytes read once a step, however many tokens it has
    pool: float = 0.0  # bytes of routed experts held: no step reads more of them
    chosen: float = 0.0  # bytes of routed experts that one token reads here, on average
    operations: float = 0.0  # a token
    kv: float = 0.0  # bytes read for each token of context
    kv_fixed: float = 0.0  # bytes read at any context: recurrent state
    attention: float = 0.0  # operations a token, for each token of context
    streamed: float = 0.0  # of the weights, bytes copied from the PC's memory for each step
    sliding: float = 0.0  # bytes read for each token of context until the windows are full
    windows: float = 0.0  # bytes read where they are
    sliding_attention: float = 0.0  # operations, as `attention`, within the windows
    between: float = 0.0  # bytes that operations between products read and write for a token

    def context_bytes(self, context: float) -> float:
        """Bytes of keys, values and state that one text of that length makes a step read."""
        return self.kv * context + min(self.sliding * context, self.windows) + self.kv_fixed

    def context_operations(self, context: float) -> float:
        """Operations of one token on what the text remembers."""
        operations = self.attention * context
        if self.sliding:
            operations += self.sliding_attention * min(context, self.windows / self.sliding)
        return operations


Work = tuple[Part, ...]


def expert_bytes(part: Part, tokens: float) -> float:
    """Bytes of routed experts that `tokens` tokens read: each chosen one once.

    Expected number of distinct experts of tokens that choose alike and independently.
    """
    if not part.pool:
        return 0.0
    return part.pool * float(1.0 - (1.0 - part.chosen / part.pool) ** tokens)


def work_of(spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind) -> Work:
    """A rank's mixer, feed and experts, and the head where its stage is the last.

    Every rank of a stage has the same parts, in this order, however little it holds of them.
    Layers that are alike are looked at once.
    """
    sums = {name: _Sum() for name in ("mixer", "feed", "experts", "head")}
    for likeness, times in _alike(spec, placement).items():
        _add_layer(sums, spec, placement, goal, kind, likeness, times)
    parts = tuple(sums[name].part(name) for name in ("mixer", "feed", "experts"))
    if placement.layers.stop != spec.dimensions.layers:
        return parts
    _add_head(sums["head"], spec, placement, goal, kind)
    return (*parts, sums["head"].part("head"))


@dataclass(slots=True)
class _Sum:
    """A part while it is added up; `forms` has the bytes of each form."""

    numbers: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    forms: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, times: float, **numbers: float) -> None:
        for name, value in numbers.items():
            self.numbers[name] += times * value

    def matrices(self, times: float, found: Iterable[Parameter], streamed: bool = False) -> None:
        """Matrices that every token meets."""
        for parameter in found:
            nbytes = parameter.nbytes
            self.forms[parameter.held] += times * nbytes
            self.add(
                times,
                weights=nbytes,
                operations=2.0 * parameter.rows * parameter.columns,
                streamed=nbytes if streamed else 0,
            )

    def part(self, name: PartName) -> Part:
        held = max(self.forms, key=lambda form: self.forms[form], default="bfloat16")
        return Part(name, held, **self.numbers)


@dataclass(frozen=True, slots=True)
class _Likeness:
    """A layer that stands for all that are like it."""

    index: int
    streamed: bool


def _alike(spec: ModelSpec, placement: Placement) -> dict[_Likeness, int]:
    """How many layers there are of each likeness, streamed and resident ones apart."""
    likenesses = spec.likenesses
    first: dict[tuple[bool, int], _Likeness] = {}
    counts: dict[_Likeness, int] = defaultdict(int)
    for index in range(*placement.layers):
        streamed = index in placement.streamed
        key = (streamed, likenesses[index])
        counts[first.setdefault(key, _Likeness(index, streamed))] += 1
    return counts


def _add_layer(
    sums: dict[str, _Sum],
    spec: ModelSpec,
    placement: Placement,
    goal: Goal,
    kind: DeviceKind,
    like: _Likeness,
    times: int,
) -> None:
    found = layer_parameters(spec, placement, like.index, goal.dtype, kind)
    by_part = defaultdict[str, list[Parameter]](list)
    for parameter in found:
        if not parameter.vector:
            by_part[_part_name(parameter.name.split(".")[2])].append(parameter)
    mixer, feed, experts = spec.kind(like.index).mixer, sums["feed"], sums["experts"]
    sums["mixer"].add(times, layers=1, launches=MIXER_LAUNCHES[mixer] if by_part["mixer"] else 0)
    sums["mixer"].matrices(times, by_part["mixer"], like.streamed)
    sums["mixer"].add(times, between=_between(by_part["mixer"], spec.dimensions.hidden))
    _add_memory(sums["mixer"], spec, placement, goal, like.index, times)
    routed = spec.kind(like.index).feed == "experts"
    (experts if routed else feed).add(times, layers=1)
    feed.add(times, launches=FEED_LAUNCHES if by_part["feed"] else 0)
    feed.matrices(times, by_part["feed"], like.streamed)
    feed.add(times, between=_between(by_part["feed"], spec.dimensions.hidden))
    if by_part["experts"]:
        _add_experts(experts, spec, by_part["experts"], like, times)


def _between(matrices: Sequence[Parameter], hidden: int) -> float:
    """Bytes of activations that a token's operations between the products of a part pass over.

    The norm of its input; each product's input, cast, and its output, gated or added; queries,
    keys and values once for every operation on them.
    """
    if not matrices:
        return 0.0
    passed = NORM_PASSES * hidden
    for matrix in matrices:
        passes = QKV_PASSES if matrix.name.endswith(".qkv") else 1
        passed += matrix.columns + passes * matrix.rows
    return float(PASSED * passed)


def _add_experts(
    total: _Sum, spec: ModelSpec, found: list[Parameter], like: _Likeness, times: int
) -> None:
    """The router is met by every token, an expert by its share of them."""
    d = spec.dimensions
    share = d.active_experts / d.experts
    total.add(times, launches=EXPERTS_LAUNCHES)
    for parameter in found:
        if parameter.name.endswith("router"):
            total.matrices(times, [parameter], like.streamed)
            continue
        nbytes = parameter.nbytes
        total.forms[parameter.held] += times * nbytes
        operations = 2.0 * parameter.rows * parameter.columns * share
        total.add(times, pool=nbytes, chosen=share * nbytes, operations=operations)
        total.add(times, streamed=nbytes if like.streamed else 0)


def _add_memory(
    total: _Sum, spec: ModelSpec, placement: Placement, goal: Goal, index: int, times: int
) -> None:
    """What a layer reads of the text so far: all of it, a window, or a state of fixed size."""
    d, mixer = spec.dimensions, spec.kind(index).mixer
    if mixer == "recurrent":
        state = d.state * placement.query_heads.size / d.query_heads
        total.add(times, kv_fixed=2 * state * STATE_BYTES, operations=STATE_OPERATIONS * state)
        return
    element = KV_BYTES[goal.kv_format or "float32"]
    token = float(kv_elements(spec, placement, index) * element)
    width = 2 * d.kv_row if d.kv_row else 2 * d.head_dim
    attention = 2.0 * placement.query_heads.size * width
    if mixer == "sliding" and d.window:
        total.add(times, sliding=token, windows=token * d.window, sliding_attention=attention)
    else:
        total.add(times, kv=token, attention=attention)


def _add_head(
    total: _Sum, spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind
) -> None:
    """The head, which is the embedding where that is tied and on this rank."""
    edges = edge_parameters(spec, placement, goal.dtype, kind)
    tied = spec.traits.tied_head and placement.layers.start == 0
    name = "embed" if tied else "head"
    found = [p for p in edges if p.name == name and not p.vector]
    total.add(1, layers=1, launches=HEAD_LAUNCHES if found else 0)
    total.matrices(1, found)


def _part_name(role: str) -> PartName:
    if role == "router" or role.startswith("experts_"):
        return "experts"
    return "feed" if role.removeprefix("shared_") in ("gate_up", "down") else "mixer"
