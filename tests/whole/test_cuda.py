"""The same code on cards: alone, several, before a stage on the processor, with streamed layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engines import engine_over

from local_tp.checkpoint.read import read
from local_tp.core import Goal, Rig, Sampling, Span, Split
from local_tp.hardware.devices import resolve_devices
from local_tp.hardware.probe import probe
from local_tp.hardware.rates import load_rates
from local_tp.plan.planner import Knowledge, make_plan
from local_tp.runtime.crew import start_crews

PROMPT = list(range(1000, 1040))


def tokens_on(
    starter: Path,
    rig: Rig,
    names: list[str],
    split: Split,
    streamed: int = 0,
    copies: tuple[tuple[str, ...], ...] = (),
) -> tuple[int, ...]:
    """Sixteen greedy tokens in float32 on the named devices, the same from every replica.

    The first `streamed` layers of every card are streamed.
    """
    checkpoint = read(starter)
    devices = resolve_devices(names, rig)
    goal = Goal(
        split=split, dtype="float32", kv_format="float32", context=128, streams=1, offload="none"
    )
    plan = make_plan(checkpoint.spec, devices, goal, Knowledge(load_rates()))
    plan = replace(
        plan,
        placements=tuple(
            replace(p, streamed=Span(p.layers.start, p.layers.start + streamed))
            for p in plan.placements
        ),
        copies=tuple(tuple(d.id for d in resolve_devices(list(copy), rig)) for copy in copies),
    )
    crews = start_crews(checkpoint.spec, plan, rig.devices, 1, lambda done, total: None)
    engine = engine_over(checkpoint, plan, *crews)
    try:
        asked = [engine.submit(PROMPT, Sampling(), max_tokens=16) for _ in crews]
        answers = {generation.result().tokens for generation in asked}
    finally:
        engine.close()
    assert len(answers) == 1
    return answers.pop()


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


@pytest.mark.gpu
@pytest.mark.parametrize("names", [["cuda:0", "cpu"], ["cpu", "cuda:0"]])
def test_a_card_and_the_processor_share_the_layers(starter: Path, names: list[str]) -> None:
    rig = probe()
    assert tokens_on(starter, rig, names, "layer") == tokens_on(starter, rig, ["cpu"], "single")


@pytest.mark.gpu
@pytest.mark.parametrize("streamed", [1, 2, 7, 30])
def test_layers_streamed_to_a_card_say_the_same(starter: Path, streamed: int) -> None:
    rig = probe()
    assert tokens_on(starter, rig, ["cuda:0"], "single", streamed) == tokens_on(
        starter, rig, ["cuda:0"], "single"
    )


@pytest.mark.gpu(cards=2)
@pytest.mark.parametrize("split", ["tensor", "layer"])
def test_two_cards_say_what_one_says(starter: Path, split: Split) -> None:
    rig = probe()
    assert tokens_on(starter, rig, ["cuda:0", "cuda:1"], split) == tokens_on(
        starter, rig, ["cuda:0"], "single"
    )


@pytest.mark.gpu(cards=2)
def test_a_copy_on_each_card_says_the_same(starter: Path) -> None:
    rig = probe()
    assert tokens_on(starter, rig, ["cuda:0"], "single", copies=(("cuda:1",),)) == tokens_on(
        starter, rig, ["cuda:0"], "single"
    )
