"""What a plan says beforehand, in numbers: memory term by term, time term by term.

Frozen values: bytes, seconds, tokens a second. Part of a `Plan`, so they go through JSON. Knows
nothing of how a figure is found; every figure here is one that a person is shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank. All but `host` lie on its device; `replicated` is a part of `weights`."""

    weights: int = 0
    kv: int = 0  # keys and values, for the whole context
    state: int = 0  # recurrent layers, for every stream
    activations: int = 0  # of a full chunk; they do not shrink with the share
    logits: int = 0
    exchange: int = 0  # buffers for sums and hand-over
    context: int = 0  # what a process takes on the device before any data of its own
    slack: int = 0  # what an allocator rounds up and cannot hand out again
    host: int = 0  # in the PC's memory beside a card: streamed weights, pinned buffers
    replicated: int = 0  # of the weights, what other ranks of the stage hold too

    @property
    def workspace(self) -> int:
        """Bytes on the device that are neither weights nor what is remembered of a text."""
        return self.activations + self.logits + self.exchange + self.context + self.slack

    @property
    def total(self) -> int:
        """Bytes on the device."""
        return self.weights + self.kv + self.state + self.workspace


@dataclass(frozen=True, slots=True)
class Term:
    """One resource's part of the time of a step, and whose it is."""

    name: str  # memory, arithmetic, starting operations, exchange, hand-over, copying weights, …
    seconds: float
    device: str = ""  # the one that the others wait for


@dataclass(frozen=True, slots=True)
class Prediction:
    """Speed of a plan. `bound` names the resource, and the device where there is one."""

    prefill: float  # tokens a second of one long prompt
    decode: float  # tokens a second of one user
    first_token: float  # seconds until the answer to a prompt of one chunk begins
    aggregate: float  # tokens a second of all the goal's streams together, all replicas
    bound: str
    decode_terms: tuple[Term, ...] = ()  # of one token of one user
    prefill_terms: tuple[Term, ...] = ()  # of one chunk


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way that was looked at, its numbers, and why it lost. No prediction: no room."""

    what: str
    devices: tuple[str, ...]
    reason: str
    prediction: Prediction | None = None
    context: int | None = None
