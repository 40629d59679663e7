"""For each rule, a machine that nearly deserves its finding, and is well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from diagnosis_rigs import CARD, GIB, MIB, SECOND, THIRD, a5000, card, joined, pair, rig, versions

from local_tp.core import Device, Pcie, Rig
from local_tp.facts import CardFacts, Collective, HostFacts, PcieReading, Process, SoftwareFacts
from local_tp.hardware.diagnose import diagnose


def ids(machine: Rig) -> set[str]:
    return {finding.id for finding in diagnose(machine)}


def around(**changes: Any) -> Rig:
    return rig(card(), host=replace(rig().host, **changes))


def mig_slice(id: str = f"{CARD}/mig-0", **changes: Any) -> Device:
    name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    return card(id, name=name, total=5 * GIB, pcie=None, slice_of=CARD, **changes)


WELL: dict[str, tuple[str, Rig]] = {
    "eight lanes, that the card has": (
        "pcie-narrow",
        rig(card(name="NVIDIA GeForce RTX 4060", total=8 * GIB, pcie=Pcie(4, 8, 4, 8))),
    ),
    "four lanes that are no chipset's": (
        "pcie-chipset",
        rig(card(chipset=False, pcie=Pcie(4, 4, 4, 16))),
    ),
    "a chipset slot of four lanes is told once": (
        "pcie-chipset",
        rig(card(chipset=True, pcie=Pcie(3, 4, 4, 16)), card(SECOND)),
    ),
    "a laptop's own wiring": (
        "pcie-chipset",
        rig(card(name="NVIDIA GeForce RTX 3060 Laptop GPU", chipset=True)),
    ),
    "an external card's cable": ("pcie-chipset", rig(card(chipset=True, external=True))),
    "full speed under load": ("pcie-generation-low", rig(card(pcie_loaded=PcieReading(4, 16)))),
    "copies that differ a little": (
        "uneven-links",
        rig(
            *(card(id) for id in (CARD, SECOND, THIRD)),
            links=(pair(CARD, SECOND, forth=13e9, back=13e9), pair(CARD, THIRD, forth=8e9)),
        ),
    ),
    "peers that are offered": ("p2p-off", rig(card(), card(SECOND), links=(pair(read="ok"),))),
    "peers of which nothing is known": (
        "p2p-off",
        rig(card(), card(SECOND), links=(pair(read="unknown"),)),
    ),
    "data that arrived": (
        "p2p-broken",
        rig(card(), card(SECOND), links=(pair(read="ok", verdict="good"),)),
    ),
    "all ports down for want of a bridge": (
        "nvlink-down",
        rig(card(nvlinks=joined(False, False)), card(SECOND, nvlinks=joined(False, False))),
    ),
    "a bridge that is up": (
        "nvlink-absent",
        rig(card(), card(SECOND), links=(pair(kind="nvlink", path="nvlink", nvlinks=4),)),
    ),
    "cards without a connector": (
        "nvlink-absent",
        rig(
            *(card(id, name="NVIDIA GeForce RTX 4090", capability=(8, 9)) for id in (CARD, SECOND)),
            links=(pair(path="PHB", nvlinks=0),),
        ),
    ),
    "unlike cards": (
        "nvlink-absent",
        rig(card(), a5000(SECOND), links=(pair(path="PHB", nvlinks=0),)),
    ),
    "cards on different processors": (
        "nvlink-absent",
        rig(card(), card(SECOND), links=(pair(path="SYS", nvlinks=0),)),
    ),
    "an external card": (
        "nvlink-absent",
        rig(card(), card(SECOND, external=True), links=(pair(path="PHB", nvlinks=0),)),
    ),
    "a way that is nearly as fast as a bridge": (
        "nvlink-absent",
        rig(
            *(card(id, name="NVIDIA GeForce RTX 2080", total=8 * GIB) for id in (CARD, SECOND)),
            links=(pair(path="PHB", nvlinks=0, forth=20e9, back=20e9),),
        ),
    ),
    "a path of the bus alone": (
        "nvlink-absent",
        rig(card(), card(SECOND), links=(pair(path="PHB"),)),
    ),
    "the whole memory visible": ("resizable-bar-off", rig(card(bar1_total=32 * GIB))),
    "a display that takes little": ("display-on-card", rig(card(display=True, used=60 * MIB))),
    "a small program": (
        "memory-in-use",
        rig(card(used=90 * MIB, processes=(Process(1, "python3", 80 * MIB),))),
    ),
    "a card whose slices are told of": (
        "memory-in-use",
        rig(card(mig=True, used=20 * GIB), mig_slice(used=10 * MIB)),
    ),
    "a slice beside its card": ("mixed-architectures", rig(card(mig=True), mig_slice())),
    "a slice is no slow card": ("card-slower-than-rated", rig(mig_slice(bandwidth=200e9))),
    "MIG that is off": ("mig-on", rig(card(mig=False))),
    "the default power": ("power-capped", rig(card(power_limit=350.0, power_default=350.0))),
    "a hot card below its limit": ("throttled-by-heat", rig(card(temperature=84))),
    "an idle card's slowdown": ("throttled-by-power", rig(card(throttle=("SW Power Cap",)))),
    "no errors": ("ecc-errors", rig(card(ecc=True, ecc_uncorrected=0))),
    "a few replays": ("pcie-replays", rig(card(replays=3))),
    "a program's own fault": ("xid-fault", rig(card(xids=(13, 31)))),
    "two cards with numbers of their own": (
        "duplicate-gpu",
        rig(card(uuid="GPU-5e1f2a90"), card(SECOND, uuid="GPU-5e1f2a91")),
    ),
    "like cards": ("mixed-architectures", rig(card(), a5000(SECOND))),
    "a driver as old as its torch needs": (
        "driver-too-old",
        rig(card(), software=versions(driver="580.65.06")),
    ),
    "a build that has the card": (
        "torch-lacks-architecture",
        rig(card(), software=versions(torch_architectures=("sm_80",))),
    ),
    "one version in library and module": (
        "driver-mismatch",
        rig(card(), software=SoftwareFacts(driver="580.65.06", cuda_module="580.65.06")),
    ),
    "a driver without a fault": ("driver-unknown-error", rig(card())),
    "an unknown value of a card that answers": (
        "driver-unknown-error",
        rig(card(), unknown=(f"{CARD}: power: the driver reports an unknown error",)),
    ),
    "a field that nobody may read": (
        "driver-no-permission",
        rig(card(), unknown=(f"{CARD}: clocks: the driver does not permit it",)),
    ),
    "AMD cards with their driver": (
        "driver-amdgpu-missing",
        rig(replace(card(), kind="rocm", name="AMD Radeon RX 7900 XTX", capability=None)),
    ),
    "cards that were found": ("driver-sees-no-card", rig(card())),
    "sums that are right": (
        "collective-wrong",
        rig(card(), collectives=(Collective("nccl", 2, 8192, 2e-5, correct=True),)),
    ),
    "a test that was not run": ("collective-failed", rig(card(), unknown=("nccl: not installed",))),
    "Windows without WSL": ("wsl-hidden-memory", rig(card(driver_model="WDDM"))),
    "a card in TCC mode": ("wddm-spill", rig(card(driver_model="TCC"))),
    "a desktop's card": ("laptop-gpu", rig(card(), host=HostFacts(laptop=False))),
    "a card in its slot": ("external-gpu", rig(card(external=False))),
    "peer copies that memory nearly equals": (
        "p2p-slower-than-memory",
        rig(a5000(), a5000(SECOND), links=(pair(read="ok", forth=11e9, back=11e9, staged=12e9),)),
    ),
    "copies through memory, where peers are refused": (
        "p2p-slower-than-memory",
        rig(a5000(), a5000(SECOND), links=(pair(read="chipset", forth=1e9, staged=11e9),)),
    ),
    "a slow pair that peer-to-peer hinders is not a slow slot": (
        "uneven-links",
        rig(
            *(a5000(id) for id in (CARD, SECOND, THIRD)),
            links=(
                pair(CARD, SECOND, read="ok", forth=52.8e9, back=52.7e9, staged=9.7e9),
                pair(CARD, THIRD, read="ok", forth=1.1e9, back=1.1e9, staged=9.5e9),
            ),
        ),
    ),
    "peers that may be written and not read": (
        "iommu-translates",
        rig(
            card(),
            card(SECOND),
            links=(pair(write="ok", read="chipset"),),
            host=HostFacts(iommu="on"),
        ),
    ),
    "makers that no split joins": (
        "uneven-slots",
        rig(
            card(pcie=Pcie(5, 16, 5, 16)),
            replace(card(SECOND, pcie=Pcie(4, 4, 4, 16)), kind="xpu", name="Intel Arc A770"),
        ),
    ),
    "a busy card at its full speed": (
        "pcie-generation-low",
        rig(card(pcie=Pcie(4, 16, 4, 16), utilization=97, performance_state=None)),
    ),
    "a busy card whose display alone works": (
        "pcie-generation-low",
        rig(card(pcie=Pcie(1, 16, 4, 16), utilization=60, performance_state="P8")),
    ),
    "NVIDIA's own driver": ("driver-cannot-compute", rig(card(driver_in_use="nvidia"))),
    "one version, its last number left out": (
        "driver-mismatch",
        rig(card(), software=SoftwareFacts(driver="580.82", cuda_module="580.82.09")),
    ),
    "a link without errors": ("pcie-errors", rig(card(link_errors=0))),
    "rows that were replaced": ("memory-remap-pending", rig(a5000(remap_pending=False))),
    "a warm card whose limit is not known": (
        "throttled-by-heat",
        rig(card(temperature=84, temperature_limit=None, utilization=100, performance_state="P2")),
    ),
    "a Radeon's hottest spot": (
        "throttled-by-heat",
        rig(
            replace(
                card(
                    temperature=96, temperature_limit=None, utilization=100, performance_state=None
                ),
                kind="rocm",
                name="AMD Radeon RX 7900 XTX",
                capability=None,
            )
        ),
    ),
    "a card of one or another size with its whole memory visible": (
        "resizable-bar-off",
        rig(Device(CARD, "xpu", "Intel Arc A770", 0, 0, facts=CardFacts(bar1_total=8 * GIB))),
    ),
    "a workstation card under Windows, by a driver model that was not told": (
        "wddm-spill",
        rig(a5000(), os="Microsoft Windows 11 Pro"),
    ),
    "a GeForce under Linux": ("wddm-spill", rig(card(), os="Ubuntu 24.04")),
    "enough of the RAM under WSL2": (
        "ram-small",
        rig(card(), ram=32 * GIB, host=HostFacts(wsl=True)),
    ),
    "enough RAM": ("ram-small", rig(card(), ram=32 * GIB)),
    "RAM at its rating": ("ram-channels-missing", around(memory_bandwidth=70e9)),
    "swap": ("swap-off", around(swap=2 * GIB)),
    "a container with all cores": ("container-cores", around(container="docker", core_limit=24.0)),
    "a limit above the card": ("container-shared-memory", around(shared_memory=64 * MIB)),
    "a fast disk": ("disk-slow", around(disk_read=3e9)),
    "a whole card that was passed through": ("virtual-gpu", rig(card(virtual=False))),
}


@pytest.mark.parametrize("name", WELL)
def test_a_machine_that_nearly_deserves_a_finding_gets_none(name: str) -> None:
    id, machine = WELL[name]
    assert id not in ids(machine)


def test_little_ram_under_wsl2_is_a_setting_and_elsewhere_a_purchase() -> None:
    (wsl,) = [
        f
        for f in diagnose(rig(card(), ram=15 * GIB, host=HostFacts(wsl=True)))
        if f.id == "ram-small"
    ]
    (linux,) = [f for f in diagnose(rig(card(), ram=15 * GIB)) if f.id == "ram-small"]
    assert "`memory=24GB`" in wsl.remedy
    assert ".wslconfig" in wsl.remedy
    assert linux.remedy.startswith("add RAM")


def test_cards_without_tcc_hide_nothing_from_wsl2() -> None:
    def cost(model: str) -> str:
        machine = rig(card(driver_model="WDDM"), card(SECOND, driver_model=model))
        (finding,) = [f for f in diagnose(machine) if f.id == "driver-models-differ"]
        return finding.cost

    assert "WSL2 shows no card" in cost("TCC")
    assert "WSL2" not in cost("MCDM")


@pytest.mark.parametrize(
    ("far", "sides"),
    [
        ({(a, b) for a in range(4) for b in range(4, 8)}, "[0, 1, 2, 3] or [4, 5, 6, 7]"),
        (
            {(a, b) for a in range(8) for b in range(8) if (a + b) % 2},
            "[0, 2, 4, 6] or [1, 3, 5, 7]",
        ),
    ],
)
def test_the_sides_of_two_sockets_hold_every_card_once(
    far: set[tuple[int, int]], sides: str
) -> None:
    cards = [card(str(number)) for number in range(8)]
    links = tuple(
        pair(str(a), str(b), path="SYS" if (a, b) in far else "PXB")
        for a in range(8)
        for b in range(a + 1, 8)
    )
    (finding,) = [f for f in diagnose(rig(*cards, links=links)) if f.id == "cards-on-two-sockets"]
    assert f"one side ({sides})" in finding.remedy


def test_a_ring_over_two_sockets_has_two_sides() -> None:
    cards = [card(str(number)) for number in range(4)]
    far = {(0, 3), (1, 2)}
    links = tuple(
        pair(str(a), str(b), path="SYS" if (a, b) in far else "nvlink")
        for a in range(4)
        for b in range(a + 1, 4)
    )
    (finding,) = [f for f in diagnose(rig(*cards, links=links)) if f.id == "cards-on-two-sockets"]
    assert "one side ([0, 1] or [2, 3])" in finding.remedy


def test_a_card_named_twice_in_a_finding_counts_once() -> None:
    (finding,) = [f for f in diagnose(rig(card(xids=(48, 64)))) if f.id == "xid-fault"]
    assert finding.devices == (CARD,)


def test_radeons_without_peers_are_not_told_of_geforce() -> None:
    cards = [
        replace(card(id), kind="rocm", name=f"AMD Radeon RX {model}", capability=None)
        for id, model in ((CARD, "7900 XTX"), (SECOND, "7800 XT"))
    ]
    machine = rig(*cards, links=(pair(read="not-supported"),))
    (finding,) = [f for f in diagnose(machine) if f.id == "p2p-off"]
    assert "AMD's driver" in finding.evidence
    assert "GeForce" not in finding.remedy


def test_a_user_without_rights_is_told_of_the_makers_own_files() -> None:
    fault = SoftwareFacts(driver_fault="no-permission")
    line = "AMD's tools: this user may not open /dev/kfd"
    (amd,) = diagnose(rig(software=fault, unknown=(line,)))
    (nvidia,) = diagnose(rig(software=fault))
    assert "render,video" in amd.remedy
    assert "/dev/nvidia*" in nvidia.remedy
