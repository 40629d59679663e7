"""Machines that each deserve one finding on links, peers or NVLink."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from diagnosis_rigs import CARD, GIB, SECOND, THIRD, a5000, card, joined, pair, rig

from local_tp.core import Pcie, Rig
from local_tp.facts import (
    Collective,
    HostFacts,
    PcieReading,
)


class Case(NamedTuple):
    """A machine, the one finding of that id it deserves, and what its evidence must say."""

    rig: Rig
    id: str
    severity: str
    devices: tuple[str, ...]
    says: tuple[str, ...]


LINK_CASES = (
    # PCI Express
    Case(
        rig(card(pcie=Pcie(1, 1, 4, 16))),
        "pcie-x1",
        "warning",
        (CARD,),
        ("RTX 3090", "1 of 16 lanes"),
    ),
    Case(
        rig(card(pcie=Pcie(4, 4, 4, 16), pcie_slot=PcieReading(4, 4))),
        "pcie-x4",
        "warning",
        (CARD,),
        ("4 of 16 lanes", "no more than 4"),
    ),
    Case(
        rig(card(pcie=Pcie(4, 8, 4, 16), pcie_slot=PcieReading(4, 16))),
        "pcie-narrow",
        "info",
        (CARD,),
        ("8 of 16 lanes", "the slot has 16, so lanes are lost"),
    ),
    Case(
        rig(card(pcie_loaded=PcieReading(2, 16), pcie_slot=PcieReading(4, 16))),
        "pcie-generation-low",
        "warning",
        (CARD,),
        ("PCIe 2.0 x16 under load", "4.0"),
    ),
    Case(
        rig(card(pcie=Pcie(1, 16, 4, 16), utilization=97, performance_state="P2")),
        "pcie-generation-low",
        "warning",
        (CARD,),
        ("PCIe 1.0 x16 under load",),
    ),
    Case(
        rig(card(pcie=Pcie(3, 16, 4, 16), utilization=97, performance_state=None)),
        "pcie-generation-low",
        "warning",
        (CARD,),
        ("PCIe 3.0 x16 under load",),
    ),
    Case(
        rig(card(pcie_card=PcieReading(4, 16), pcie_slot=PcieReading(3, 16))),
        "pcie-slot-older",
        "info",
        (CARD,),
        ("PCIe 4.0", "3.0 at most"),
    ),
    Case(
        rig(card(pcie=Pcie(4, 8, 4, 16), copy_to=3.2e9, copy_from=3.3e9)),
        "pcie-copy-slow",
        "warning",
        (CARD,),
        ("3.2 GB/s", "4.0 x8 reaches about 13.1 GB/s"),
    ),
    Case(
        rig(
            card(),
            card(SECOND),
            card(THIRD),
            links=(
                pair(CARD, SECOND, path="PHB", forth=13.2e9, back=13.1e9),
                pair(CARD, THIRD, path="PHB", forth=6.5e9, back=6.4e9),
                pair(SECOND, THIRD, path="PHB", forth=6.6e9, back=6.5e9),
            ),
        ),
        "uneven-links",
        "warning",
        (THIRD,),
        ("2.0 times", "6.4 GB/s", "13.1 GB/s"),
    ),
    Case(
        rig(card(), card(SECOND, pcie=Pcie(4, 4, 4, 16))),
        "uneven-slots",
        "info",
        (SECOND,),
        (f"x16 at {CARD}", f"x4 at {SECOND}"),
    ),
    Case(
        rig(card(), card(SECOND, chipset=True)),
        "pcie-chipset",
        "warning",
        (SECOND,),
        (SECOND, "off the chipset"),
    ),
    Case(rig(card(chipset=True, pcie=None)), "pcie-chipset", "info", (CARD,), ("the chipset",)),
    Case(
        rig(card(chipset=True, pcie=Pcie(3, 4, 4, 16))),
        "pcie-x4",
        "warning",
        (CARD,),
        ("and it hangs off the chipset",),
    ),
    # peer to peer
    Case(
        rig(card(), card(SECOND), links=(pair(read="chipset", write="chipset"),)),
        "p2p-off",
        "info",
        (CARD, SECOND),
        ("CNS", "withholds peer-to-peer from GeForce"),
    ),
    Case(
        rig(
            a5000(),
            a5000(SECOND),
            links=(pair(read="chipset"),),
            host=HostFacts(iommu="on", swap=GIB),
        ),
        "p2p-off",
        "warning",
        (CARD, SECOND),
        ("IOMMU or ACS",),
    ),
    Case(
        rig(a5000(), a5000(SECOND), links=(pair(read="chipset"),)),
        "p2p-off",
        "info",
        (CARD, SECOND),
        ("1 pair between 2 x RTX A5000", "the chipset"),
    ),
    Case(
        rig(a5000(), a5000(SECOND), links=(pair(read="topology", path="SYS"),)),
        "p2p-off",
        "info",
        (CARD, SECOND),
        ("TNS", "different processors"),
    ),
    Case(
        rig(a5000(), card(SECOND), links=(pair(verdict="unsupported"),)),
        "p2p-off",
        "info",
        (CARD, SECOND),
        ("no peer access", "different models"),
    ),
    Case(
        rig(
            a5000(),
            a5000(SECOND),
            links=(pair(read="not-supported"),),
            host=HostFacts(virtual_machine="kvm"),
        ),
        "p2p-off",
        "info",
        (CARD, SECOND),
        ("virtualisation",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(read="chipset"),), host=HostFacts(wsl=True)),
        "p2p-off",
        "info",
        (CARD, SECOND),
        ("WSL2",),
    ),
    Case(
        rig(a5000(), a5000(SECOND), links=(pair(read="disabled"),)),
        "p2p-off",
        "warning",
        (CARD, SECOND),
        ("driver setting",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(read="ok", verdict="broken"),)),
        "p2p-broken",
        "error",
        (CARD, SECOND),
        ("the data did not arrive",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(read="ok", verdict="hangs"),)),
        "p2p-hangs",
        "error",
        (CARD, SECOND),
        ("did not end",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(read="ok", verdict="failed"),)),
        "p2p-failed",
        "warning",
        (CARD, SECOND),
        ("failed with an error",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(read="ok"),), host=HostFacts(iommu="on")),
        "iommu-translates",
        "warning",
        (CARD, SECOND),
        ("1 pair",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(write="ok"),), host=HostFacts(iommu="on")),
        "iommu-translates",
        "warning",
        (CARD, SECOND),
        ("1 pair",),
    ),
    Case(
        rig(
            *(a5000(id) for id in (CARD, SECOND, THIRD)),
            links=(
                pair(CARD, SECOND, read="ok", forth=52.8e9, back=52.7e9, staged=9.7e9),
                pair(CARD, THIRD, read="ok", forth=1.13e9, back=1.12e9, staged=9.5e9),
                pair(SECOND, THIRD, read="ok", both=3.3e9, staged_both=14.6e9),
            ),
        ),
        "p2p-slower-than-memory",
        "warning",
        (CARD, SECOND, THIRD),
        (
            f"{CARD} with {THIRD}, {SECOND} with {THIRD}: with peer-to-peer",
            "carry 1.1 GB/s, with it off 9.5 GB/s",
        ),
    ),
    Case(
        rig(
            a5000(),
            a5000(SECOND),
            links=(replace(pair(read="ok", write="ok"), latency=49205e-6),),
        ),
        "p2p-slower-than-memory",
        "warning",
        (CARD, SECOND),
        (f"{CARD} with {SECOND}: with peer-to-peer a message takes 49 ms",),
    ),
    Case(
        rig(card(), card(SECOND), links=(pair(path="PIX"),), host=HostFacts(acs=True)),
        "acs-redirects",
        "info",
        (CARD, SECOND),
        ("share a PCIe switch",),
    ),
    Case(
        rig(card(nvlinks=joined(True, True, False, True)), card(SECOND)),
        "nvlink-down",
        "warning",
        (CARD,),
        ("1 of 4 NVLinks",),
    ),
    Case(
        rig(card(nvlinks=joined(False, False, peer=SECOND))),
        "nvlink-down",
        "warning",
        (CARD,),
        ("2 of 2 NVLinks",),
    ),
    Case(
        rig(card(nvlinks=joined(False)), card(SECOND, nvlinks=joined(False))),
        "nvlink-absent",
        "info",
        (CARD, SECOND),
        ("2 x GeForce RTX 3090",),
    ),
    Case(
        rig(a5000(), a5000(SECOND), links=(pair(path="PHB", nvlinks=0, forth=11e9),)),
        "nvlink-absent",
        "info",
        (CARD, SECOND),
        ("2 x RTX A5000",),
    ),
    Case(
        rig(card(), card(SECOND), unknown=("nccl-tests failed: unhandled cuda error",)),
        "collective-failed",
        "warning",
        (CARD, SECOND),
        ("unhandled cuda error",),
    ),
    Case(
        rig(card(), collectives=(Collective("nccl", 2, 8192, 2e-5, correct=False),)),
        "collective-wrong",
        "error",
        (CARD,),
        ("8,192 bytes over 2 ranks by nccl",),
    ),
    Case(
        rig(
            *(card(id) for id in (CARD, SECOND, THIRD)),
            links=(pair(CARD, SECOND, path="PIX"), pair(CARD, THIRD, path="SYS")),
        ),
        "cards-on-two-sockets",
        "info",
        (CARD, THIRD),
        ("1 of 2 pairs",),
    ),
    Case(
        rig(
            card(pcie=None),
            card(SECOND, pcie=None),
            links=(pair(forth=0.78e9, back=0.77e9),),
        ),
        "pairs-slow",
        "warning",
        (CARD, SECOND),
        (f"{CARD} with {SECOND}: copies", "carry 770 MB/s", "modest slots reach about 6.5 GB/s"),
    ),
)
