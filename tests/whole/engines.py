"""Real engines over real worker processes, for the tests of the whole line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from local_tp.checkpoint.read import Checkpoint, read
from local_tp.core import Goal, Plan, Transport
from local_tp.engine.engine import Engine
from local_tp.engine.template import ChatTemplate
from local_tp.engine.tokenizer import Tokenizer
from local_tp.hardware.devices import resolve_devices
from local_tp.hardware.probe import probe
from local_tp.hardware.rates import load_rates
from local_tp.plan.planner import Knowledge, make_plan
from local_tp.runtime.crew import ProcessCrew, start_crew


@contextmanager
def running(
    path: Path, ranks: int, goal: Goal, transport: Transport | None = None
) -> Iterator[tuple[Engine, ProcessCrew]]:
    """An engine over `ranks` CPU workers, and its crew; `transport` overrides the plan's."""
    checkpoint = read(path)
    plan, devices = planned(checkpoint, ranks, goal)
    if transport is not None:
        plan = replace(plan, transport=transport)
    crew = start_crew(checkpoint.spec, plan, devices, 1, lambda done, total: None)
    engine = engine_over(checkpoint, plan, crew)
    try:
        yield engine, crew
    finally:
        engine.close()


def planned(checkpoint: Checkpoint, ranks: int, goal: Goal) -> tuple[Plan, tuple]:
    devices = resolve_devices(["cpu"] * ranks, probe())
    return make_plan(checkpoint.spec, devices, goal, Knowledge(load_rates())), devices


def engine_over(checkpoint: Checkpoint, plan: Plan, *crews: ProcessCrew) -> Engine:
    tokenizer = Tokenizer.from_spec(checkpoint.text)
    template = ChatTemplate(checkpoint.text.chat_template, tokenizer.bos_text, tokenizer.eos_text)
    return Engine("model", checkpoint.spec, plan, tokenizer, template, lambda: crews)
