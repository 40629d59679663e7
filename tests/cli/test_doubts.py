"""Measuring what decides: which keys name what, and what is said of the new answer."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest
from explained import CARD, PROCESSOR, RIG, TENSOR, A, B, placement, plan

from local_tp.cli import doubts
from local_tp.cli.decide import Decided
from local_tp.cli.doubts import NOTHING, compared, decided_again, to_measure
from local_tp.core import Goal, Plan, Rig
from local_tp.hardware.measuring.scope import Scope
from local_tp.plan.planner import Knowledge

SECOND = RIG.devices[1]


def test_a_key_names_a_pair_or_a_crew() -> None:
    found = to_measure(
        RIG,
        (
            f"link {A} {B}: not measured; if it is 3 times slower",
            f"link {B} {A}: the same pair",
            f"collective nccl {A} {B}: not measured",
            "collective shared-memory cpu cpu: not measured",
        ),
    )
    assert found == Scope(
        (),
        ((SECOND, CARD),),
        (
            (("nccl",), (CARD, SECOND)),
            (("shared-memory", "gloo"), (PROCESSOR, PROCESSOR)),
        ),
    )


def test_a_crew_of_other_ranks_is_measured_alone() -> None:
    found = to_measure(RIG, ("collective gloo cpu cpu cpu: not measured",))
    assert found.collectives == ((("gloo",), (PROCESSOR,) * 3),)


@pytest.mark.parametrize(
    "doubt",
    [
        "the weather: not measured",
        f"link {A}: one end",
        f"link {A} 0000:09:00.0: nowhere",
        f"link {A} cpu: no pair that is measured",
        f"collective smoke {A} {B}: no transport",
        f"collective nccl {A}: alone",
        "",
    ],
)
def test_other_keys_name_nothing(doubt: str) -> None:
    assert to_measure(RIG, (doubt,)) == Scope((), (), ())


def decided(made: Plan) -> Decided:
    from local_tp.hardware.rates import load_rates

    return Decided(None, RIG, Goal(), Knowledge(load_rates()), made, 1)  # type: ignore[arg-type]


def test_where_nothing_is_doubtful_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*arguments: object, **options: object) -> Rig:
        raise AssertionError("something was measured")

    monkeypatch.setattr(doubts, "measure", measure)
    lines: list[str] = []
    before = decided(replace(TENSOR, doubts=()))
    assert decided_again(argparse.Namespace(), before, lines.append) is before
    assert lines == [NOTHING]


def test_just_what_is_doubtful_is_measured_and_decided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scopes: list[Scope] = []
    measured = replace(RIG, links=(replace(RIG.links[0], measured=True, bandwidth=1e9),))

    def measure(rig: Rig, *, scope: Scope, **options: object) -> Rig:
        scopes.append(scope)
        return measured

    single = plan(placement(0, A), split="single")
    rigs: list[Rig] = []

    def decide(parsed: object, spec: object, rig: Rig, report: object) -> Decided:
        rigs.append(rig)
        return replace(before, rig=rig, plan=single)

    monkeypatch.setattr(doubts, "measure", measure)
    monkeypatch.setattr(doubts, "decide", decide)
    before, lines = decided(TENSOR), list[str]()
    after = decided_again(argparse.Namespace(), before, lines.append)
    assert after.plan == single
    assert rigs == [measured]
    assert [scope.pairs for scope in scopes] == [((CARD, SECOND),)]
    assert lines == [
        "measured: single split instead of tensor, predicted 93.6 tokens/s instead of 93.6"
    ]


def test_a_plan_that_stays_is_said_to_stay() -> None:
    assert TENSOR.prediction is not None
    faster = replace(TENSOR, prediction=replace(TENSOR.prediction, decode=99.0))
    assert compared(TENSOR, faster) == (
        "measured: the plan stays, predicted 99 tokens/s instead of 93.6"
    )
    assert compared(replace(TENSOR, prediction=None), faster) == "measured: the plan stays"
