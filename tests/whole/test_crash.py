"""Workers that die, fail, or lose their parent: seen at once, named, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from engines import planned, running

from local_tp.checkpoint.read import read
from local_tp.core import Goal, Sampling
from local_tp.errors import ModelGone, WorkerDied, WorkerFault
from local_tp.runtime.crew import start_crew

GOAL = Goal(split="tensor", context=1024, streams=2)


def wait_until_gone(pids: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its time"
        time.sleep(0.02)


def test_a_killed_worker_ends_requests_within_a_second(starter: Path) -> None:
    with running(starter, 2, GOAL) as (engine, crew):
        pids = [worker.pid for worker in crew.health()]
        running_one = engine.submit([5, 6, 7], Sampling(), max_tokens=900, ignore_eos=True)
        chunks = iter(running_one)
        next(chunks)
        os.kill(pids[1], signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(WorkerDied, match=r"worker 1 on cpu died \(signal 9\)"):
            for _ in chunks:
                pass
        assert time.monotonic() - started < 1.0
        health = engine.health()
        assert (health.ok, health.state) == (False, "failed")
        assert "worker 1 on cpu died" in health.detail
        with pytest.raises(WorkerDied):
            engine.submit([5], Sampling())
        wait_until_gone(pids, 2.0)


def test_a_worker_killed_while_chunks_are_under_way_ends_their_reader(starter: Path) -> None:
    goal = Goal(split="layer", context=1024, streams=2, chunk=32)
    with running(starter, 2, goal) as (engine, crew):
        scored = engine.submit(list(range(1000, 1900)), Sampling(), max_tokens=4, score_prompt=0)
        while not scored.prompt_scores:
            time.sleep(0.01)
        os.kill(crew.health()[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"worker 0 on cpu died \(signal 9\)"):
            scored.result()
        assert len(scored.prompt_scores) < 899
        assert engine.health().state == "failed"


def test_an_idle_worker_that_dies_shows_in_health(starter: Path) -> None:
    with running(starter, 2, GOAL) as (engine, crew):
        os.kill(crew.health()[0].pid, signal.SIGKILL)
        deadline = time.monotonic() + 1.0
        while engine.health().ok:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(WorkerDied, match="worker 0"):
            engine.submit([5], Sampling()).result()


def test_a_worker_that_raises_passes_its_traceback_on(starter: Path) -> None:
    """A file that shrinks between planning and loading."""
    checkpoint = read(starter)
    plan, devices = planned(checkpoint, 2, GOAL)
    broken = dict(checkpoint.spec.tensors)
    broken["norm"] = replace(broken["norm"], offset=1 << 40)
    spec = replace(checkpoint.spec, tensors=broken)
    with pytest.raises(WorkerFault, match=r"worker [01] on cpu failed") as caught:
        start_crew(spec, plan, devices, 1, lambda done, total: None)
    assert "Traceback" in caught.value.traceback
    assert "loader.py" in caught.value.traceback
    assert psutil.Process().children() == []


def test_a_model_that_is_gone_is_said_in_one_line(starter: Path, tmp_path: Path) -> None:
    """Deleted between planning and loading."""
    copy = tmp_path / "model.gguf"
    copy.symlink_to(starter)
    checkpoint = read(copy)
    plan, devices = planned(checkpoint, 2, GOAL)
    copy.unlink()
    with pytest.raises(
        ModelGone, match=r"cannot read the model \(FileNotFoundError.*model.gguf"
    ) as caught:
        start_crew(checkpoint.spec, plan, devices, 1, lambda done, total: None)
    assert caught.value.exit_code == 2
    assert psutil.Process().children() == []


def test_workers_die_with_their_parent(starter: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from engines import running\n"
        "from local_tp.core import Goal\n"
        "with running(Path(sys.argv[1]), 2, Goal(split='layer', context=64)) as (engine, crew):\n"
        "    print(*(worker.pid for worker in crew.health()), flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(starter)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(pids, 2.0)


def test_interrupted_loading_leaves_nothing(starter: Path) -> None:
    checkpoint = read(starter)
    plan, devices = planned(checkpoint, 2, GOAL)

    def interrupt(done: int, total: int) -> None:
        assert 0 < done <= total
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_crew(checkpoint.spec, plan, devices, 1, interrupt)
    assert psutil.Process().children() == []
