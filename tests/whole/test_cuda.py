"""The same code on cards: one card against the CPU, two cards by NCCL against one."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import engine_over

from local_tp.checkpoint.read import read
from local_tp.core import Goal, Rig, Sampling, Split
from local_tp.hardware.devices import resolve_devices
from local_tp.hardware.probe import probe
from local_tp.plan.planner import make_plan
from local_tp.runtime.crew import start_crew

PROMPT = list(range(1000, 1040))


def tokens_on(starter: Path, rig: Rig, names: list[str], split: Split) -> tuple[int, ...]:
    """Sixteen greedy tokens in float32 on the named devices."""
    checkpoint = read(starter)
    devices = resolve_devices(names, rig)
    plan = make_plan(
        checkpoint.spec, devices, Goal(split=split, dtype="float32", context=128, streams=1)
    )
    crew = start_crew(checkpoint.spec, plan, devices, 1, lambda done, total: None)
    engine = engine_over(checkpoint, plan, crew)
    try:
        return engine.submit(PROMPT, Sampling(), max_tokens=16).result().tokens
    finally:
        engine.close()


@pytest.mark.gpu
def test_one_card_says_what_the_cpu_says(starter: Path) -> None:
    rig = probe()
    assert tokens_on(starter, rig, ["cuda:0"], "single") == tokens_on(
        starter, rig, ["cpu"], "single"
    )


@pytest.mark.gpu
def test_two_workers_on_one_card_go_through_the_host(starter: Path) -> None:
    rig = probe()
    assert tokens_on(starter, rig, ["cuda:0", "cuda:0"], "tensor") == tokens_on(
        starter, rig, ["cpu"], "single"
    )


@pytest.mark.gpu(cards=2)
@pytest.mark.parametrize("split", ["tensor", "layer"])
def test_two_cards_say_what_one_says(starter: Path, split: Split) -> None:
    rig = probe()
    assert tokens_on(starter, rig, ["cuda:0", "cuda:1"], split) == tokens_on(
        starter, rig, ["cuda:0"], "single"
    )
