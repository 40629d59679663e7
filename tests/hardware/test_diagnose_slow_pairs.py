"""Pairs held against their slots, peer-to-peer refused across sockets, cards not as named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from diagnosis_rigs import CARD, FOURTH, GIB, SECOND, THIRD, a5000, card, pair, rig

from local_tp.core import Pcie, Rig
from local_tp.facts import Finding, HostFacts
from local_tp.hardware.diagnose import diagnose

REFUSED = {"read": "chipset", "write": "chipset"}
GRANTED = {"read": "ok", "write": "ok"}


def found(machine: Rig, id: str) -> list[Finding]:
    return [finding for finding in diagnose(machine) if finding.id == id]


def joined(pcie: Pcie | None, **facts: Any) -> Rig:
    return rig(card(pcie=pcie), card(SECOND, pcie=pcie), links=(pair(**facts),))


X16 = Pcie(1, 16, 4, 16)  # 26.1 GB/s
X4 = Pcie(1, 4, 4, 16)  # 6.5 GB/s
OLD_X16 = Pcie(1, 16, 3, 16)  # 13.1 GB/s


@pytest.mark.parametrize(
    ("pcie", "facts", "slow"),
    [
        (X16, {**GRANTED, "forth": 8.5e9, "back": 8.5e9}, True),
        (X16, {**GRANTED, "forth": 8.8e9, "back": 8.8e9}, False),
        (X16, {**REFUSED, "forth": 5.1e9, "back": 5.3e9}, True),
        (X16, {**REFUSED, "forth": 5.3e9, "back": 5.4e9}, False),
        (X16, {"staged_both": 14.5e9}, False),
        (X16, {"staged_both": 9.0e9}, True),
        (OLD_X16, {**REFUSED, "forth": 3.0e9, "back": 3.0e9}, False),
        (OLD_X16, {**REFUSED, "forth": 2.5e9, "back": 2.6e9}, True),
        (X4, {**REFUSED, "forth": 1.6e9, "back": 1.6e9}, False),
        (None, {**REFUSED, "forth": 1.4e9, "back": 1.4e9}, False),
        (None, {**REFUSED, "forth": 1.2e9, "back": 1.2e9}, True),
        (None, {**GRANTED, "forth": 0.8e9, "back": 0.8e9}, True),
    ],
)
def test_a_pair_is_held_against_what_its_slots_reach(
    pcie: Pcie | None, facts: dict[str, Any], slow: bool
) -> None:
    assert bool(found(joined(pcie, **facts), "pairs-slow")) is slow


def test_what_a_slow_pair_costs() -> None:
    (finding,) = found(joined(X16, **GRANTED, forth=0.8e9, back=0.8e9), "pairs-slow")
    # 1,000 tokens x 5,120 x 2 bytes x 128 reductions over 0.8 and over 1.969 x 16 x 0.83 GB/s
    assert "their slots reach about 26.1 GB/s" in finding.evidence
    assert "spends 2 s on this link per 1,000 tokens of prompt, 50 ms at" in finding.cost


def test_the_slower_slot_and_measured_copies_set_what_a_pair_can_reach() -> None:
    links = (pair(**REFUSED, forth=1.6e9, back=1.6e9),)
    assert not found(rig(card(), card(SECOND, pcie=X4), links=links), "pairs-slow")
    measured = card(SECOND, copy_to=3.2e9, copy_from=3.1e9)
    assert not found(rig(card(), measured, links=links), "pairs-slow")
    assert found(rig(card(), card(SECOND), links=links), "pairs-slow")


def test_a_guest_is_not_believed_about_its_slots() -> None:
    machine = joined(X16, **REFUSED, forth=1.6e9, back=1.6e9)
    guest = replace(machine, host=HostFacts(virtual_machine="kvm"))
    assert (len(found(machine, "pairs-slow")), len(found(guest, "pairs-slow"))) == (1, 0)


def test_a_slow_pair_is_told_once() -> None:
    fast: dict[str, Any] = {**GRANTED, "forth": 25e9, "back": 25e9}
    slow: dict[str, Any] = {**GRANTED, "forth": 1e9, "back": 1e9}
    cards = [card(id) for id in (CARD, SECOND, THIRD)]
    links = (pair(CARD, SECOND, **fast), pair(CARD, THIRD, **slow), pair(SECOND, THIRD, **slow))
    ids = {finding.id for finding in diagnose(rig(*cards, links=links))}
    assert ids & {"pairs-slow", "uneven-links"} == {"uneven-links"}
    external = card(SECOND, external=True)
    outside = rig(card(), external, links=(pair(**slow),))
    assert not found(outside, "pairs-slow")
    hindered = joined(X16, **slow, staged=9.5e9)
    assert not found(hindered, "pairs-slow")
    assert found(hindered, "p2p-slower-than-memory")


@pytest.mark.parametrize("make", [card, a5000])
def test_peers_refused_across_sockets_alone_are_a_matter_of_the_place(make: Any) -> None:
    ids = (CARD, SECOND, THIRD, FOURTH)
    near = {frozenset((CARD, SECOND)), frozenset((THIRD, FOURTH))}
    links = tuple(
        pair(a, b, path="NODE", read="ok")
        if frozenset((a, b)) in near
        else pair(a, b, path="SYS", read="not-supported")
        for a in ids
        for b in ids
        if a < b
    )
    (finding,) = found(rig(*map(make, ids), links=links), "p2p-off")
    assert finding.evidence.startswith("4 pairs between")
    assert "reason: topology" in finding.evidence
    assert "GeForce" not in finding.remedy
    everywhere = tuple(
        replace(link, facts=replace(link.facts, read="not-supported")) for link in links
    )
    (finding,) = found(rig(*map(make, ids), links=everywhere), "p2p-off")
    assert "topology" not in finding.evidence


@pytest.mark.parametrize(("percent", "told"), [(89, False), (90, True), (100, True)])
def test_memory_in_percent(percent: int, told: bool) -> None:
    line = f"{CARD}: {percent}% of its memory is in use, and how much it has is not in the text"
    radeon = replace(card(name="AMD card", total=0, capability=None), kind="rocm")
    findings = found(rig(radeon, unknown=(line,)), "memory-nearly-full")
    assert bool(findings) is told
    assert all(f"{100 - percent}% of its memory is left" in f.cost for f in findings)
    sized = replace(radeon, total=16 * GIB)
    assert not found(rig(sized, unknown=(line,)), "memory-nearly-full")


@pytest.mark.parametrize(
    ("name", "total", "told"),
    [
        ("NVIDIA GeForce GTX 1050 Ti", 1, True),
        ("NVIDIA GeForce GTX 1050 Ti", 4, False),
        ("NVIDIA GeForce GTX 1070 Ti", 4, False),
        ("NVIDIA GeForce RTX 3080", 10, False),
        ("NVIDIA GeForce RTX 3060", 5, False),
        ("NVIDIA GeForce RTX 3090", 10, True),
        ("A card that nobody knows", 1, False),
    ],
)
def test_far_less_memory_than_was_sold_is_another_card(name: str, total: int, told: bool) -> None:
    machine = rig(card(name=name, total=total * GIB))
    assert bool(found(machine, "card-not-as-named")) is told
    assert not found(rig(card(name=name, total=total * GIB, virtual=True)), "card-not-as-named")
