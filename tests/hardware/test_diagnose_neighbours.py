"""For each rule, a machine that nearly deserves its finding, and is well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from diagnosis_rigs import CARD, GIB, MIB, SECOND, THIRD, a5000, card, joined, pair, rig, versions

from local_tp.core import Device, Pcie, Rig
from local_tp.facts import Collective, HostFacts, PcieReading, Process, SoftwareFacts
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
