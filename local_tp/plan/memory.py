"""Predicted bytes of one rank, term by term, on its device and in the PC's memory.

The weights come from the layout that loading iterates; keys and values are the tensors that the
cache allocates; activations and logits are listed by `plan.activations`. Constants are of torch
2.13 as measured by `scripts/memory_check.py`; of cards they are published figures. Of the terms
only `kv` and, by rotary tables, mask and gathering, `activations` grow with the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from local_tp.core import DeviceKind, Goal, KvFormat, ModelSpec, Placement, Transport
from local_tp.plan.activations import (
    FLOAT,
    SCORED_ROWS,
    UNPACK_ELEMENTS,
    UNPACK_FROM_TOKENS,
    Phase,
    layer_phases,
    logits_phase,
    shape_of,
    standing_bytes,
)
from local_tp.plan.cache import PAGE, layer_places
from local_tp.plan.delta_heads import state_elements
from local_tp.plan.layer_cut import kv_elements
from local_tp.plan.layout import (
    Parameter,
    edge_parameters,
    layer_parameters,
    weight_bytes,
)
from local_tp.prediction import Memory

__all__ = ["PAGE", "SCORED_ROWS", "UNPACK_ELEMENTS", "UNPACK_FROM_TOKENS"]

MIB = 1 << 20
KV_ELEMENT_BYTES: dict[KvFormat, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
STATE_ELEMENT_BYTES = 4

PROCESS = 160 * MIB  # private memory of a worker on the processor: interpreter, torch, kernels
CARD_PROCESS = 512 * MIB  # the same beside a card, with CUDA's own
CARD_CONTEXT = 457 * MIB  # on a card of which nothing is known
PARENT = 160 * MIB  # the process that people talk to, without a page
LOADING_ELEMENTS, LOADING_BYTES = 1 << 20, 36  # of a block of weights being converted
HOLES = 0.75  # of a heap, to what is in use
HOLES_OF_QUANTIZED = 1.0  # the same where large blocks are unpacked again and again
HOLES_OF_BOUND = 0.4  # the same where what is in use is an upper bound
LARGEST_KEPT = 32 * MIB  # glibc gives larger blocks back at once, and keeps smaller ones
NCCL = 256 * MIB  # device buffers of a group
NCCL_HOST = 10 * MIB  # pinned, for each neighbour
WORKSPACE = 32 * MIB  # that matrix products keep on a card
SEGMENT, LARGE = 2 * MIB, 10 * MIB  # torch rounds larger tensors on a card up to such segments


def with_memory(
    spec: ModelSpec,
    placement: Placement,
    goal: Goal,
    tokens: int,
    kind: DeviceKind,
    ranks_in_stage: int = 1,
    transport: Transport = "none",
    ratio: float = 1.0,
    context: int = 0,
) -> Placement:
    """The placement with its memory filled in, for a cache of `tokens` places of all streams.

    `ratio` is what a device was measured to take of what was predicted for it: above 1 it raises
    the workspace, below 1 it is not relied on. `context` is `Device.context`; 0 takes the usual.
    """
    places = -(-tokens // max(1, goal.streams))
    element = KV_ELEMENT_BYTES[goal.kv_format or "float32"]
    shape = shape_of(spec, goal, places, kind, ranks_in_stage, element)
    phases = list(layer_phases(spec, placement, goal, kind, shape))
    last = logits_phase(spec, placement, goal, kind, shape)
    kv = kv_bytes(spec, placement, goal, tokens)
    slack = _slack(spec, placement, goal, kind, _peak([*phases, last], kind))
    together = standing_bytes(shape) + sum(_peak(phases, kind))
    if kind == "cpu":  # keys and values take no room before they are written, nor do holes
        beside = loading_bytes(spec, placement, goal, kind) - kv - slack
        together = max(together, beside)
    with_logits = max(together, standing_bytes(shape) + sum(_peak([*phases, last], kind)))
    weights, streamed = _weights(spec, placement, goal, kind)
    memory = Memory(
        weights=weights,
        kv=kv,
        state=state_bytes(spec, placement, goal.streams),
        activations=together,
        logits=with_logits - together,
        exchange=exchange_bytes(spec, placement, goal, kind, ranks_in_stage, transport),
        context=context or (PROCESS if kind == "cpu" else CARD_CONTEXT),
        host=0 if kind == "cpu" else host_bytes(spec, goal, streamed, transport),
        replicated=_replicated(spec, placement, goal, kind),
    )
    slack += int(max(0.0, ratio - 1.0) * (memory.workspace + slack))
    return replace(placement, memory=replace(memory, slack=slack))


def memory_terms(memory: Memory) -> tuple[tuple[str, int], ...]:
    """Every term in words, with its bytes. All but the last two add up to the device's total."""
    return (
        ("weights", memory.weights),
        ("keys and values", memory.kv),
        ("recurrent state", memory.state),
        ("activations of a chunk", memory.activations),
        ("logits", memory.logits),
        ("buffers between ranks", memory.exchange),
        ("the process itself", memory.context),
        ("allocator slack", memory.slack),
        ("of the weights, held by other ranks too", memory.replicated),
        ("in the PC's memory", memory.host),
    )


def kv_bytes(spec: ModelSpec, placement: Placement, goal: Goal, tokens: int) -> int:
    """Bytes of the keys and values of `tokens` places, all streams together.

    A layer with a window keeps it and the chunk being read, in whole pages, for each stream.
    """
    element = KV_ELEMENT_BYTES[goal.kv_format or "float32"]
    return sum(
        layer_places(spec, goal, tokens, index) * kv_elements(spec, placement, index) * element
        for index in range(*placement.layers)
    )


def state_bytes(spec: ModelSpec, placement: Placement, streams: int) -> int:
    """Bytes of what recurrent layers keep, for each stream."""
    layers = (i for i in range(*placement.layers) if spec.kind(i).mixer == "recurrent")
    elements = sum(state_elements(spec, placement, index) for index in layers)
    return max(1, streams) * elements * STATE_ELEMENT_BYTES


def exchange_bytes(
    spec: ModelSpec,
    placement: Placement,
    goal: Goal,
    kind: DeviceKind,
    ranks: int,
    transport: Transport,
) -> int:
    """Bytes on the device for sums inside a stage and hand-over between stages.

    Shared memory is counted once for all ranks: to each its own lane of two slots, and its part
    of the links.
    """
    if transport == "none":
        return 0
    chunk = goal.chunk * spec.dimensions.hidden * FLOAT
    if transport == "shared-memory":
        incoming = 2 * chunk // (1 + ranks) if placement.layers.start else 0
        onward = chunk if placement.layers.stop < spec.dimensions.layers else 0
        sums = 2 * max(chunk, placement.vocab.size * FLOAT) if ranks > 1 else 0
        return sums + incoming + onward
    if transport == "nccl":
        return NCCL
    gathered = (ranks + 2) * SCORED_ROWS * placement.vocab.size * FLOAT if ranks > 1 else 0
    return chunk + gathered if kind == "cpu" else 0


def host_bytes(spec: ModelSpec, goal: Goal, streamed: int, transport: Transport) -> int:
    """Bytes of the PC's memory that the process of a card takes: its own, buffers, and weights."""
    chunk = goal.chunk * spec.dimensions.hidden * FLOAT
    buffers = {"none": 0, "shared-memory": 0, "gloo": 3 * chunk, "nccl": 2 * NCCL_HOST}[transport]
    return CARD_PROCESS + buffers + streamed


def host_bytes_of_plan(placements: Iterable[Placement], loading: bool = False) -> int:
    """Bytes of the PC's memory for a whole plan beside what ranks on the processor hold.

    The parent and the cards' processes; while `loading`, blocks being converted for each rank.
    """
    placements = tuple(placements)
    blocks = LOADING_ELEMENTS * LOADING_BYTES * len(placements) if loading else 0
    return PARENT + blocks + sum(p.memory.host for p in placements)


def loading_bytes(spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind) -> int:
    """Bytes of the PC's memory that loading takes for a moment, beside what is held then."""
    held = edge_parameters(spec, placement, goal.dtype, kind)
    held += layer_parameters(spec, placement, placement.layers.start, goal.dtype, kind)
    largest = max((p.rows * p.columns for p in held), default=0)
    return min(largest, LOADING_ELEMENTS) * LOADING_BYTES


def _weights(
    spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind
) -> tuple[int, int]:
    """Bytes on the device, and of streamed layers in the PC's memory.

    Of streamed layers the device holds two at a time: one in use and the next.
    """
    total = weight_bytes(spec, placement, goal.dtype, kind)
    if not placement.streamed.size:
        return total, 0
    layers = [
        sum(p.nbytes for p in layer_parameters(spec, placement, index, goal.dtype, kind))
        for index in range(*placement.streamed)
    ]
    return total - sum(layers) + sum(sorted(layers)[-2:]), sum(layers)


def _replicated(spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind) -> int:
    found = _counted(spec, placement, goal, kind)
    return sum(times * parameter.replicated_bytes for times, parameter in found)


def _counted(
    spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind
) -> Iterator[tuple[int, Parameter]]:
    """Every parameter and how often it occurs: layers that are alike are looked at once."""
    likenesses = spec.likenesses
    alike: dict[int, list[int]] = {}
    for index in range(*placement.layers):
        alike.setdefault(likenesses[index], []).append(index)
    for parameter in edge_parameters(spec, placement, goal.dtype, kind):
        yield 1, parameter
    for layers in alike.values():
        for parameter in layer_parameters(spec, placement, layers[0], goal.dtype, kind):
            yield len(layers), parameter


def _peak(phases: Iterable[Phase], kind: DeviceKind) -> tuple[int, int]:
    """The most that is taken at once: what an allocator keeps of it, and what passes.

    On the processor small blocks come from a heap that keeps its largest size, while a block
    above `LARGEST_KEPT` is there only as long as it is used. A card's allocator keeps all.
    """
    if kind != "cpu":
        return max((sum(phase) for phase in phases), default=0), 0
    kept = passing = 0
    for phase in phases:
        kept = max(kept, sum(size for size in phase if size <= LARGEST_KEPT))
        passing = max(passing, sum(size for size in phase if size > LARGEST_KEPT))
    return kept, passing


def _slack(
    spec: ModelSpec, placement: Placement, goal: Goal, kind: DeviceKind, peak: tuple[int, int]
) -> int:
    """What is rounded up, and what lies between blocks in use.

    A heap of blocks of unlike sizes grows to almost twice what is in use. For quantized weights on
    a processor that was not measured the figure in use is an upper bound already: where 16 bits
    multiply fastest, products are half as large.
    Segments on a card are half empty on average.
    """
    kept, _ = peak
    forms = [(n, p) for n, p in _counted(spec, placement, goal, kind) if not p.vector]
    if kind == "cpu":
        if not any(p.held in ("int4", "int8") for _, p in forms):
            return int(kept * HOLES)
        return int(kept * (HOLES_OF_QUANTIZED if goal.product else HOLES_OF_BOUND))
    large = sum(n for n, p in forms if p.nbytes >= LARGE)
    return WORKSPACE + large * SEGMENT // 2 + kept // 8
