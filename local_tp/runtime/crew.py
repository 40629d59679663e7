"""The parent's side: starts one worker process a rank, feeds them steps, and sees them die.

Torch-free. A crew lives until it is closed or one of its workers fails; then all are ended, their
memory is free, and every later call raises what happened. `Crew` is the seam that the engine and
its tests know.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from local_tp.core import Device, ModelSpec, Plan, RowResult, Step
from local_tp.errors import LocalTpError, ModelGone, WorkerDied, WorkerError, WorkerFault
from local_tp.runtime import wire
from local_tp.runtime.arena import SharedMemory, cut_arena
from local_tp.runtime.process import WorkerProcess

COLLECTIVE_TIMEOUT = 120.0  # seconds that ranks wait for one another before they give up
CLOSE_SECONDS = 2.0


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

    def run(self, step: Step) -> tuple[RowResult, ...]:
        """Run one step everywhere. Raises `WorkerError` and ends the crew if a worker fails."""

    def failure(self) -> WorkerError | None:
        """What ended the crew, if something did."""

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify`, from another thread, when a worker fails while nobody runs a step."""

    def health(self) -> tuple[WorkerHealth, ...]:
        """Every worker, dead or alive."""

    def close(self) -> None:
        """End every worker and wait until it is gone."""


class ProcessCrew:
    """One process a placement."""

    def __init__(self) -> None:
        self._processes: list[WorkerProcess] = []
        self._listeners: list[threading.Thread] = []
        self.memory: SharedMemory | None = None
        self.folder: Path | None = None  # where ranks meet that do not share memory
        self._events: queue.SimpleQueue[tuple[int, wire.Answer | None]] = queue.SimpleQueue()
        self._failure: WorkerError | None = None
        self._notify: Callable[[], None] = lambda: None
        self._closing = self._closed = False
        self.measured: dict[int, wire.Measured] = {}

    def add(self, process: WorkerProcess) -> None:
        """Take in the next rank and listen to it."""
        rank = len(self._processes)
        listener = threading.Thread(
            target=self._listen, args=(rank, process), name=f"worker-{rank}", daemon=True
        )
        self._processes.append(process)
        self._listeners.append(listener)
        listener.start()

    def tidy(self) -> None:
        """Remove what workers needed to find one another, once they have."""
        if self.memory is not None:
            self.memory.remove()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def load(self, messages: Sequence[wire.Load], report: Callable[[int, int], None]) -> None:
        """Send each rank its `Load` and wait for all; `report` gets stored bytes done and total.

        Raises `WorkerError`. Whatever `report` raises stops the loading and is passed on.
        """
        for process, message in zip(self._processes, messages, strict=True):
            process.send(message)
        progress = dict.fromkeys(range(len(self._processes)), (0, 0))
        while len(self.measured) < len(self._processes):
            rank, answer = self._next()
            if isinstance(answer, wire.Ready):
                self.measured[rank] = answer.measured
            elif isinstance(answer, wire.Loaded):
                progress[rank] = (answer.done, answer.total)
                report(
                    sum(done for done, _ in progress.values()),
                    sum(total for _, total in progress.values()),
                )

    def run(self, step: Step) -> tuple[RowResult, ...]:
        if self._failure is not None:
            raise self._failure
        for process in self._processes:
            process.send(wire.Run(step))
        while True:
            _, answer = self._next()
            if isinstance(answer, wire.Done):
                assert answer.number == step.number
                return answer.results

    def failure(self) -> WorkerError | None:
        return self._failure

    def watch(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def health(self) -> tuple[WorkerHealth, ...]:
        return tuple(
            WorkerHealth(rank, p.device, p.pid, p.alive) for rank, p in enumerate(self._processes)
        )

    def close(self) -> None:
        if self._closed:
            return
        self._closing = self._closed = True
        for process in self._processes:
            process.ask_to_stop()
        for process, listener in zip(self._processes, self._listeners, strict=True):
            process.end(CLOSE_SECONDS)
            listener.join()
            process.release()
        self.tidy()

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
    spec: ModelSpec,
    plan: Plan,
    devices: Sequence[Device],
    threads: int,
    report: Callable[[int, int], None],
) -> ProcessCrew:
    """Start and load one worker a placement; returns when all are ready.

    `threads` is for each CPU worker. Raises `WorkerError`; on any exception, `KeyboardInterrupt`
    included, nothing is left running and no file behind.
    """
    crew = ProcessCrew()
    try:
        memory = meeting = None
        if plan.transport == "shared-memory":
            crew.memory = SharedMemory(cut_arena(spec, plan).nbytes)
            memory = crew.memory.path
        elif plan.transport != "none":
            crew.folder = Path(tempfile.mkdtemp(prefix="local_tp-"))
            meeting = str(crew.folder / "meeting")
        messages = [
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
            for p in plan.placements
        ]
        for p in plan.placements:
            crew.add(WorkerProcess(p.rank, devices[p.rank], threads))
        crew.load(messages, report)
        crew.tidy()
    except OSError as error:
        crew.close()
        raise LocalTpError(
            f"cannot start the workers ({error}): use fewer, or free some"
        ) from error
    except BaseException:
        crew.close()
        raise
    return crew
