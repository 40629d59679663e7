"""At most five rank processes for a whole test session, which take one model after another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from local_tp.checkpoint.read import read
from local_tp.core import Device, Goal, ModelSpec, Plan, RowResult, Step
from local_tp.hardware.rates import load_rates
from local_tp.plan.layout import weight_bytes
from local_tp.plan.planner import Knowledge, make_plan
from local_tp.runtime import wire
from local_tp.runtime.arena import SharedMemory, cut_arena

ROOT = Path(__file__).parents[2]
MOST = 5
SECONDS = 20.0  # that ranks wait for one another
CPU = Device("cpu", "cpu", "processor", 1 << 34, 1 << 34)

Run = Callable[[Step], tuple[RowResult, ...]]


class RankPool:
    """Processes are started when a split first needs them, and all anew after a fault."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers = ThreadPoolExecutor(MOST)

    @contextmanager
    def running(self, spec: ModelSpec, plan: Plan) -> Iterator[Run]:
        """The plan's ranks with their weights; what is yielded runs a step on all of them."""
        count = len(plan.placements)
        assert count <= MOST
        while len(self._processes) < count:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).parent / "family_rank.py")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=ROOT,
                    env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
                )
            )
        memory = SharedMemory(cut_arena(spec, plan).nbytes)
        try:
            self._load(spec, plan, memory.path)
        finally:
            memory.remove()

        def run(step: Step) -> tuple[RowResult, ...]:
            done = self._ask([wire.Run(step)] * count)
            return next((d.results for d in done if isinstance(d, wire.Done) and d.results), ())

        yield run

    @contextmanager
    def reading(self, path: Path, ranks: int, goal: Goal) -> Iterator[tuple[Run, Plan]]:
        """The model at `path` as the planner cuts it for so many workers on the processor."""
        spec = read(path).spec
        plan = make_plan(spec, (CPU,) * ranks, goal, Knowledge(load_rates()))
        with self.running(spec, plan) as run:
            yield run, plan

    def close(self) -> None:
        """End every process."""
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
        self._processes.clear()

    def _load(self, spec: ModelSpec, plan: Plan, memory: str) -> None:
        """Every rank loads, and holds as many bytes of weights as the planner says."""
        shared = memory if plan.transport == "shared-memory" else None
        devices = (CPU,) * len(plan.placements)
        ready = self._ask(
            [
                wire.Load(spec, plan, p.rank, devices, 1, shared, None, SECONDS)
                for p in plan.placements
            ]
        )
        for placement, said in zip(plan.placements, ready, strict=True):
            assert isinstance(said, wire.Ready)
            planned = weight_bytes(spec, placement, plan.goal.dtype, "cpu")
            assert said.measured.weights == planned

    def _ask(self, commands: Sequence[wire.Command]) -> list[wire.Answer]:
        """What each rank answers; the first fault ends all processes and fails the test."""
        asked = {
            self._readers.submit(_exchange, process, command): rank
            for rank, (process, command) in enumerate(zip(self._processes, commands, strict=False))
        }
        answers: dict[int, wire.Answer] = {}
        fault = None
        for future in as_completed(asked):
            said = future.result()
            if fault is None and (said is None or isinstance(said, wire.Fault)):
                fault = said.traceback if isinstance(said, wire.Fault) else "a rank is gone"
                for process in self._processes:
                    process.kill()
            elif said is not None:
                answers[asked[future]] = said
        if fault is not None:
            self.close()
            raise AssertionError(fault)
        return [answers[rank] for rank in range(len(commands))]


def _exchange(process: subprocess.Popen[bytes], command: wire.Command) -> wire.Answer | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        wire.write(process.stdin, command)  # type: ignore[arg-type]
        said = wire.read(process.stdout)  # type: ignore[arg-type]
    except BrokenPipeError:
        return None
    assert not isinstance(said, wire.Command)
    return said
