"""What is worth measuring on which machine, in small machines of one to three devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_rigs import A, B, C, card, linked, processor, rig

from local_tp.core import DeviceKind, Rig
from local_tp.facts import CardFacts, Verdict
from local_tp.hardware.measuring.scope import worth_measuring


def devices(machine: Rig, full: bool = False) -> list[str]:
    return [device.id for device in worth_measuring(machine, full).devices]


def pairs(machine: Rig, full: bool = False) -> list[tuple[str, str]]:
    return [(a.id, b.id) for a, b in worth_measuring(machine, full).pairs]


def crews(machine: Rig, full: bool = False) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    found = worth_measuring(machine, full).collectives
    return [(transports, tuple(d.id for d in ranks)) for transports, ranks in found]


def test_a_processor_alone_has_no_pair_but_ranks() -> None:
    machine = rig(processor())
    assert devices(machine) == ["cpu"]
    assert pairs(machine) == []
    assert crews(machine) == [(("shared-memory", "gloo"), ("cpu", "cpu"))]


def test_one_core_runs_one_rank() -> None:
    assert crews(rig(processor(), cores=1)) == []


def test_stores_out_of_order_leave_gloo() -> None:
    machine = rig(replace(processor(), ordered_stores=False))
    assert crews(machine) == [(("gloo",), ("cpu", "cpu"))]


def test_one_card_needs_no_other() -> None:
    machine = rig(card(A), processor())
    assert devices(machine) == [A, "cpu"]
    assert pairs(machine) == []
    assert crews(machine) == []


def test_full_adds_the_processor_s_crew_to_a_machine_with_cards() -> None:
    machine = rig(card(A), processor())
    assert crews(machine, full=True) == [(("shared-memory", "gloo"), ("cpu", "cpu"))]


def test_every_pair_of_cards_in_the_order_of_their_slots() -> None:
    machine = rig(card(C), card(A), card(B), processor())
    assert pairs(machine) == [(A, B), (A, C), (B, C)]
    assert crews(machine) == [(("gloo",), (A, B, C)), (("nccl",), (A, B, C))]


def test_cards_of_two_makers_make_no_pair_and_no_crew() -> None:
    machine = rig(card(A), card(B, kind="rocm"), card(C))
    assert pairs(machine) == [(A, C)]
    assert crews(machine) == [(("gloo",), (A, C)), (("nccl",), (A, C))]
    assert crews(rig(card(A), card(B, kind="rocm"))) == []
    intel = rig(card(A, kind="xpu"), card(B, kind="xpu"))
    assert crews(intel) == [(("gloo",), (A, B))]


def test_slices_of_a_card_make_a_crew_without_pairs_or_nccl() -> None:
    whole = replace(card(A), facts=CardFacts(mig=True))
    names = [f"{A}/mig-{number}" for number in (0, 1)]
    slices = [replace(card(A), id=name, facts=CardFacts(slice_of=A)) for name in names]
    machine = rig(whole, *slices, processor())
    assert devices(machine, full=True) == [*names, "cpu"]
    assert pairs(machine) == []
    assert crews(machine) == [(("gloo",), tuple(names))]


@pytest.mark.parametrize("verdict", ["broken", "hangs", "failed"])
def test_a_bad_pair_makes_nccl_not_worth_trying(verdict: Verdict) -> None:
    machine = linked(rig(card(A), card(B), card(C)), (A, B, "good"), (B, C, verdict))
    assert crews(machine) == [(("gloo",), (A, B, C))]
    assert (("nccl",), (A, B, C)) in crews(machine, full=True)


def test_a_pair_without_peer_access_is_no_bad_pair() -> None:
    machine = linked(rig(card(A), card(B)), (A, B, "unsupported"))
    assert (("nccl",), (A, B)) in crews(machine)


@pytest.mark.parametrize(
    ("kind", "facts", "used", "with_full"),
    [
        ("rocm", CardFacts(integrated=True), False, True),
        ("cuda", CardFacts(integrated=True), True, True),
        ("cuda", CardFacts(virtual=True), True, True),
        ("cuda", CardFacts(lost=True), False, False),
        ("cuda", CardFacts(mig=True), False, False),
        ("cuda", CardFacts(compute_mode="Prohibited"), False, False),
    ],
)
def test_cards_that_no_plan_uses_are_left_out(
    kind: DeviceKind, facts: CardFacts, used: bool, with_full: bool
) -> None:
    machine = rig(card(A, kind), replace(card(B, kind), facts=facts))
    assert devices(machine) == ([A, B] if used else [A])
    assert pairs(machine) == ([(A, B)] if used else [])
    assert devices(machine, full=True) == ([A, B] if with_full else [A])
