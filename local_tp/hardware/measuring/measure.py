"""Measures a machine in child processes that can be killed, and returns what is now known of it.

Knows nothing of torch: what it starts does. Each measurement has a time limit, is kept on disk, and
can fail alone: it does not raise but for Ctrl-C, after which no child is left.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from local_tp import settings
from local_tp.core import Device, Rig
from local_tp.hardware.measuring import killable, measured_rig
from local_tp.hardware.measuring.cache import Cache, Measured
from local_tp.hardware.measuring.killable import Outcome, Program, module
from local_tp.hardware.measuring.readings import (
    BuildRequest,
    CollectiveRequest,
    DeviceRequest,
    DiskRequest,
    PairRequest,
    Place,
    Request,
)
from local_tp.hardware.measuring.scope import Scope, worth_measuring
from local_tp.hardware.measuring.text import (
    build_line,
    collective_line,
    device_line,
    disk_line,
    pair_line,
)

MIB = 1024**2
SMALLEST_BUFFER = 16 * MIB
DEVICE_BUFFER, PAIR_BUFFER = 256 * MIB, 32 * MIB
# Two buffers and some matrices must fit beside what is free, with room for the rest.
BUFFERS_IN_FREE = 8
DTYPES = ("float32", "bfloat16", "float16", "int8")
SIZES = (8 * 1024, 64 * 1024, MIB)
DISK_BYTES, SMALLEST_FILE = 256 * MIB, 64 * MIB


@dataclass(frozen=True, slots=True)
class Programs:
    """The children to run, with their time limits. Tests give ones that hang, crash or lie."""

    device: Program
    pair: Program
    collective: Program
    disk: Program
    build: Program


def standard_programs() -> Programs:
    """This package's own children."""
    package = "local_tp.hardware.measuring.child"
    return Programs(
        device=Program(module(f"{package}_device"), 60.0),
        pair=Program(module(f"{package}_pair"), 30.0),
        collective=Program(module(f"{package}_collective"), 30.0),
        disk=Program(module(f"{package}_disk"), 20.0),
        build=Program(module(f"{package}_build"), 20.0),
    )


def measure(
    rig: Rig,
    *,
    full: bool = False,
    report: Callable[[str], None],
    cache: Path | None,
    again: bool = False,
    models: Path | None = None,
    programs: Programs | None = None,
    scope: Scope | None = None,
) -> Rig:
    """`rig` with what was measured of it: rates, verdicts, collectives, and why some are missing.

    `cache` is the folder of kept measurements (`measure_cache.default_folder()`), None for none;
    `again` ignores what it holds. `models` is the folder whose disk is read, the settings' by
    default. `report` takes progress, a line at a time. `scope` names the devices, pairs and
    collectives to measure in place of all that are worth it, and then nothing else is.
    """
    session = _Session(Cache(cache, report), report, again, programs or standard_programs())
    if scope is not None:
        return session.named(rig, scope)
    scope = worth_measuring(rig, full)
    if any(device.kind != "cpu" for device in scope.devices):
        rig = session.build(rig)
    for device in scope.devices:
        rig = session.device(rig, device)
    for a, b in scope.pairs:
        rig = session.pair(rig, a, b, full)
    for transports, ranks in worth_measuring(rig, full).collectives:
        rig = session.collectives(rig, transports, ranks)
    return session.disk(rig, models or settings.models())


def with_kept(rig: Rig, cache: Path, report: Callable[[str], None]) -> Rig:
    """`rig` with all that earlier measurements kept of it. Starts nothing."""
    session = _Session(Cache(cache, report), _silent, False, standard_programs(), starts=False)
    scope = worth_measuring(rig, False)
    rig = session.named(with_kept_build(rig, cache, report), replace(scope, collectives=()))
    return session.named(rig, Scope((), (), worth_measuring(rig, False).collectives))


def with_kept_build(rig: Rig, cache: Path, report: Callable[[str], None]) -> Rig:
    """`rig` with what the installed torch was built for, if an earlier measurement asked it."""
    kept = Cache(cache, report).find(_build_of(rig)) if rig.software.torch else None
    return measured_rig.with_build(rig, kept) if kept else rig


@dataclass(frozen=True, slots=True)
class _Session:
    """One run of `measure`: where to keep results, whom to tell, what to start.

    One that `starts` nothing only reads what is kept.
    """

    cache: Cache
    report: Callable[[str], None]
    again: bool
    programs: Programs
    starts: bool = True

    def named(self, rig: Rig, scope: Scope) -> Rig:
        """What a scope names, and no more."""
        for device in scope.devices:
            rig = self.device(rig, device)
        for a, b in scope.pairs:
            rig = self.pair(rig, a, b, False)
        for transports, ranks in scope.collectives:
            rig = self.collectives(rig, transports, ranks)
        return rig

    def device(self, rig: Rig, device: Device) -> Rig:
        nbytes = _buffer([device], DEVICE_BUFFER)
        if nbytes is None:
            return measured_rig.with_unknown(rig, device.id, [_too_full(device)])
        self.report(f"measuring {device.name} ({device.id})")
        threads = max(1, rig.cores)
        request = DeviceRequest(_place(device), nbytes, threads, DTYPES)
        subject = ("device", str(threads), *_identity(rig, [device]))
        measured = self._measured(subject, self.programs.device, [request], [[device]])
        if measured is None:
            return rig
        rig = measured_rig.with_device(rig, device, measured)
        self.report(device_line(rig, device.id))
        return rig

    def pair(self, rig: Rig, a: Device, b: Device, both: bool) -> Rig:
        nbytes = _buffer([a, b], PAIR_BUFFER)
        if nbytes is None:
            tighter = min(a, b, key=lambda device: device.free)
            return measured_rig.with_unknown(rig, f"{a.id} to {b.id}", [_too_full(tighter)])
        self.report(f"checking copies between {a.id} and {b.id}")
        request = PairRequest(_place(a), _place(b), nbytes, both)
        subject = ("pair", f"both={both}", *_identity(rig, [a, b]))
        measured = self._measured(subject, self.programs.pair, [request], [[a, b]])
        if measured is None:
            return rig
        rig = measured_rig.with_pair(rig, a.id, b.id, measured)
        self.report(pair_line(rig, a.id, b.id))
        return rig

    def collectives(self, rig: Rig, transports: Sequence[str], ranks: Sequence[Device]) -> Rig:
        self.report(f"checking sums over {len(ranks)} processes by {' and '.join(transports)}")
        program = self.programs.collective
        subject = ("collective", *transports, *_identity(rig, ranks))
        with tempfile.TemporaryDirectory(prefix="local_tp-", dir=_memory_folder()) as folder:
            requests = [
                CollectiveRequest(
                    place=_place(device),
                    rank=rank,
                    ranks=len(ranks),
                    transports=tuple(transports),
                    sizes=SIZES,
                    folder=folder,
                    timeout=2 * (program.start_seconds + program.seconds),  # the parent's is first
                )
                for rank, device in enumerate(ranks)
            ]
            measured = self._measured(subject, program, requests, [[d] for d in ranks])
        if measured is None:
            return rig
        ids = [device.id for device in ranks]
        rig = measured_rig.with_collectives(rig, transports, ids, measured)
        for transport in transports:
            self.report(collective_line(rig, transport, ids))
        return rig

    def build(self, rig: Rig) -> Rig:
        """What torch's kernels run on, which only torch itself tells for certain."""
        if rig.software.torch is None:
            return measured_rig.with_unknown(rig, "torch", ["it is not installed"])
        self.report("asking torch which cards it was built for")
        request = BuildRequest(rig.software.torch)
        measured = self._measured(_build_of(rig), self.programs.build, [request], [[]])
        if measured is None:
            return rig
        rig = measured_rig.with_build(rig, measured)
        self.report(build_line(rig))
        return rig

    def disk(self, rig: Rig, folder: Path) -> Rig:
        """Not kept: it takes less than a second, and folders move between disks."""
        file = _largest_file(folder)
        if file is None:
            why = f"it holds no file of {SMALLEST_FILE // MIB} MiB or more yet"
            return measured_rig.with_unknown(rig, "model folder", [why])
        self.report("reading from the model folder's disk")
        request = DiskRequest(str(file), DISK_BYTES)
        measured = self._run(self.programs.disk, [request], [[]])
        rig = measured_rig.with_disk(rig, measured.outcomes[0])
        self.report(disk_line(rig))
        return rig

    def _measured(
        self,
        subject: tuple[str, ...],
        program: Program,
        requests: Sequence[Request],
        seen: Sequence[Sequence[Device]],
    ) -> Measured | None:
        """What is kept of the subject, or else measured now and kept; None if nothing may start.

        A failure is not kept: a card may be full today only. Neither is a device's hang, while a
        pair's is: it would be waited for again at every start.
        """
        if not self.again and (kept := self.cache.find(subject)):
            self.report("  as measured before")
            return kept
        if not self.starts:
            return None
        measured = self._run(program, requests, seen)
        endings = {outcome.ending for outcome in measured.outcomes}
        if endings == {"done"} or (endings <= {"done", "hangs"} and subject[0] != "device"):
            self.cache.keep(subject, measured)
        return measured

    def _run(
        self, program: Program, requests: Sequence[Request], seen: Sequence[Sequence[Device]]
    ) -> Measured:
        """`seen` are the devices of each child; it may open no others."""
        environments = [killable.environment(_visible(devices)) for devices in seen]
        try:
            outcomes = killable.run(program, requests, environments)
        except OSError as error:
            outcomes = [Outcome((), "failed", f"it cannot be started: {error}")] * len(requests)
        return Measured(tuple(outcomes))


def _silent(line: str) -> None:
    """Nobody is told what was measured long ago."""


def _build_of(rig: Rig) -> tuple[str, ...]:
    return "torch's build", rig.software.torch or "", sys.executable


def _place(device: Device) -> Place:
    return Place(device.id, device.kind, device.uuid)


def _visible(devices: Sequence[Device]) -> list[str] | None:
    """What CUDA may show to a child; None, all, where a card has no identifier that CUDA knows."""
    cards = [device for device in devices if device.kind != "cpu"]
    if any(card.kind != "cuda" or card.uuid is None for card in cards):
        return None
    return [card.uuid for card in cards if card.uuid is not None]


def _buffer(devices: Sequence[Device], most: int) -> int | None:
    """Bytes of a test's buffer, or None where even the smallest would crowd others out."""
    room = min(device.free for device in devices) // BUFFERS_IN_FREE
    nbytes = min(most, room // MIB * MIB)
    return nbytes if nbytes >= SMALLEST_BUFFER else None


def _too_full(device: Device) -> str:
    need = BUFFERS_IN_FREE * SMALLEST_BUFFER // MIB
    return (
        f"{device.id} has {device.free // MIB} MiB free and the test needs {need}: "
        "close programs that use it and measure again"
    )


def _identity(rig: Rig, devices: Sequence[Device]) -> tuple[str, ...]:
    """What a measurement depends on besides its own kind: change one, and it is made anew.

    Copies depend on what the driver says of peers and on the IOMMU too: a driver patched for
    peer access has the version of the one it replaced.
    """
    cards = [f"{d.kind} {d.name} {d.id} {d.uuid} {d.total}" for d in devices]
    ids = {device.id for device in devices}
    ways = [
        f"{link.a} {link.b} {link.facts.read} {link.facts.write}"
        for link in rig.links
        if len(ids) > 1 and {link.a, link.b} <= ids
    ]
    machine = f"{rig.os} {rig.cores} {rig.ram} {rig.host.iommu} {rig.host.acs}"
    return (*cards, *sorted(ways), machine, f"driver {rig.driver}", f"torch {_torch_version()}")


def _torch_version() -> str:
    """Which build of torch would measure, without importing it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _memory_folder() -> str | None:
    """Where files lie in memory, if this system has such a place."""
    return "/dev/shm" if sys.platform == "linux" and Path("/dev/shm").is_dir() else None


def _largest_file(folder: Path) -> Path | None:
    """The largest file under `folder` that is large enough to tell a disk's speed."""
    sizes: list[tuple[int, Path]] = []
    for parent, _, names in os.walk(folder):  # silent where it may not look
        for name in names:
            file = Path(parent, name)
            with contextlib.suppress(OSError):
                sizes.append((file.stat().st_size, file))
    size, file = max(sizes, default=(0, folder))
    return file if size >= SMALLEST_FILE else None
