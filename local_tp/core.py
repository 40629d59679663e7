"""The nouns of local_tp: frozen values that every stage passes to the next.

Knows nothing of files, torch or processes. Bytes, seconds and tokens throughout; spans are half
open. Every noun goes through pickle (to workers) and JSON (`local_tp.codec`, to people).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from local_tp.facts import CardFacts, Collective, HostFacts, PairFacts, SoftwareFacts
from local_tp.prediction import Alternative, Memory, Prediction
from local_tp.tensors import TensorInfo as TensorInfo
from local_tp.traits import Traits

DeviceKind = Literal["cuda", "rocm", "xpu", "cpu"]
LinkKind = Literal["nvlink", "p2p", "host"]
Split = Literal["single", "layer", "tensor", "hybrid"]
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8", "stored"]  # stored: as in file
Product = Literal["float32", "bfloat16"]  # of a matrix that was unpacked
KvFormat = Literal["float32", "bfloat16", "float16"]
Transport = Literal["none", "shared-memory", "gloo", "nccl"]
Mixer = Literal["full", "sliding", "recurrent"]
Feed = Literal["dense", "experts"]
Objective = Literal["chat", "serve", "context", "quality"]
Offload = Literal["auto", "none", "cpu", "stream"]
FinishReason = Literal["stop", "length", "cancelled", "error"]


class Span(NamedTuple):
    """A half-open range of heads, columns, rows or layers. It may be empty."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.start <= value < self.stop


EMPTY = Span(0, 0)


# ---------------------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class Pcie:
    """PCI Express generation and lanes, as read now and at most."""

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One place where a rank can run. `id` is the PCI bus id, or "cpu"."""

    id: str
    kind: DeviceKind
    name: str
    total: int
    free: int
    reserve: int = 0
    context: int = 0  # bytes that a process takes there before any data of its own
    bandwidth: float | None = None  # bytes a second
    flops: float | None = None  # dense 16-bit operations a second
    capability: tuple[int, int] | None = None
    pcie: Pcie | None = None
    display: bool | None = None
    uuid: str | None = None
    ordered_stores: bool = True  # other cores see its stores in program order, as on x86-64
    facts: CardFacts = field(default_factory=CardFacts)


@dataclass(frozen=True, slots=True)
class Link:
    """What two devices can say to each other, and whether that was ever verified."""

    a: str
    b: str
    kind: LinkKind
    bandwidth: float | None = None
    latency: float | None = None
    verified: bool = False
    measured: bool = False
    facts: PairFacts = field(default_factory=PairFacts)


@dataclass(frozen=True, slots=True)
class Rig:
    """A machine. `unknown` says in words what could not be learned."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    ram: int = 0
    available_ram: int = 0
    cores: int = 1
    os: str = ""
    driver: str | None = None
    unknown: tuple[str, ...] = ()
    host: HostFacts = field(default_factory=HostFacts)
    software: SoftwareFacts = field(default_factory=SoftwareFacts)
    collectives: tuple[Collective, ...] = ()


# ------------------------------------------------------------------------------- the model


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes of a decoder-only transformer, in elements. 0 where a model has no such thing."""

    layers: int
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    window: int = 0  # tokens that a sliding layer sees
    experts: int = 0  # routed experts of a layer
    active_experts: int = 0  # of them, those that one token meets
    expert_ffn: int = 0  # columns of one expert
    shared_ffn: int = 0  # columns of the experts that every token meets
    kv_row: int = 0  # elements a token leaves in a layer, where not 2 x kv_heads x head_dim;
    # such a compressed row is held whole on every rank
    state: int = 0  # elements that a recurrent layer keeps of a text, however long


class LayerKind(NamedTuple):
    """What a layer mixes tokens with, and what it feeds them through.

    `rope` is the place of its rotary embedding among `Traits.ropes`; below 0 it has none.
    """

    mixer: Mixer = "full"
    feed: Feed = "dense"
    rope: int = 0


@dataclass(frozen=True)  # without slots, for what it remembers of itself
class ModelSpec:
    """A checkpoint as read from headers alone.

    `tensors` has canonical names: `embed`, `norm`, `head` (absent when tied) and, for layer i,
    `layers.i.` + `attn_norm`, `q`, `k`, `v`, `o`, `ffn_norm`, `gate`, `up`, `down`, `q_bias`, …
    `ROPE_FACTORS`, where a file states its rotary scaling so, divide the frequencies. `kinds` has
    an entry a layer, or none where every layer is plain attention and a dense feed-forward.
    `left_out` says in words what the files have and text does not need.
    A spec without a `path` is a shape that nobody downloaded: it can be planned, not run.
    """

    name: str
    path: str
    family: str
    dimensions: Dimensions
    traits: Traits
    tensors: dict[str, TensorInfo]
    kinds: tuple[LayerKind, ...] = ()
    left_out: tuple[str, ...] = ()

    def kind(self, layer: int) -> LayerKind:
        return self.kinds[layer] if self.kinds else LayerKind()

    @cached_property
    def likenesses(self) -> tuple[int, ...]:
        """A number for each layer; equal ones are alike in kind, roles, shapes and formats."""
        found: list[list[object]] = [[self.kind(i)] for i in range(self.dimensions.layers)]
        for name, info in self.tensors.items():
            if name.startswith("layers."):
                _, index, role = name.split(".", 2)
                if int(index) < len(found):
                    found[int(index)] += (role, info.shape, info.format, info.ordered)
        numbers: dict[tuple[object, ...], int] = {}
        return tuple(numbers.setdefault(tuple(layer), len(numbers)) for layer in found)


# -------------------------------------------------------------------------------- the plan


@dataclass(frozen=True, slots=True)
class Goal:
    """What a person asked for. `None` leaves the choice to the planner."""

    devices: tuple[str, ...] = ()
    split: Split | None = None
    context: int | None = None
    streams: int = 4
    dtype: Dtype = "auto"
    kv_format: KvFormat | None = None
    chunk: int = 512
    reserve: dict[str, int] = field(default_factory=dict)
    objective: Objective = "chat"
    floor: float | None = None  # tokens a second that the objective quality must keep
    offload: Offload = "auto"
    shares: tuple[float, ...] = ()  # a person's ratio, in the order of `devices`
    product: Product | None = None  # in which the processor multiplies fastest, where measured


@dataclass(frozen=True, slots=True)
class Placement:
    """What one rank holds: the one form that says every split.

    Query heads follow KV heads: a rank holds whole groups, or a part of one KV head's group
    (that head is then replicated on several ranks). `vocab` cuts the embedding on the first
    stage and the head on the last. The weights of `streamed` layers stay in the PC's memory and
    are copied to the device for each step. `memory` is predicted.
    """

    rank: int
    device: str
    stage: int
    layers: Span
    query_heads: Span
    kv_heads: Span
    ffn: Span
    vocab: Span
    experts: Span = EMPTY
    streamed: Span = EMPTY
    memory: Memory = field(default_factory=Memory)


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision.

    `copies` are the devices of each further replica, in rank order. `doubts` are the unmeasured
    numbers on which the order of plans depends; `changes` what would change the answer.
    """

    model: str
    goal: Goal
    placements: tuple[Placement, ...]
    transport: Transport
    context: int
    page_size: int
    pages: int
    split: Split = "single"
    copies: tuple[tuple[str, ...], ...] = ()
    prediction: Prediction | None = None
    alternatives: tuple[Alternative, ...] = ()
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def stage(self, index: int) -> tuple[Placement, ...]:
        """The ranks of one stage, in rank order."""
        return tuple(p for p in self.placements if p.stage == index)

    @property
    def replicas(self) -> int:
        return 1 + len(self.copies)

    @property
    def stages(self) -> int:
        return 1 + max(p.stage for p in self.placements)


@dataclass(frozen=True, slots=True)
class Shard:
    """A rectangle of a stored tensor, and its first row in the (fused) parameter of a rank."""

    parameter: str
    source: str
    rows: Span
    columns: Span
    offset: int


# ---------------------------------------------------------------------------- running text


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose the next token. The defaults are greedy and change nothing.

    Applied in this order: logit bias, repetition penalty, presence and frequency penalty,
    temperature, top-k, top-p, min-p. `top_k` 0, `top_p` 1 and `min_p` 0 switch a filter off.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None  # how many alternatives to report with each token

    @property
    def needs_history(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural-log probability and its best-placed rivals (id, logprob)."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One request's part in a step: `tokens` stand at `position` and the places after it.

    `pages` cover at least position 0 up to the last token. `sampling` is set where the last token's
    logits are to be sampled; `history` then holds prompt and output, if a penalty needs them,
    and `prompt_length` divides them. `stream` is a number below the plan's streams that no other
    running request has. `score` asks for the log probability of each next token of
    `targets`; `logits` for the raw logits of the last token.
    """

    request: int
    tokens: tuple[int, ...]
    position: int
    pages: tuple[int, ...]
    sampling: Sampling | None = None
    history: tuple[int, ...] = ()
    prompt_length: int = 0
    targets: tuple[int, ...] = ()
    score: int | None = None
    logits: bool = False
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What every worker does next, in the same order everywhere."""

    number: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RowResult:
    """What the last stage found for one row."""

    request: int
    token: int | None = None
    logprob: TokenLogprob | None = None
    scores: tuple[TokenLogprob, ...] = ()
    logits: bytes | None = None  # float32, little endian, (vocab,)
