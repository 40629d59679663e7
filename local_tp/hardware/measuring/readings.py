"""What is asked of a measuring child process, and what it answers: one JSON line each.

Knows nothing of torch or of how a child is run. Everything goes through `local_tp.codec`, so a line
that is not one of these is refused rather than guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass

from local_tp.core import DeviceKind


@dataclass(frozen=True, slots=True)
class Place:
    """Where a child computes: the processor, or the card in this slot."""

    id: str
    kind: DeviceKind
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Measure one device with buffers of `nbytes`; `threads` are the processor's."""

    place: Place
    nbytes: int
    threads: int
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairRequest:
    """Copy between two devices, checked; with `both`, also in both directions at once."""

    a: Place
    b: Place
    nbytes: int
    both: bool


@dataclass(frozen=True, slots=True)
class CollectiveRequest:
    """Sum over all ranks, checked. The ranks meet in `folder`; `timeout` is in seconds."""

    place: Place
    rank: int
    ranks: int
    transports: tuple[str, ...]
    sizes: tuple[int, ...]
    folder: str
    timeout: float


@dataclass(frozen=True, slots=True)
class DiskRequest:
    """Read at most `nbytes` of a file, past the system's cache."""

    file: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """Say what torch was built for; `version` is the one that its package states."""

    version: str


Request = DeviceRequest | PairRequest | CollectiveRequest | DiskRequest | BuildRequest


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer. `what` names it, `value` is in bytes a second, operations a second or seconds.

    `detail` is the dtype, direction or transport that it holds for, or a note's text.
    """

    what: str
    value: float = 0.0
    detail: str = ""
    nbytes: int = 0
    correct: bool | None = None


READY = "ready"  # everything is loaded: from here on the time limit of the work counts
BUSY = "busy"  # `value`: the share of the processor that other programs had meanwhile
NOTE = "note"  # `detail` says in words what could not be measured
