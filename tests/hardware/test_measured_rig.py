"""Readings become facts of the rig, each at its place, and lines for a person."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_rigs import A, B, card, linked, processor, rig

from local_tp.core import Link, Rig
from local_tp.facts import CardFacts, Collective, PairFacts, PcieReading, SoftwareFacts
from local_tp.hardware.measuring.cache import Measured
from local_tp.hardware.measuring.killable import Ending, Outcome
from local_tp.hardware.measuring.measured_rig import (
    with_build,
    with_collectives,
    with_device,
    with_disk,
    with_pair,
)
from local_tp.hardware.measuring.readings import BUSY, NOTE, Reading
from local_tp.hardware.measuring.text import (
    build_line,
    collective_line,
    device_line,
    disk_line,
    pair_line,
)

CARD = (
    Reading("bandwidth", 840e9),
    Reading("copy_to", 25e9),
    Reading("copy_from", 24e9),
    Reading("pcie", 4, "generation"),
    Reading("pcie", 8, "width"),
    Reading("matmul", 30e12, "float32"),
    Reading("matmul", 71e12, "bfloat16"),
    Reading("matmul", 70e12, "float16"),
    Reading(NOTE, detail="int8 matrix products: torch says: no"),
)
SOUND = (
    Reading("peer", 1.0),
    Reading("wrong", 0, "forth", 64, True),
    Reading("forth", 26e9),
    Reading("wrong", 0, "back", 64, True),
    Reading("back", 13e9),
    Reading("latency", 2e-6),
)


def measured(*readings: Reading, ending: Ending = "done") -> Measured:
    reason = "" if ending == "done" else "why"
    return Measured((Outcome(readings, ending, reason),))


def summed(*ranks: tuple[Reading, ...]) -> Measured:
    return Measured(tuple(Outcome(readings, "done") for readings in ranks))


def two() -> Rig:
    return linked(rig(card(A), card(B), processor()), (A, B, None))


def test_figures_of_a_busy_processor_are_said_to_be_low() -> None:
    machine = rig(processor())
    readings = (Reading("bandwidth", 20e9, "all"), Reading(BUSY, 0.43))
    found = with_device(machine, machine.devices[0], Measured((Outcome(readings, "done"),)))
    (line,) = found.unknown
    assert "other programs had 43% of the processor" in line
    assert "local-tp doctor --measure --again" in line


def test_a_card_s_rates() -> None:
    machine = two()
    found = with_device(machine, machine.devices[0], measured(*CARD))
    known = found.devices[0]
    assert (known.bandwidth, known.flops) == (840e9, 71e12)
    assert (known.facts.copy_to, known.facts.copy_from) == (25e9, 24e9)
    assert known.facts.pcie_loaded == PcieReading(4, 8)
    assert known.facts.matmul == (("float32", 30e12), ("bfloat16", 71e12), ("float16", 70e12))
    assert found.devices[1:] == machine.devices[1:]
    assert found.unknown == (f"{A}: not measured: int8 matrix products: torch says: no",)
    assert device_line(found, A) == (
        "  memory 840.0 GB/s; from the host 25.0 GB/s, to it 24.0 GB/s; PCIe 4.0 x8 while copying; "
        "float32 30.0 TOPS; bfloat16 71.0 TOPS; float16 70.0 TOPS"
        "; not measured: int8 matrix products: torch says: no"
    )


def test_what_torch_was_built_for() -> None:
    machine = replace(two(), software=SoftwareFacts(torch="2.9.1", torch_cuda="12.8"))
    readings = (
        Reading("cuda", detail="12.9"),
        Reading("architecture", detail="sm_86"),
        Reading("architecture", detail="compute_120"),
    )
    found = with_build(machine, measured(*readings))
    assert found.software == SoftwareFacts(
        torch="2.9.1", torch_cuda="12.9", torch_architectures=("sm_86", "compute_120")
    )
    assert build_line(found) == "  torch 2.9.1: sm_86, compute_120"
    failed = with_build(found, measured(ending="failed"))
    assert failed.software == found.software
    assert failed.unknown == ("torch: not measured: the test failed: why",)
    assert with_build(failed, measured(*readings)) == found


def test_what_was_measured_before_the_end_is_not_lost() -> None:
    machine = two()
    found = with_device(machine, machine.devices[0], measured(*CARD[:2], ending="hangs"))
    assert (found.devices[0].bandwidth, found.devices[0].facts.copy_to) == (840e9, 25e9)
    assert found.unknown == (f"{A}: not measured: the test hung and was stopped: why",)


@pytest.mark.parametrize("probed", [None, 8e9, 80e9])
def test_the_processor_s_memory_is_the_host_s(probed: float | None) -> None:
    cpu = replace(processor(), bandwidth=probed)
    readings = (Reading("bandwidth", 40e9, "all"), Reading("bandwidth", 9e9, "one"))
    found = with_device(rig(cpu), cpu, measured(*readings, Reading("matmul", 1e11, "float32")))
    assert (found.host.memory_bandwidth, found.host.memory_bandwidth_one) == (40e9, 9e9)
    assert found.host.matmul == (("float32", 1e11),)
    assert found.devices[0].bandwidth == 40e9
    assert found.devices[0].facts.core_bandwidth == 9e9
    assert device_line(found, "cpu") == (
        "  memory 40.0 GB/s by all cores, 9.0 GB/s by one; float32 100 GOPS"
    )


def test_the_probe_s_look_at_memory_stays_where_nothing_was_measured() -> None:
    cpu = replace(processor(), bandwidth=8e9, facts=CardFacts(core_bandwidth=8e9))
    found = with_device(rig(cpu), cpu, measured(ending="hangs")).devices[0]
    assert (found.bandwidth, found.facts.core_bandwidth) == (8e9, 8e9)
    half = measured(Reading("bandwidth", 40e9, "all"), ending="hangs")
    found = with_device(rig(cpu), cpu, half).devices[0]
    assert (found.bandwidth, found.facts.core_bandwidth) == (40e9, 8e9)


def test_a_good_pair() -> None:
    (link,) = with_pair(two(), A, B, measured(*SOUND)).links
    assert link == Link(
        A, B, "p2p", 13e9, 2e-6, True, True, PairFacts(forth=26e9, back=13e9, verdict="good")
    )
    assert pair_line(with_pair(two(), A, B, measured(*SOUND)), B, A) == (
        "  direct copies arrive intact; 26.0 GB/s there, 13.0 GB/s back"
    )


def test_a_pair_that_the_probe_did_not_list_is_added() -> None:
    found = with_pair(rig(card(A), card(B)), A, B, measured(*SOUND))
    assert [(link.a, link.b, link.kind) for link in found.links] == [(A, B, "p2p")]


def test_nvlink_stays_nvlink_only_while_it_works() -> None:
    joined = replace(two(), links=(Link(A, B, "nvlink", facts=PairFacts(path="nvlink")),))
    assert with_pair(joined, A, B, measured(*SOUND)).links[0].kind == "nvlink"
    broken = with_pair(joined, A, B, measured(SOUND[0], Reading("wrong", 9, "forth", 64, False)))
    assert (broken.links[0].kind, broken.links[0].verified) == ("host", False)
    assert with_pair(broken, A, B, measured(*SOUND)).links[0].kind == "nvlink"


def test_a_bad_pair_loses_its_old_good_word_and_rates() -> None:
    good = with_pair(two(), A, B, measured(*SOUND))
    (link,) = with_pair(good, A, B, measured(SOUND[0], ending="hangs")).links
    assert (link.kind, link.verified, link.measured) == ("host", False, False)
    assert (link.bandwidth, link.latency, link.facts.forth) == (None, None, None)
    assert link.facts.verdict == "hangs"


def test_the_slowest_rank_counts_and_all_must_be_right() -> None:
    ranks = (
        (
            Reading("all_reduce", 3e-5, "nccl", 8192, True),
            Reading("all_reduce", 1, "nccl", 9, True),
        ),
        (Reading("all_reduce", 4e-5, "nccl", 8192, False),),
    )
    found = with_collectives(two(), ["nccl"], [A, B], summed(*ranks))
    assert found.collectives == (Collective("nccl", 2, 8192, 4e-5, False, (A, B)),)
    assert collective_line(found, "nccl", [A, B]) == (
        "  nccl: WRONG SUMS: it will not be used; 8 KiB in 40 us"
    )


def test_a_new_sum_replaces_the_old_of_the_same_ranks_only() -> None:
    def one(seconds: float) -> Measured:
        reading = Reading("all_reduce", seconds, "gloo", 8192, True)
        return summed((reading,), (reading,))

    found = with_collectives(two(), ["gloo"], [A, B], one(1e-3))
    found = with_collectives(found, ["gloo"], ["cpu", "cpu"], one(2e-3))
    found = with_collectives(found, ["gloo"], [A, B], one(3e-3))
    assert [(c.devices, c.seconds) for c in found.collectives] == [
        (("cpu", "cpu"), 2e-3),
        ((A, B), 3e-3),
    ]


def test_the_disk() -> None:
    assert with_disk(two(), Outcome((Reading("disk_read", 5e8),), "done")).host.disk_read == 5e8
    said = with_disk(two(), Outcome((Reading(NOTE, detail="no"),), "done"))
    assert (said.host.disk_read, said.unknown) == (None, ("model folder: not measured: no",))
    assert disk_line(said) == "  the disk reads unknown; not measured: no"
