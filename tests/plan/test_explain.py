"""What is said of a plan: its own figures, each device's bytes, and what was not measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from explained import CARD, GIB, LAYER, MIB, PREDICTION, RIG, TENSOR, A, B, placement, plan

from local_tp.core import Link, Plan, Rig
from local_tp.plan import trust
from local_tp.plan.explain import (
    Way,
    device_uses,
    every_placement,
    explain,
    headline,
    largest_terms,
    named,
    unsure,
    ways,
)
from local_tp.plan.memory import host_bytes_of_plan, memory_terms


def test_every_term_of_a_device_is_there_and_they_add_up() -> None:
    first, second, beside = device_uses(RIG, TENSOR)
    assert (first.device, first.label, first.name) == (A, "cuda:0", "RTX 3090")
    assert dict(first.terms) == {
        name: nbytes for name, nbytes in memory_terms(TENSOR.placements[0].memory)[:-2] if nbytes
    }
    for use in (first, second, beside):
        assert sum(nbytes for _, nbytes in use.terms) == use.used
    assert (first.weights, first.kv) == (2000 * MIB, 304 * MIB + 1)
    assert first.replicated == 10 * MIB


def test_what_is_kept_free_is_what_a_person_said_or_the_device_s_own() -> None:
    first, second, _ = device_uses(RIG, TENSOR)
    assert (first.reserve, second.reserve) == (1024 * MIB, 512 * MIB)
    assert first.left == first.free - first.used - 1024 * MIB
    assert (first.free, first.others) == (23 * GIB, GIB)


def test_the_pc_s_memory_holds_what_lies_beside_cards() -> None:
    beside = device_uses(RIG, TENSOR)[-1]
    assert (beside.device, beside.ranks) == ("cpu", ())
    assert beside.used == host_bytes_of_plan(TENSOR.placements)
    assert beside.used > 1400 * MIB


def test_ranks_of_one_device_are_added_up() -> None:
    (use, _) = device_uses(RIG, plan(placement(0, A), placement(1, A)))
    assert use.ranks == (0, 1)
    assert use.weights == 4000 * MIB
    assert dict(use.terms)["weights"] == 4000 * MIB


def test_replicas_have_devices_of_their_own() -> None:
    made = plan(placement(0, A), split="single", copies=((B,),))
    assert [p.device for p in every_placement(made)] == [A, B]
    first, second, beside = device_uses(RIG, made)
    assert (first.ranks, second.ranks) == ((0,), (1,))
    assert first.weights == second.weights
    assert beside.used == host_bytes_of_plan(every_placement(made))


def test_sums_inside_a_stage_and_hand_overs_between_them() -> None:
    assert list(ways(RIG, TENSOR)) == [Way(A, B, "sum", "the PC's memory", 9.5e9)]
    assert list(ways(RIG, LAYER)) == [Way(A, "cpu", "hand-over", "the PC's memory")]
    bridged = replace(RIG, links=(Link(B, A, "nvlink", 56e9, 1e-6, measured=True),))
    assert list(ways(bridged, TENSOR)) == [Way(A, B, "sum", "NVLink", 56e9, 1e-6, True)]
    direct = replace(RIG, links=(Link(A, B, "p2p"),))
    assert [way.how for way in ways(direct, TENSOR)] == ["PCIe, peer to peer"]


def test_workers_of_a_processor_share_its_memory() -> None:
    made = plan(placement(0, "cpu"), placement(1, "cpu"), transport="shared-memory")
    assert list(ways(RIG, made)) == [Way("cpu", "cpu", "sum", "shared memory")]


def test_what_nobody_measured_is_said() -> None:
    assert list(unsure(RIG, TENSOR))[1:] == [
        "speed of cuda:0 and cuda:1: from the data sheet, not measured",
        "links cuda:0 to cuda:1: from their kind and width, not measured",
    ]
    facts = replace(CARD.facts, matmul=(("bfloat16", 7e13),))
    cards = tuple(d if d.kind == "cpu" else replace(d, facts=facts) for d in RIG.devices)
    measured = Rig(cards, (replace(RIG.links[0], measured=True),))
    assert len(list(unsure(measured, TENSOR))) == 1


def test_it_is_said_how_far_off_such_predictions_are() -> None:
    (sure, *_) = unsure(RIG, TENSOR)
    assert sure == (
        "decode predictions of tensor split are off by 11% typically, one in ten by more than 39%, "
        "in 42 published measurements of other programs; this program was not measured on cards yet"
    )
    mixed = next(unsure(RIG, LAYER))
    assert mixed.startswith("decode predictions of plans with the processor are off by 12%")
    assert next(unsure(RIG, replace(TENSOR, prediction=None))).startswith("speed of")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("single", trust.SINGLE),
        ("layer", trust.LAYER),
        ("tensor", trust.TENSOR),
        ("processor, alone or with a card", trust.PROCESSOR),
    ],
)
def test_the_figures_are_those_of_the_calibration(row: str, kind: trust.Trust) -> None:
    documents = Path(__file__).parents[2] / "docs" / "planning.md"
    lines = documents.read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {row} |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    said = str(kind.rows), f"{kind.median * 100:.0f} %", f"{kind.most * 100:.0f} %"
    assert tuple(cells[1:4]) == said


def test_many_devices_and_links_are_counted() -> None:
    cards = tuple(replace(CARD, id=f"0000:0{i}:00.0") for i in range(4))
    links = tuple(Link(a.id, b.id, "host") for a, b in combinations(cards, 2))
    many = plan(*(placement(i, card.id) for i, card in enumerate(cards)))
    assert list(unsure(Rig((*cards, RIG.devices[-1]), links), many))[1:] == [
        "speed of 4 cards: from the data sheet, not measured",
        "6 links between cards: from their kind and width, not measured",
    ]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (TENSOR, "2 workers, each with a part of every layer on RTX 3090 and RTX 3060"),
        (LAYER, "2 workers, each with some of the layers on RTX 3090 and Ryzen"),
        (plan(placement(0, A), split="single"), "one worker on RTX 3090"),
        (
            plan(placement(0, A), split="single", copies=((B,),)),
            "one worker on RTX 3090, 2 copies",
        ),
    ],
)
def test_the_decision_in_one_line(made: Plan, words: str) -> None:
    assert headline(RIG, made) == f"{words}: 93.6 tokens/s predicted"
    assert headline(RIG, replace(made, prediction=None)) == words


def test_for_serving_the_speed_is_that_of_all() -> None:
    serving = replace(TENSOR, goal=replace(TENSOR.goal, objective="serve"))
    assert headline(RIG, serving).endswith(": 250 tokens/s predicted for 3 streams together")


def test_equal_cards_are_counted() -> None:
    twins = replace(RIG, devices=(CARD, replace(CARD, id=B), RIG.devices[-1]))
    assert headline(twins, TENSOR).startswith(
        "2 workers, each with a part of every layer on 2 × RTX 3090: "
    )


def test_sentences_have_short_names() -> None:
    assert named(f"{A} is faster than {B} and cpu", RIG) == "cuda:0 is faster than cuda:1 and cpu"


def test_terms_of_a_step_by_name_the_longest_first() -> None:
    found = largest_terms(PREDICTION.decode_terms)
    assert [term.name for term in found] == ["memory bandwidth", "exchange between ranks"]
    assert [term.seconds for term in found] == pytest.approx([0.009, 0.0015])
    assert len(largest_terms(PREDICTION.decode_terms, 1)) == 1


def test_the_whole_explanation() -> None:
    made = explain(RIG, TENSOR)
    assert made.headline == headline(RIG, TENSOR)
    assert made.devices == device_uses(RIG, TENSOR)
    assert len(made.ways) == 1
    assert made.unsure == tuple(unsure(RIG, TENSOR))
