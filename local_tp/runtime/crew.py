"""The parent's side: starts one worker process a rank, feeds them steps, and sees them die.

Torch-free. A crew lives until it is closed or one of its workers fails; then all are ended, their
memory is free, and every later call raises what happened. A plan of several replicas has a crew for
each, whose ranks count on. `Crew` is the seam that the engine and its tests know.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from local_tp.core import Device, ModelSpec, Plan, RowResult, Step
from local_tp.errors import LocalTpError, ModelGone, WorkerDied, WorkerError, WorkerFault
from local_tp.runtime import wire
from local_tp.runtime.arena import SharedMemory, cut_arena
from local_tp.runtime.process import WorkerProcess
from local_tp.runtime.replicas import replica_plans

COLLECTIVE_TIMEOUT = 120.0  # seconds that ranks wait for one another before they give up
CLOSE_SECONDS = 2.0

Events = queue.SimpleQueue[tuple[int, wire.Answer | None]]
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One worker, as the parent sees it."""

    rank: int
    device: str
    pid: int
    alive: bool


class Crew(Protocol):
    """Workers that run steps."""

    measured: dict[int, wire.Measured]

    def send(self, step: Step) -> None:
        """Begin a step everywhere. It may follow others that are not done. Raises as `receive`."""

    def receive(self) -> tuple[RowResult, ...]:
        """The results of the oldest step that was sent and not received.

        Raises `WorkerError` and ends the crew if a worker fails.
        """

    def measure(self) -> dict[int, wire.Held]:
        """What every rank holds and held at most, between steps. Raises as `run` does."""

    def failure(self) -> WorkerError | None:
        """What ended the crew, if something did."""

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify`, from another thread, when a worker fails while nobody runs a step."""

    def health(self) -> tuple[WorkerHealth, ...]:
        """Every worker, dead or alive."""

    def close(self) -> None:
        """End every worker and wait until it is gone."""


class ProcessCrew:
    """One process a placement.

    `first` is the number of its first rank, where other replicas come before. While several crews
    load they share `events`; a crew that runs has its own.
    """

    def __init__(self, first: int = 0, events: Events | None = None) -> None:
        self._first = first
        self._processes: list[WorkerProcess] = []
        self._listeners: list[threading.Thread] = []
        self.memory: SharedMemory | None = None
        self.folder: Path | None = None  # where ranks meet that do not share memory
        self._events: Events = queue.SimpleQueue() if events is None else events
        self._sent: deque[int] = deque()
        self._failure: WorkerError | None = None
        self._notify: Callable[[], None] = lambda: None
        self._closing = self._closed = False
        self.measured: dict[int, wire.Measured] = {}

    @property
    def ranks(self) -> range:
        """The numbers of its ranks."""
        return range(self._first, self._first + len(self._processes))

    def start(self, spec: ModelSpec, plan: Plan, devices: Sequence[Device], threads: int) -> None:
        """Start a worker a placement and let each begin to load; `devices` are by rank."""
        memory = meeting = None
        if plan.transport == "shared-memory":
            self.memory = SharedMemory(cut_arena(spec, plan).nbytes)
            memory = self.memory.path
        elif plan.transport != "none":
            self.folder = Path(tempfile.mkdtemp(prefix="local_tp-"))
            meeting = str(self.folder / "meeting")
        for p in plan.placements:
            self._add(WorkerProcess(self._first + p.rank, devices[p.rank], threads))
        for p, process in zip(plan.placements, self._processes, strict=True):
            process.send(
                wire.Load(
                    spec=spec,
                    plan=plan,
                    rank=p.rank,
                    devices=tuple(devices),
                    threads=threads,
                    memory=memory,
                    meeting=meeting,
                    timeout=COLLECTIVE_TIMEOUT,
                )
            )

    def loaded(self) -> None:
        """All ranks are ready: remove what they needed to find one another."""
        self._events = queue.SimpleQueue()
        self.tidy()

    def tidy(self) -> None:
        """Remove what workers needed to find one another."""
        if self.memory is not None:
            self.memory.remove()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, step: Step) -> tuple[RowResult, ...]:
        """Run one step while no other is under way."""
        self.send(step)
        return self.receive()

    def send(self, step: Step) -> None:
        if self._failure is not None:
            raise self._failure
        self._sent.append(step.number)
        for process in self._processes:
            process.send(wire.Run(step))

    def receive(self) -> tuple[RowResult, ...]:
        if self._failure is not None:
            raise self._failure
        while True:
            _, answer = self._next()
            if isinstance(answer, wire.Done):
                number = self._sent.popleft()
                assert answer.number == number
                return answer.results

    def measure(self) -> dict[int, wire.Held]:
        if self._failure is not None:
            raise self._failure
        for process in self._processes:
            process.send(wire.Measure())
        held: dict[int, wire.Held] = {}
        while len(held) < len(self._processes):
            rank, answer = self._next()
            if isinstance(answer, wire.Taken):
                held[rank] = answer.held
        return held

    def failure(self) -> WorkerError | None:
        return self._failure

    def watch(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def health(self) -> tuple[WorkerHealth, ...]:
        return tuple(
            WorkerHealth(rank, p.device, p.pid, p.alive)
            for rank, p in zip(self.ranks, self._processes, strict=True)
        )

    def ask_to_stop(self) -> None:
        """Let every worker leave by itself; `close` waits for them."""
        self._closing = True
        for process in self._processes:
            process.ask_to_stop()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.ask_to_stop()
        for process, listener in zip(self._processes, self._listeners, strict=True):
            process.end(CLOSE_SECONDS)
            listener.join()
            process.release()
        self.tidy()

    def _add(self, process: WorkerProcess) -> None:
        """Take in the next rank and listen to it."""
        rank = self._first + len(self._processes)
        listener = threading.Thread(
            target=self._listen, args=(rank, process), name=f"worker-{rank}", daemon=True
        )
        self._processes.append(process)
        self._listeners.append(listener)
        listener.start()

    def _next(self) -> tuple[int, wire.Answer]:
        """The next good answer. Raises the failure if that is what comes."""
        rank, answer = self._events.get()
        if answer is None or isinstance(answer, wire.Fault):
            assert self._failure is not None
            raise self._failure
        return rank, answer

    def _listen(self, rank: int, process: WorkerProcess) -> None:
        """Pass on what a worker says; its end, or its fault, ends the crew."""
        while True:
            answer = process.receive()
            if answer is None or isinstance(answer, wire.Fault):
                break
            self._events.put((rank, answer))
        if self._closing:
            return
        self._fail(rank, process, answer)
        self._events.put((rank, answer))
        self._notify()

    def _fail(self, rank: int, process: WorkerProcess, fault: wire.Fault | None) -> None:
        if self._failure is None:
            if fault is not None and fault.unreadable:
                self._failure = ModelGone(rank, process.device, fault.summary)
            elif fault is not None:
                self._failure = WorkerFault(rank, process.device, fault.summary, fault.traceback)
            else:
                code = process.wait(1.0)
                self._failure = WorkerDied(rank, process.device, code, process.log_tail())
        self._closing = True
        for other in self._processes:
            other.kill()


def start_crew(
    spec: ModelSpec, plan: Plan, devices: Sequence[Device], threads: int, report: Report
) -> ProcessCrew:
    """Start and load one worker a placement; returns when all are ready.

    `devices` are by rank; further replicas of the plan are not started. Otherwise as `start_crews`.
    """
    (crew,) = _start(spec, [(plan, devices)], threads, report)
    return crew


def start_crews(
    spec: ModelSpec, plan: Plan, devices: Sequence[Device], threads: int, report: Report
) -> tuple[ProcessCrew, ...]:
    """Start and load a crew for each replica, all at once; returns when all are ready.

    `devices` has every device that the plan names, and may have more. `threads` is for each CPU
    worker. `report` gets stored bytes done and total of all replicas; whatever it raises stops the
    loading and is passed on. Raises `WorkerError`; on any exception, `KeyboardInterrupt` included,
    nothing is left running and no file behind.
    """
    by_id = {device.id: device for device in devices}
    plans = replica_plans(plan)
    placed = [(one, [by_id[p.device] for p in one.placements]) for one in plans]
    return _start(spec, placed, threads, report)


def _start(
    spec: ModelSpec,
    placed: Sequence[tuple[Plan, Sequence[Device]]],
    threads: int,
    report: Report,
) -> tuple[ProcessCrew, ...]:
    crews: list[ProcessCrew] = []
    events: Events = queue.SimpleQueue()
    with ExitStack() as undo:
        undo.callback(_close, crews)
        try:
            for plan, devices in placed:
                crews.append(ProcessCrew(sum(len(crew.ranks) for crew in crews), events))
                crews[-1].start(spec, plan, devices, threads)
            _load(crews, events, report)
        except OSError as error:
            raise LocalTpError(
                f"cannot start the workers ({error}): use fewer, or free some"
            ) from error
        undo.pop_all()
    return tuple(crews)


def _load(crews: Sequence[ProcessCrew], events: Events, report: Report) -> None:
    """Wait until every rank of every crew is ready."""
    crew_of = {rank: crew for crew in crews for rank in crew.ranks}
    progress = dict.fromkeys(crew_of, (0, 0))
    waiting = set(crew_of)
    while waiting:
        rank, answer = events.get()
        failure = crew_of[rank].failure()
        if failure is not None:
            raise failure
        if isinstance(answer, wire.Ready):
            crew_of[rank].measured[rank] = answer.measured
            waiting.remove(rank)
        elif isinstance(answer, wire.Loaded):
            progress[rank] = (answer.done, answer.total)
            done, total = map(sum, zip(*progress.values(), strict=True))
            report(done, total)
    for crew in crews:
        crew.loaded()


def _close(crews: Sequence[ProcessCrew]) -> None:
    for crew in crews:
        crew.ask_to_stop()
    for crew in crews:
        crew.close()
