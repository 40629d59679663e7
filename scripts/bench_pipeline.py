"""How much a prompt gains when the stages of a layer split work on different chunks of it.

    python scripts/bench_pipeline.py MODEL [--ranks 2] [--tokens 2048] [--chunk 256] [--rounds 7]

CPU workers of one thread each. Chunks one by one and chunks in flight take turns in one run, so
that a busy machine slows both alike; the ratio of each round is what counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from pathlib import Path

from local_tp.checkpoint.read import read
from local_tp.core import Goal, Row, Sampling, Step
from local_tp.hardware.devices import resolve_devices
from local_tp.hardware.probe import probe
from local_tp.hardware.rates import load_rates
from local_tp.plan.planner import Knowledge, make_plan
from local_tp.runtime.crew import ProcessCrew, start_crew


def steps(tokens: int, chunk: int) -> list[Step]:
    """A prompt in chunks, the last of which is sampled."""
    prompt = tuple(range(1000, 1000 + tokens))
    pages = tuple(range(-(-tokens // 32)))
    starts = range(0, tokens, chunk)
    return [
        Step(at, (Row(0, prompt[at : at + chunk], at, pages, Sampling() if last else None),))
        for at, last in ((at, at == starts[-1]) for at in starts)
    ]


def seconds(crew: ProcessCrew, todo: list[Step], depth: int) -> float:
    """Of the whole prompt, with `depth` chunks under way at most."""
    started, under_way = time.perf_counter(), 0
    waiting = deque(todo)
    while waiting or under_way:
        while waiting and under_way < depth:
            crew.send(waiting.popleft())
            under_way += 1
        crew.receive()
        under_way -= 1
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    for name, default in (("ranks", 2), ("tokens", 2048), ("chunk", 256), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    asked = parser.parse_args()
    spec = read(asked.model).spec
    goal = Goal(split="layer", context=asked.tokens + 1, streams=1, chunk=asked.chunk)
    devices = resolve_devices(["cpu"] * asked.ranks, probe())
    plan = make_plan(spec, devices, goal, Knowledge(load_rates()))
    crew = start_crew(spec, plan, devices, 1, lambda done, total: None)
    todo = steps(asked.tokens, asked.chunk)
    try:
        seconds(crew, todo, 1)
        rounds = [
            (seconds(crew, todo, 1), seconds(crew, todo, asked.ranks)) for _ in range(asked.rounds)
        ]
    finally:
        crew.close()
    for name, series in (
        ("one by one", [a for a, _ in rounds]),
        ("in flight", [b for _, b in rounds]),
    ):
        rates = sorted(asked.tokens / value for value in series)
        print(f"{name}: {statistics.median(rates):.0f} tokens/s ({rates[0]:.0f}-{rates[-1]:.0f})")
    ratios = sorted(before / after for before, after in rounds)
    print(f"ratio: {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
