"""What would change an answer: which questions are asked, and what is said of the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from explained import CARD, GIB, MIB, RIG, TENSOR, A, B, placement, plan

from local_tp.core import Goal, Plan, Rig
from local_tp.errors import DoesNotFit
from local_tp.plan.changes import changes, difference, questions

ANOTHER = replace(CARD, id="another card", name="GeForce RTX 4060 with 8 GB")
GOAL = Goal()


def asked(rig: Rig = RIG, goal: Goal = GOAL, made: Plan = TENSOR) -> dict[str, tuple[Rig, Goal]]:
    return {q.what: (q.rig, q.goal) for q in questions(rig, goal, made, ANOTHER)}


def faster(by: float, **other: object) -> Plan:
    assert TENSOR.prediction is not None
    speed = replace(TENSOR.prediction, decode=TENSOR.prediction.decode * by)
    return replace(TENSOR, prediction=speed, **other)  # type: ignore[arg-type]


def test_what_is_asked() -> None:
    found = asked()
    assert list(found) == [
        "for the longest context (--objective context)",
        "with a context of 2,048 instead of 4,096",
        f"with programs closed that hold 1,024 MiB on {A}",
        f"with programs closed that hold 1,024 MiB on {B}",
        "with another card, RTX 4060 with 8 GB",
        "if peer to peer is measured to work between cuda:0 and cuda:1",
        "if the link between cuda:0 and cuda:1 is measured at half the speed assumed",
    ]
    freed, _ = found[f"with programs closed that hold 1,024 MiB on {A}"]
    assert [d.free for d in freed.devices] == [24 * GIB, 11 * GIB, 60 * GIB]
    assert found["with a context of 2,048 instead of 4,096"][1].context == 2048


def test_another_card_is_one_more_device_with_links() -> None:
    rig, goal = asked(goal=Goal(devices=(A,), split="single"))[
        "with another card, RTX 4060 with 8 GB"
    ]
    assert rig.devices == (ANOTHER, *RIG.devices)
    assert {(link.a, link.b) for link in rig.links} >= {(A, ANOTHER.id), (B, ANOTHER.id)}
    assert (goal.devices, goal.split) == ((A, ANOTHER.id), None)


def test_links_are_tried_as_direct_and_as_slow() -> None:
    found = asked()
    (direct,) = found["if peer to peer is measured to work between cuda:0 and cuda:1"][0].links
    assert (direct.kind, direct.verified) == ("p2p", True)
    assert direct.bandwidth is not None
    assert direct.bandwidth > RIG.links[0].bandwidth  # type: ignore[operator]
    (slow,) = found["if the link between cuda:0 and cuda:1 is measured at half the speed assumed"][
        0
    ].links
    assert slow.bandwidth == 9.5e9 / 2
    measured = replace(RIG, links=(replace(RIG.links[0], measured=True),))
    assert not [what for what in asked(measured) if what.startswith("if ")]


def test_what_the_driver_hides_is_nobody_s_to_close() -> None:
    hidden = replace(CARD, facts=replace(CARD.facts, hidden=GIB))
    found = asked(replace(RIG, devices=(hidden, RIG.devices[-1]), links=()))
    assert not [what for what in found if "closed" in what]


def answers(*plans: Plan | None) -> Callable[[Rig, Goal], Plan]:
    left = iter(plans)

    def answer(rig: Rig, goal: Goal) -> Plan:
        made = next(left)
        if made is None:
            raise DoesNotFit(A, 2 * MIB, MIB, "no")
        return made

    return answer


def test_only_what_makes_a_difference_is_told() -> None:
    context = replace(faster(1.0), goal=Goal(objective="context"), context=9000)
    single = faster(1.5, placements=(placement(0, A),), split="single")
    planner = answers(context, faster(1.01), None, single, faster(0.5), faster(1.0), faster(0.5))
    assert list(changes(RIG, GOAL, TENSOR, planner, ANOTHER)) == [
        "for the longest context (--objective context): context 9,000 instead of 4,096",
        f"with programs closed that hold 1,024 MiB on {B}: 140 tokens/s instead of 93.6, "
        "single on cuda:0",
        "if the link between cuda:0 and cuda:1 is measured at half the speed assumed: "
        "46.8 tokens/s instead of 93.6",
    ]


def test_a_shorter_longest_context_is_no_news() -> None:
    shorter = replace(faster(2.0), goal=Goal(objective="context"), context=3000)
    planner = answers(shorter, None, None, None, None, None, None)
    assert list(changes(RIG, GOAL, TENSOR, planner, ANOTHER)) == []


def test_a_longer_context_is_worth_a_slower_answer() -> None:
    more = replace(faster(0.9), context=8000)
    planner = answers(None, None, None, None, more, None, None)
    assert list(changes(RIG, GOAL, TENSOR, planner, ANOTHER)) == [
        "with another card, RTX 4060 with 8 GB: 84.2 tokens/s instead of 93.6, "
        "context 8,000 instead of 4,096"
    ]


def test_for_serving_it_is_all_tokens_that_count() -> None:
    serving = replace(TENSOR, goal=replace(TENSOR.goal, objective="serve"))
    assert serving.prediction is not None
    twice = replace(serving.prediction, aggregate=500.0)
    said = difference(RIG, serving, replace(serving, prediction=twice))
    assert said == "500 tokens/s instead of 250"


def test_a_plan_is_no_different_from_itself() -> None:
    assert difference(RIG, TENSOR, TENSOR) == ""
    assert difference(RIG, plan(placement(0, A), prediction=None), TENSOR) == ""


def test_a_later_first_token_is_a_difference() -> None:
    assert TENSOR.prediction is not None
    slow = replace(TENSOR, prediction=replace(TENSOR.prediction, first_token=2.0))
    assert difference(RIG, TENSOR, slow) == "first token after 2 s instead of 0.59 s"
