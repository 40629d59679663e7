"""Each rule on a machine that deserves its finding, and on sound ones that deserve none."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from diagnosis_cases import CASES
from diagnosis_link_cases import Case
from diagnosis_rigs import CARD, GIB, MIB, SECOND, THIRD, card, joined, pair, rig, versions

from local_tp.core import Device, Link, Pcie, Rig
from local_tp.facts import (
    HostFacts,
    PcieReading,
    SoftwareFacts,
)
from local_tp.hardware.diagnose import RULES, diagnose
from local_tp.hardware.rules import (
    cards,
    drivers,
    faults,
    host,
    identity,
    links,
    memory,
    nvlink,
    peers,
    power,
    slow_pairs,
    software,
    starting,
)
from local_tp.hardware.rules.advice import Advice

MODULES = (
    cards,
    drivers,
    faults,
    host,
    identity,
    links,
    memory,
    nvlink,
    peers,
    power,
    slow_pairs,
    software,
    starting,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_machine_gets_the_finding_it_deserves(case: Case) -> None:
    found = [finding for finding in diagnose(case.rig) if finding.id == case.id]
    assert [(f.severity, f.devices) for f in found] == [(case.severity, case.devices)]
    for words in case.says:
        assert words in found[0].evidence
    for text in (found[0].evidence, found[0].cost, found[0].remedy):
        assert text
        assert "None" not in text
        assert "{" not in text


def texts(module: ModuleType) -> set[str]:
    """The ids of every piece of advice in a module, in tables too."""
    values = [
        v
        for value in vars(module).values()
        for v in (value.values() if isinstance(value, dict) else [value])
    ]
    return {value.id for value in values if isinstance(value, Advice)}


def test_every_piece_of_advice_is_tried_above() -> None:
    assert {id for module in MODULES for id in texts(module)} == {case.id for case in CASES}


def test_every_rule_stands_in_the_table() -> None:
    public = {
        value
        for module in MODULES
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
        and "Iterator[Finding]" in str(getattr(value, "__annotations__", {}).get("return"))
        and not name.startswith("_")
    }
    assert public == set(RULES)
    assert len(RULES) == len(set(RULES))


PEERS = tuple(
    pair(a, b, "p2p", path="PHB", read="ok", write="ok", forth=26e9, back=25e9, verdict="good")
    for a, b in ((CARD, SECOND), (CARD, THIRD), (SECOND, THIRD))
)
SOUND = {
    "no card": rig(),
    "one idle card": rig(card()),
    "three cards with peer copies": rig(
        *(card(id, name="NVIDIA GeForce RTX 4090", capability=(8, 9), bandwidth=915e9)
          for id in (CARD, SECOND, THIRD)),
        links=PEERS,
    ),
    "a card working at its full power": rig(
        card(
            pcie=Pcie(4, 16, 4, 16),
            pcie_loaded=PcieReading(4, 16),
            utilization=100,
            performance_state="P2",
            clock=1740,
            clock_max=2100,
            throttle=("SW Power Cap",),
            temperature=83,
        )
    ),
    "a card made with eight lanes": rig(
        card(name="NVIDIA GeForce RTX 4060 Ti", total=16380 * MIB, capability=(8, 9),
             pcie=Pcie(1, 8, 4, 16))
    ),
    "server cards joined by NVLink, with ECC": rig(
        *(card(id, name="NVIDIA A100-SXM4-80GB", total=80 * GIB, capability=(8, 0), ecc=True,
               ecc_uncorrected=0, nvlinks=joined(True, True)) for id in (CARD, SECOND)),
        links=(pair(kind="nvlink", path="nvlink", nvlinks=12, read="ok", verdict="good"),),
        ram=512 * GIB,
    ),
    "a server card that claims a display": rig(
        card(name="NVIDIA H100 80GB HBM3", total=81559 * MIB, capability=(9, 0), display=True,
             used=59 * MIB, pcie=Pcie(5, 16, 5, 16)),
        ram=512 * GIB,
    ),
    "a guest with its small window": rig(
        card(bar1_total=256 * MIB), host=HostFacts(virtual_machine="kvm")
    ),
    "an old card whose window cannot grow": rig(
        card(name="NVIDIA GeForce RTX 2080 Ti", total=11 * GIB, capability=(7, 5),
             bar1_total=256 * MIB, pcie=Pcie(1, 16, 3, 16)),
    ),
    "cards whose numbers were blanked": rig(
        card(uuid="GPU-00000000-0000-0000-0000-000000000000"),
        card(SECOND, uuid="GPU-00000000-0000-0000-0000-000000000000"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_machine_gets_no_finding(name: str) -> None:
    assert diagnose(SOUND[name]) == ()


def test_what_is_not_known_is_never_a_finding() -> None:
    bare = [
        Device(id, "cuda", "NVIDIA GeForce RTX 3090", 24 * GIB, 23 * GIB)
        for id in (CARD, SECOND, THIRD)
    ]
    links = tuple(Link(a.id, b.id, "host") for a in bare for b in bare if a.id < b.id)
    assert diagnose(Rig((*bare, Device("cpu", "cpu", "CPU", 0, 0)), links)) == ()
    assert diagnose(Rig((Device("0000:03:00.0", "rocm", "", 0, 0),))) == ()


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_an_idle_generation_is_never_a_finding(generation: int) -> None:
    assert diagnose(rig(card(pcie=Pcie(generation, 16, 4, 16)))) == ()


def test_idle_lanes_of_a_radeon_say_nothing() -> None:
    radeon = replace(
        card(pcie=Pcie(1, 1, 4, 16)), kind="rocm", name="Radeon RX 7900 XTX", capability=None
    )
    assert diagnose(rig(radeon)) == ()
    loaded = replace(radeon, facts=replace(radeon.facts, pcie_loaded=PcieReading(4, 1)))
    assert [f.id for f in diagnose(rig(loaded))] == ["pcie-x1"]


def test_a_machine_with_two_sockets_is_not_uneven() -> None:
    near = pair(CARD, SECOND, path="PHB", forth=25.6e9, back=25.8e9, verdict="good")
    far = pair(CARD, THIRD, path="SYS", forth=11.3e9, back=11.0e9, verdict="good")
    cards = [card(id, name="NVIDIA L4", capability=(8, 9)) for id in (CARD, SECOND, THIRD)]
    assert "uneven-links" not in {f.id for f in diagnose(rig(*cards, links=(near, far)))}


def test_the_cost_of_a_riser_is_the_arithmetic_of_its_link() -> None:
    (finding,) = diagnose(rig(card(pcie=Pcie(1, 1, 4, 16))))
    # 1,000 tokens x 5,120 x 2 bytes x 128 reductions over 1.969 GB/s x 0.83, then x 16
    assert "802 ms on this link per 1,000 tokens" in finding.cost
    assert "50 ms at x16" in finding.cost
    assert "load in 12 s at best, 765 ms at x16" in finding.cost


def test_two_small_windows_matter_more_than_one() -> None:
    cards = [card(id, bar1_total=256 * MIB) for id in (CARD, SECOND)]
    assert [(f.id, f.severity, f.devices) for f in diagnose(rig(*cards))] == [
        ("resizable-bar-off", "warning", (CARD, SECOND)),
    ]


def test_the_weakest_card_names_what_it_lacks() -> None:
    ada = card(SECOND, name="NVIDIA GeForce RTX 4080 SUPER", capability=(8, 9), total=16 * GIB)
    blackwell = card(THIRD, name="NVIDIA GeForce RTX 5090", capability=(12, 0), total=32 * GIB)
    (two,) = [f for f in diagnose(rig(card(), ada)) if f.id == "mixed-architectures"]
    (three,) = [f for f in diagnose(rig(card(), ada, blackwell)) if f.id == "mixed-architectures"]
    assert two.cost.endswith(f"GeForce RTX 3090 at {CARD} lacks fp8")
    assert three.cost.endswith("lacks fp8, fp4")


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (("sm_80",), (8, 6), True),
        (("sm_86",), (8, 0), False),
        (("sm_90",), (12, 0), False),
        (("sm_90", "compute_90"), (12, 0), True),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_120",), (12, 1), True),
        (("sm_75",), (6, 1), False),
    ],
)
def test_which_builds_run_on_which_cards(
    built: tuple[str, ...], capability: tuple[int, int], runs: bool
) -> None:
    machine = rig(card(capability=capability), software=versions(torch_architectures=built))
    found = {f.id for f in diagnose(machine)}
    assert ("torch-lacks-architecture" not in found) is runs


@pytest.mark.parametrize(
    ("driver", "cuda", "old"),
    [
        ("580.65.06", "13.0", False),
        ("575.57.08", "13.0", True),
        ("525.60.13", "12.1", False),
        ("520.61.05", "12.1", True),
        ("535.161.08", None, False),
        ("384.90", None, True),
    ],
)
def test_drivers_and_the_torch_they_carry(driver: str, cuda: str | None, old: bool) -> None:
    software = SoftwareFacts(driver=driver, torch="2.x" if cuda else None, torch_cuda=cuda)
    found = {f.id for f in diagnose(rig(card(), software=software))}
    assert ("driver-too-old" in found) is old


def test_radeons_of_two_generations_name_their_targets() -> None:
    cards = [
        replace(card(id, architecture=target), kind="rocm", name="AMD card", capability=None)
        for id, target in ((CARD, "gfx1030"), (SECOND, "gfx1100"))
    ]
    (finding,) = diagnose(rig(*cards, software=SoftwareFacts()))
    assert finding.id == "mixed-architectures"
    assert "gfx1030, gfx1100" in finding.evidence


def test_a_card_that_answers_has_a_driver() -> None:
    line = "NVIDIA cards: the driver is installed but not loaded"
    assert [f.id for f in diagnose(rig(unknown=(line,)))] == ["driver-not-running"]
    assert diagnose(rig(card(), unknown=(line,))) == ()


def test_few_cores_cannot_tell_that_memory_is_slow() -> None:
    slow = replace(rig().host, memory_bandwidth=20e9)
    assert [f.id for f in diagnose(rig(host=slow))] == ["ram-channels-missing"]
    assert diagnose(rig(host=slow, cores=2)) == ()


def test_a_lost_card_is_told_once_and_judged_only_by_its_lanes() -> None:
    line = f"Unable to determine the device handle for GPU {CARD}: GPU is lost."
    gone = card(lost=True, temperature=200, power_limit=1.0, pcie=Pcie(1, 1, 4, 16))
    assert [f.id for f in diagnose(rig(gone, card(SECOND), unknown=(line,)))] == [
        "gpu-lost",
        "pcie-x1",
    ]


def test_errors_come_first_then_the_order_of_the_devices() -> None:
    machine = rig(
        card(power_limit=200.0, replays=900),
        card(SECOND, ecc=True, ecc_uncorrected=1, replays=400),
        ram=16 * GIB,
    )
    assert [(f.severity, f.id, f.devices) for f in diagnose(machine)] == [
        ("error", "ecc-errors", (SECOND,)),
        ("warning", "ram-small", ()),
        ("warning", "pcie-replays", (CARD, SECOND)),
        ("info", "power-capped", (CARD,)),
    ]


def test_rules_are_pure() -> None:
    for case in CASES:
        assert diagnose(case.rig) == diagnose(case.rig)
