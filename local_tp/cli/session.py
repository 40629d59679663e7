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

from local_tp.checkpoint.local_models import resolve
from local_tp.checkpoint.read import Checkpoint, read
from local_tp.cli import options
from local_tp.core import Device, Plan
from local_tp.engine.engine import Engine
from local_tp.engine.template import ChatTemplate
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import LocalTpError
from local_tp.hardware.measuring.cache import default_folder
from local_tp.hardware.measuring.measure import measure
from local_tp.hardware.measuring.transport_gate import allowed_transport
from local_tp.hardware.probe import probe
from local_tp.plan.planner import make_plan
from local_tp.runtime.crew import start_crew


@dataclass(frozen=True, slots=True)
class Planned:
    """A model read and placed, before any worker exists."""

    checkpoint: Checkpoint
    devices: tuple[Device, ...]
    plan: Plan
    threads: int
    tokenizer: Tokenizer
    template: ChatTemplate


def plan(parsed: argparse.Namespace, verify: bool = True) -> Planned:
    """Read the model's headers, look at the machine, and plan. Raises `InputError`.

    `verify` tries what several cards would use between them, once for each machine: a plan that
    is to run stands on nothing unverified, one that is only looked at starts nothing.
    """
    checkpoint = read(resolve(parsed.model, say))
    rig = probe()
    placements = options.placements(parsed)
    devices = options.devices(parsed, rig, placements)
    goal = options.goal(parsed, devices, rig)
    transport = None
    reasons: tuple[str, ...] = ()
    if verify and any(device.kind != "cpu" for device in devices) and len(devices) > 1:
        rig = measure(rig, report=say, cache=default_folder())
        by_id = {device.id: device for device in rig.devices}
        devices = tuple(by_id[device.id] for device in devices)
        allowed = allowed_transport(rig, [device.id for device in devices])
        transport, reasons = allowed.best, allowed.reasons
    tokenizer = Tokenizer.from_spec(checkpoint.text)
    made = make_plan(checkpoint.spec, devices, goal, placements, transport)
    return Planned(
        checkpoint=checkpoint,
        devices=devices,
        plan=replace(made, notes=made.notes + reasons),
        threads=options.threads(parsed, devices, rig.cores),
        tokenizer=tokenizer,
        template=ChatTemplate(
            checkpoint.text.chat_template, tokenizer.bos_text, tokenizer.eos_text
        ),
    )


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
            lambda: start_crew(
                spec, planned.plan, planned.devices, planned.threads, progress.bytes_done
            ),
            on_failure,
        )
    finally:
        progress.end()
    try:
        yield engine, time.perf_counter() - started
    finally:
        engine.close()


class Progress:
    """A line on a terminal that counts up; silent where standard error is not one."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._percent = -1

    def bytes_done(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if self._shown and percent != self._percent:
            self._percent = percent
            mib = 1024 * 1024
            line = f"{self._what}: {percent:3d}% of {total // mib:,} MiB"
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
