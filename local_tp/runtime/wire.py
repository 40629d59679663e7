"""What the parent and its workers say to each other, and how it is framed.

Messages are pickled dataclasses behind a length, over the worker's standard streams: parent and
worker are the same program on the same machine, so pickle is safe here. Knows nothing of torch.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import BinaryIO

from local_tp.core import Device, ModelSpec, Plan, RowResult, Step

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Load:
    """Become rank `rank` of `plan`. `memory` and `meeting` are paths that all ranks share."""

    spec: ModelSpec
    plan: Plan
    rank: int
    devices: tuple[Device, ...]  # by rank
    threads: int
    memory: str | None
    meeting: str | None
    timeout: float


@dataclass(frozen=True, slots=True)
class Run:
    step: Step


@dataclass(frozen=True, slots=True)
class Measure:
    """Say what you hold, and held at most."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave, also while loading."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Stored bytes read so far and in all."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a worker holds, and held at most since it began.

    On its device: for a CPU rank the memory that no other process shares, with its part of what
    the ranks share; for a card context and allocator. `host` is that of the process in the PC's
    memory, on every kind of device.
    """

    now: int = 0
    peak: int = 0
    host: int = 0
    host_peak: int = 0
    baseline: int = 0  # of `now`, what was there before any data: context, or interpreter and torch
    allocated: int = 0  # of a card's peak, what tensors took; the rest is what the allocator kept
    free: int | None = None  # what the card's driver has left now


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rank really took: weights as held, resident bytes it added, and seconds."""

    weights: int
    resident: int
    load_seconds: float
    held: Held = Held()


@dataclass(frozen=True, slots=True)
class Ready:
    measured: Measured


@dataclass(frozen=True, slots=True)
class Done:
    """A step's results, from the leader of the last stage."""

    number: int
    results: tuple[RowResult, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer to `Measure`."""

    held: Held


@dataclass(frozen=True, slots=True)
class Fault:
    """The worker raised and is leaving."""

    summary: str
    traceback: str
    unreadable: bool = False  # a model file could not be opened


Command = Load | Run | Measure | Stop
Answer = Loaded | Ready | Done | Taken | Fault


def write(stream: BinaryIO, message: Command | Answer) -> None:
    """Send one message. Raises `BrokenPipeError` if nobody reads."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read(stream: BinaryIO) -> Command | Answer | None:
    """The next message, or `None` at the end of the stream."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    body = stream.read(length)
    if len(body) < length:
        return None
    message: Command | Answer = pickle.loads(body)
    return message
