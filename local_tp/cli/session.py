"""From options to a running engine, in steps that commands may stop between.

Everything that can be refused is refused before a worker starts: the file, the devices, the plan,
the prompt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from local_tp.checkpoint.read import Checkpoint
from local_tp.cli.decide import Decided, decide, worker_devices
from local_tp.cli.subject import checkpoint_of
from local_tp.core import Device, Plan, Rig
from local_tp.engine.engine import Engine
from local_tp.engine.fill import RankMemory, fill, kept_figures
from local_tp.engine.template import ChatTemplate
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import LocalTpError
from local_tp.hardware.measuring.cache import default_folder
from local_tp.hardware.measuring.measure import with_kept
from local_tp.hardware.memory_ratios import MemoryRatios
from local_tp.hardware.probe import probe
from local_tp.runtime.crew import start_crews


@dataclass(frozen=True, slots=True)
class Planned:
    """A model read and placed, before any worker exists; `devices` are by worker."""

    checkpoint: Checkpoint
    devices: tuple[Device, ...]
    plan: Plan
    threads: int
    tokenizer: Tokenizer
    template: ChatTemplate
    decided: Decided


def plan(parsed: argparse.Namespace) -> Planned:
    """Read the model's headers, look at the machine, and plan. Raises `InputError`.

    What several cards would use between them is tried once for each machine: a plan that is to
    run stands on nothing unverified.
    """
    checkpoint = checkpoint_of(parsed, say)
    tokenizer = Tokenizer.from_spec(checkpoint.text)
    for doubt in checkpoint.text.doubts:
        say(doubt)
    decided = decide(parsed, checkpoint.spec, this_machine(), say, runs=True)
    return Planned(
        checkpoint=checkpoint,
        devices=worker_devices(decided.rig, decided.plan),
        plan=decided.plan,
        threads=decided.threads,
        tokenizer=tokenizer,
        template=ChatTemplate(
            checkpoint.text.chat_template,
            tokenizer.bos_text,
            tokenizer.eos_text,
            checkpoint.text.named_templates,
        ),
        decided=decided,
    )


def this_machine() -> Rig:
    """What the machine says of itself, with all that was ever measured of it."""
    return with_kept(probe(), default_folder(), say)


@contextmanager
def running(
    planned: Planned, on_failure: Callable[[LocalTpError], None] = lambda error: None
) -> Iterator[tuple[Engine, float]]:
    """The engine on its workers, and the seconds that loading took; closed at the end."""
    spec = planned.checkpoint.spec
    started = time.perf_counter()
    progress = Progress(f"loading {spec.name}")
    try:
        engine = Engine(
            spec.name,
            spec,
            planned.plan,
            planned.tokenizer,
            planned.template,
            lambda: start_crews(
                spec, planned.plan, planned.devices, planned.threads, progress.show
            ),
            on_failure,
        )
    finally:
        progress.end()
    try:
        yield engine, time.perf_counter() - started
    finally:
        engine.close()


def filled(planned: Planned) -> tuple[RankMemory, ...]:
    """What each worker of one replica took with every cache full; kept for later plans."""
    spec, whole = planned.checkpoint.spec, planned.plan
    each = replace(whole.goal, streams=-(-whole.goal.streams // whole.replicas))
    plan = replace(whole, copies=(), goal=each)
    loading, filling = (
        Progress(f"loading {spec.name}"),
        Progress("filling the context", 1, "tokens"),
    )
    try:
        (crew,) = start_crews(spec, plan, planned.devices, planned.threads, loading.show)
    finally:
        loading.end()
    try:
        ranks = fill(crew, plan, spec.dimensions.vocab, filling.show)
    finally:
        filling.end()
        crew.close()
    rig, store = planned.decided.rig, MemoryRatios(default_folder(), say)
    store.keep(kept_figures(rig, worker_devices(rig, plan), plan, ranks))
    return ranks


class Progress:
    """A line on a terminal that counts up; silent where standard error is not one."""

    def __init__(self, what: str, each: int = 1 << 20, unit: str = "MiB") -> None:
        self._what, self._each, self._unit = what, each, unit
        self._shown = sys.stderr.isatty()
        self._percent = -1

    def show(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if self._shown and percent != self._percent:
            self._percent = percent
            line = f"{self._what}: {percent:3d}% of {total // self._each:,} {self._unit}"
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown and self._percent >= 0:
            print(file=sys.stderr)


def complain(error: LocalTpError) -> None:
    """An error on its line, beside the output."""
    say(f"local-tp: {error}")


def say(line: str) -> None:
    """A line of progress, beside the output."""
    print(line, file=sys.stderr, flush=True)
