"""A transport is allowed by what was verified, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_rigs import A, B, C, card, linked, processor, rig

from local_tp.core import Rig
from local_tp.errors import DeviceError
from local_tp.facts import CardFacts, Collective, Verdict
from local_tp.hardware.measuring.transport_gate import allowed_transport


def summed(machine: Rig, transport: str, *devices: str, correct: bool = True) -> Rig:
    sums = tuple(
        Collective(transport, len(devices), nbytes, 1e-5, correct, devices)
        for nbytes in (8192, 65536)
    )
    return replace(machine, collectives=machine.collectives + sums)


def two(verdict: Verdict | None) -> Rig:
    return linked(rig(card(A), card(B), processor()), (A, B, verdict))


def test_before_measuring_cards_go_through_the_host() -> None:
    allowed = allowed_transport(rig(card(A), card(B)), [A, B])
    assert allowed.transports == ("gloo",)
    assert allowed.reasons == (
        f"not NCCL: copies between {A} and {B} were not checked yet: measure this machine first",
    )


def test_slices_never_use_nccl() -> None:
    machine = summed(two("good"), "nccl", A, B)
    assert allowed_transport(machine, [A, B]).best == "nccl"
    part = replace(machine.devices[1], facts=CardFacts(slice_of="0000:09:00.0"))
    sliced = replace(machine, devices=(machine.devices[0], part, *machine.devices[2:]))
    assert allowed_transport(sliced, [A, B]).transports == ("gloo",)
    assert allowed_transport(sliced, [A, B]).reasons == (
        "not NCCL: no MIG slice reaches another one",
    )


def test_one_rank_needs_none() -> None:
    assert allowed_transport(two("good"), [A]).transports == ("none",)


@pytest.mark.parametrize("verdict", ["good", "unsupported"])
def test_nccl_after_a_sound_pair_and_right_sums(verdict: Verdict) -> None:
    assert allowed_transport(two(verdict), [A, B]).best == "gloo"
    assert allowed_transport(summed(two(verdict), "nccl", A, B), [B, A]).best == "nccl"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("broken", "wrong data arrives"), ("hangs", "they hang"), ("failed", "the test failed")],
)
def test_a_bad_pair_forbids_nccl_even_if_its_sums_were_right(verdict: Verdict, words: str) -> None:
    allowed = allowed_transport(summed(two(verdict), "nccl", A, B), [A, B])
    assert allowed.transports == ("gloo",)
    assert allowed.reasons[0].endswith(words)


def test_wrong_sums_forbid_nccl() -> None:
    machine = summed(two("good"), "nccl", A, B, correct=False)
    assert allowed_transport(machine, [A, B]).transports == ("gloo",)


def test_sums_over_more_cards_speak_for_fewer_and_not_the_other_way() -> None:
    machine = linked(
        rig(card(A), card(B), card(C)), (A, B, "good"), (A, C, "good"), (B, C, "broken")
    )
    assert allowed_transport(summed(machine, "nccl", A, B, C), [A, B]).best == "nccl"
    assert allowed_transport(summed(machine, "nccl", A, B), [A, C]).best == "gloo"
    assert allowed_transport(summed(machine, "nccl", A, B, C), [A, B, C]).best == "gloo"


@pytest.mark.parametrize(
    ("devices", "why"),
    [([A, A], "share a card"), ([A, "cpu"], "different kinds")],
)
def test_some_crews_never_use_nccl(devices: list[str], why: str) -> None:
    allowed = allowed_transport(summed(two("good"), "nccl", A, B), devices)
    assert allowed.transports == ("gloo",)
    assert why in allowed.reasons[0]


def test_processors_share_memory_unless_that_was_seen_to_fail() -> None:
    machine = rig(processor())
    assert allowed_transport(machine, ["cpu", "cpu"]).best == "shared-memory"
    failing = summed(machine, "shared-memory", "cpu", "cpu", correct=False)
    assert allowed_transport(failing, ["cpu", "cpu"]).transports == ("gloo",)
    unordered = rig(replace(processor(), ordered_stores=False))
    assert allowed_transport(unordered, ["cpu", "cpu"]).transports == ("gloo",)


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(DeviceError, match=r"no device 0000:09:00\.0"):
        allowed_transport(two("good"), [A, "0000:09:00.0"])
