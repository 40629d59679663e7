"""Findings that rest on the right evidence: what was read or measured, and nothing assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnosis_rigs import CARD, GIB, MIB, SECOND, a5000, card, pair, rig

from local_tp.core import Device, Rig
from local_tp.facts import CardFacts, Finding, PairFacts, Process, SoftwareFacts
from local_tp.hardware.diagnose import diagnose


def found(machine: Rig, id: str) -> list[Finding]:
    return [finding for finding in diagnose(machine) if finding.id == id]


def torch(version: str, cuda: str | None) -> SoftwareFacts:
    return SoftwareFacts(driver="580.95.05", torch=version, torch_cuda=cuda)


RTX_5090 = card(name="NVIDIA GeForce RTX 5090", total=32 * GIB, capability=(12, 0))
RTX_4090 = card(SECOND, name="NVIDIA GeForce RTX 4090", capability=(8, 9))
P40 = card(name="Tesla P40", total=24576 * MIB, capability=(6, 1), power_limit=250.0,
           power_default=250.0)  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "cuda", "needed"),
    [
        ((12, 0), "11.8", "cu128 or newer"),
        ((12, 0), "12.4", "cu128 or newer"),
        ((12, 0), "12.6", "cu128 or newer"),
        ((12, 0), "12.8", None),
        ((12, 1), "13.0", None),
        ((10, 3), "12.6", "cu128 or newer"),
        ((11, 0), "12.8", "cu130 or newer"),
        ((9, 0), "12.1", None),
        ((8, 9), "12.4", None),
        ((7, 0), "13.2", "cu126"),
        ((6, 1), "13.0", "cu126"),
        ((6, 1), "12.6", None),
        ((6, 1), "12.8", "cu126"),
        ((7, 0), "12.8", None),
        ((7, 5), "13.0", None),
        ((3, 7), "12.6", None),
        ((12, 0), "10.2", None),
        ((12, 0), None, None),
    ],
)
def test_the_cuda_of_torch_says_which_cards_it_serves(
    capability: tuple[int, int], cuda: str | None, needed: str | None
) -> None:
    machine = rig(card(capability=capability), software=torch("2.x", cuda))
    remedies = [f.remedy for f in found(machine, "torch-lacks-architecture")]
    assert len(remedies) == (needed is not None)
    assert all(f"needs {needed}:" in remedy for remedy in remedies)


@pytest.mark.parametrize(
    ("capability", "version", "served"),
    [
        ((5, 2), "2.7.1+cu128", False),
        ((6, 1), "2.8.0+cu128", False),
        ((6, 0), "2.9.0+cu129", False),
        ((7, 0), "2.7.1+cu128", False),
        ((7, 0), "2.8.0+cu128", True),
        ((7, 0), "2.10.0+cu128", True),
        ((7, 0), "2.11.0+cu128", False),
        ((7, 0), "2.11.0+cu126", True),
        ((6, 1), "2.11.0+cu126", True),
        ((7, 5), "2.11.0+cu128", True),
        ((12, 0), "2.7.0+cu128", True),
    ],
)
def test_the_release_of_torch_says_which_old_cards_its_wheels_hold(
    capability: tuple[int, int], version: str, served: bool
) -> None:
    cuda = f"12.{version[-1]}"
    machine = rig(card(capability=capability), software=torch(version, cuda))
    remedies = [f.remedy for f in found(machine, "torch-lacks-architecture")]
    assert len(remedies) == (not served)
    assert all("needs cu126:" in text and text.endswith("/whl/cu126`") for text in remedies)


def test_a_new_card_under_an_older_wheel() -> None:
    machine = rig(RTX_5090, RTX_4090, software=torch("2.5.1+cu124", "12.4"))
    (finding,) = found(machine, "torch-lacks-architecture")
    assert (finding.severity, finding.devices) == ("error", (CARD,))
    assert "torch 2.5.1+cu124 is built with CUDA 12.4" in finding.evidence
    assert "sm_50 to sm_90; the card is sm_120" in finding.evidence
    assert finding.remedy.endswith("https://download.pytorch.org/whl/cu128`")


def test_a_list_of_architectures_outweighs_the_cuda() -> None:
    own = replace(torch("2.5.1+cu124", "12.4"), torch_architectures=("sm_90", "sm_120"))
    assert not found(rig(RTX_5090, software=own), "torch-lacks-architecture")


def test_the_version_of_rocm_is_no_cuda() -> None:
    machine = rig(RTX_5090, software=torch("2.5.1+rocm12.0", "12.0"))
    assert not found(machine, "torch-lacks-architecture")


@pytest.mark.parametrize(
    ("software", "ids"),
    [
        (torch("2.6.0+cu126", "12.6"), set()),
        (torch("2.9.0+cu126", "12.6"), set()),
        (torch("2.9.0+cu128", "12.8"), {"torch-lacks-architecture"}),
        (torch("2.9.0+cu130", "13.0"), {"torch-lacks-architecture"}),
        (SoftwareFacts(driver="550.54.14"), {"card-before-cuda-13"}),
    ],
)
def test_an_old_card_is_judged_by_the_torch_that_is_there(
    software: SoftwareFacts, ids: set[str]
) -> None:
    of_builds = {"card-before-cuda-13", "torch-lacks-architecture"}
    assert {f.id for f in diagnose(rig(P40, software=software))} & of_builds == ids


@pytest.mark.parametrize(
    ("total", "said"),
    [(0, "what it shows is no memory of its own"), (32 * GIB, "its 32.0 GiB are no memory")],
)
def test_graphics_without_a_known_memory_have_no_zero_bytes(total: int, said: str) -> None:
    graphics = Device(
        SECOND, "rocm", "AMD Radeon Graphics", total, total, facts=CardFacts(integrated=True)
    )
    (finding,) = found(rig(card(), graphics), "integrated-gpu")
    assert finding.cost.startswith(said)


@pytest.mark.parametrize(
    ("first", "second", "advice"),
    [
        ((8, 9), (12, 0), "(GGUF, 4-bit integers or fp8, no fp4)"),
        ((8, 6), (8, 9), "(GGUF or 4-bit integers, no fp8)"),
        ((8, 0), (8, 6), "(GGUF or 4-bit integers, no fp8)"),
        ((7, 5), (8, 6), "(GGUF with float16)"),
        ((6, 1), (7, 5), "(GGUF with float16)"),
        ((10, 0), (12, 0), "(all of them have the same ones)"),
    ],
)
def test_mixed_cards_are_advised_by_what_the_weakest_lacks(
    first: tuple[int, int], second: tuple[int, int], advice: str
) -> None:
    machine = rig(card(capability=first), card(SECOND, capability=second))
    (finding,) = found(machine, "mixed-architectures")
    assert advice in finding.remedy


def test_processes_of_one_name_are_added_up() -> None:
    two = (Process(1, "python3", 8000 * MIB), Process(2, "python3", 8050 * MIB))
    (finding,) = found(rig(card(used=16100 * MIB, processes=two)), "memory-in-use")
    assert "15.7 GiB of 24.0 GiB taken by python3 (15.7 GiB)" in finding.evidence


def test_two_display_servers_are_added_up() -> None:
    two = (Process(1, "Xorg", 300 * MIB), Process(2, "Xorg", 200 * MIB))
    (finding,) = found(rig(card(display=True, used=None, processes=two)), "display-on-card")
    assert "holds 500 MiB, Xorg among others" in finding.evidence


def test_a_small_window_into_a_memory_known_from_the_catalog() -> None:
    (finding,) = found(rig(card(total=0, bar1_total=256 * MIB)), "resizable-bar-off")
    assert "sees its 24.0 GiB through a window of 256 MiB" in finding.evidence
    assert not found(rig(card(name="card", total=0, bar1_total=256 * MIB)), "resizable-bar-off")


def test_error_correction_of_a_pascal_card_takes_memory() -> None:
    corrected = replace(P40, total=22919 * MIB, facts=replace(P40.facts, ecc=True))
    (finding,) = found(rig(corrected), "ecc-takes-memory")
    assert "22.4 GiB remain usable" in finding.evidence
    assert finding.cost.startswith("about 1.6 GiB")


@pytest.mark.parametrize(
    ("facts", "absent"),
    [
        (PairFacts(path="PHB"), False),  # as lspci alone has it
        (PairFacts(path="PHB", read="ok"), False),  # which may be over NVLink
        (PairFacts(path="PHB", read="unknown"), False),
        (PairFacts(read="chipset"), False),
        (PairFacts(path="PHB", read="chipset"), True),
        (PairFacts(path="PHB", write="not-supported"), True),
        (PairFacts(path="PHB", nvlinks=0, read="ok"), True),
        (PairFacts(path="nvlink", nvlinks=4), False),
    ],
)
def test_nvlink_is_absent_only_where_somebody_looked(facts: PairFacts, absent: bool) -> None:
    link = replace(pair(), facts=facts)
    assert bool(found(rig(a5000(), a5000(SECOND), links=(link,)), "nvlink-absent")) is absent


def test_an_unlike_neighbour_says_nothing_of_a_bridge() -> None:
    third = card("0000:b3:00.0", name="NVIDIA GeForce RTX 4060", capability=(8, 9))
    links = (pair(path="PHB", nvlinks=0), pair(CARD, third.id, path="PHB"))
    assert [f.devices for f in found(rig(a5000(), a5000(SECOND), third, links=links),
                                     "nvlink-absent")] == [(CARD, SECOND)]  # fmt: skip


@pytest.mark.parametrize(
    ("latency", "said", "wait"),
    [
        (None, "a message takes about 15.0 µs instead of about 1.5 µs", "up to 2 ms"),
        (40e-6, "a message takes 40.0 µs (as measured) instead of about 1.5 µs", "up to 5 ms"),
    ],
)
def test_a_measured_latency_prices_missing_peer_copies(
    latency: float | None, said: str, wait: str
) -> None:
    link = replace(pair(verdict="unsupported"), latency=latency)
    (finding,) = found(rig(a5000(), a5000(SECOND), links=(link,)), "p2p-off")
    assert said in finding.cost
    assert wait in finding.cost
