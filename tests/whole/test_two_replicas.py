"""Several copies of a model in real processes: the same text as alone, at once, and one death."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from engines import engine_over, planned, running

from local_tp.checkpoint.read import Checkpoint, read
from local_tp.core import Goal, Sampling
from local_tp.engine.engine import Engine
from local_tp.errors import WorkerDied, WorkerFault
from local_tp.runtime.crew import ProcessCrew, start_crews

GOAL = Goal(context=256, streams=2)
PROMPTS = [list(range(1000 + 50 * i, 1020 + 50 * i)) for i in range(4)]


def start_two(
    checkpoint: Checkpoint, ranks: int, goal: Goal
) -> tuple[Engine, tuple[ProcessCrew, ...], list[tuple[int, int]]]:
    """An engine over two replicas of `ranks` CPU workers, its crews, and what loading reported."""
    plan, devices = planned(checkpoint, ranks, goal)
    plan = replace(plan, copies=(("cpu",) * ranks,))
    seen: list[tuple[int, int]] = []
    crews = start_crews(
        checkpoint.spec, plan, devices[:1], 1, lambda done, total: seen.append((done, total))
    )
    return engine_over(checkpoint, plan, *crews), crews, seen


@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("layer", 2)])
def test_two_replicas_give_the_same_text_as_one_and_both_run(
    starter: Path, split: str, ranks: int
) -> None:
    goal = replace(GOAL, split=split)
    with running(starter, ranks, goal) as (engine, _):
        alone = [engine.submit(p, Sampling(), max_tokens=24).result().tokens for p in PROMPTS]
    assert len(set(alone)) == len(PROMPTS)
    checkpoint = read(starter)
    engine, crews, seen = start_two(checkpoint, ranks, goal)
    try:
        assert [worker.rank for crew in crews for worker in crew.health()] == list(range(2 * ranks))
        assert sorted(engine.measured) == list(range(2 * ranks))
        assert seen[-1][0] == seen[-1][1], "one progress, to the end"
        assert seen[-1][1] >= 2 * sum(t.nbytes for t in checkpoint.spec.tensors.values()) * 0.9
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        before = [[cpu_seconds(worker.pid) for worker in crew.health()] for crew in crews]
        asked = [engine.submit(prompt, Sampling(), max_tokens=24) for prompt in PROMPTS]
        assert [generation.result().tokens for generation in asked] == alone
        for crew, times in zip(crews, before, strict=True):
            for worker, seconds in zip(crew.health(), times, strict=True):
                assert cpu_seconds(worker.pid) > seconds, "a worker had nothing to do"
    finally:
        engine.close()
    assert psutil.Process().children() == []


def test_a_killed_replica_ends_its_requests_and_the_other_goes_on(starter: Path) -> None:
    engine, crews, _ = start_two(read(starter), 1, GOAL)
    try:
        first, second = (
            engine.submit(prompt, Sampling(), max_tokens=200, ignore_eos=True)
            for prompt in PROMPTS[:2]
        )
        chunks = iter(second)
        next(chunks)
        os.kill(crews[1].health()[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"worker 1 on cpu died \(signal 9\)"):
            for _ in chunks:
                pass
        health = engine.health()
        assert (health.ok, health.state) == (False, "degraded")
        assert "1 of 2 replicas failed, the others go on: worker 1 on cpu" in health.detail
        assert [worker.alive for worker in health.workers] == [True, False]
        assert len(first.result().tokens) == 200
        assert len(engine.submit(PROMPTS[2], Sampling(), max_tokens=3).result().tokens) == 3
    finally:
        engine.close()
    assert psutil.Process().children() == []


def test_a_replica_that_cannot_load_ends_the_loading_of_all(starter: Path) -> None:
    checkpoint = read(starter)
    tensors = dict(checkpoint.spec.tensors)
    tensors["norm"] = replace(tensors["norm"], offset=1 << 40)
    broken = replace(checkpoint, spec=replace(checkpoint.spec, tensors=tensors))
    with pytest.raises(WorkerFault, match=r"worker [01] on cpu failed"):
        start_two(broken, 1, GOAL)
    assert psutil.Process().children() == []


def test_an_interrupted_start_leaves_nothing(starter: Path) -> None:
    checkpoint = read(starter)
    plan, devices = planned(checkpoint, 1, GOAL)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_crews(checkpoint.spec, replace(plan, copies=(("cpu",),)), devices, 1, interrupt)
    assert psutil.Process().children() == []


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
