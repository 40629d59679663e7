"""Hand-made machines of one to eight cards, with everything that a report can say of them."""

from __future__ import annotations

from itertools import combinations

from local_tp.core import Device, Link, Pcie, Rig
from local_tp.facts import (
    CardFacts,
    Collective,
    Finding,
    HostFacts,
    NvLink,
    PairFacts,
    PcieReading,
    Process,
    SoftwareFacts,
)
from local_tp.hardware.report.report import Report

GIB = 1024**3
CPU = Device("cpu", "cpu", "Example Processor 16-Core", 64 * GIB, 50 * GIB, bandwidth=58e9)
SOFTWARE = SoftwareFacts("580.10", "13.0", torch="2.13.0", torch_cuda="13.0")


def card(bus: int, name: str, gib: int, **changes: object) -> Device:
    facts = changes.pop("facts", CardFacts(vendor="nvidia"))
    values = {"capability": (8, 6), "pcie": Pcie(1, 16, 4, 16), "uuid": uuid(bus)} | changes
    return Device(
        f"0000:{bus:02x}:00.0",
        "cuda",
        name,
        gib * GIB,
        (gib - 1) * GIB,
        facts=facts,  # type: ignore[arg-type]
        **values,  # type: ignore[arg-type]
    )


def uuid(bus: int) -> str:
    return f"GPU-{bus:08x}-1111-2222-3333-0123456789ab"


def one() -> Rig:
    facts = CardFacts(
        vendor="nvidia", pcie_loaded=PcieReading(4, 4), copy_to=6.4e9, copy_from=6.1e9
    )
    return Rig((card(1, "NVIDIA GeForce RTX 3060", 12, facts=facts), CPU), ram=64 * GIB, os="Linux")


def two() -> Rig:
    """Mismatched, unmeasured, P2P that loses its data; busy and named in ways not to be told."""
    busy = CardFacts(
        vendor="nvidia",
        used=3 * GIB,
        processes=(Process(4711, "/home/ann/bin/game", 2 * GIB),),
        power_limit=150.0,
        power_default=170.0,
        throttle=("power cap",),
    )
    cards = (
        card(1, "NVIDIA GeForce RTX 3060", 12, facts=busy, display=True),
        card(0x21, "NVIDIA GeForce RTX 5060 Ti", 16, pcie=Pcie(1, 1, 5, 8), capability=(12, 0)),
    )
    pair = PairFacts(path="PHB", read="ok", write="ok", verdict="broken")
    return Rig(
        (*cards, CPU),
        (Link(cards[0].id, cards[1].id, "p2p", facts=pair),),
        ram=64 * GIB,
        cores=16,
        os="Linux 6.8.0 on ann-tower",
        unknown=(f"card {uuid(1)} did not say its NUMA node", "ann@ann-tower: no lspci"),
        host=HostFacts(command_line="root=/dev/mapper/ann--vg iommu=pt quiet pcie_aspm=off"),
        software=SOFTWARE,
    )


def four() -> Rig:
    """Two NVLink pairs, each behind a switch, on one socket; everything measured."""
    buses = (1, 2, 0x41, 0x42)
    loaded = (PcieReading(4, 16), PcieReading(4, 8), PcieReading(4, 16), PcieReading(3, 1))
    rates = (25.3e9, 12.9e9, 25.1e9, 0.8e9)
    cards = tuple(
        card(
            bus,
            "NVIDIA GeForce RTX 3090",
            24,
            facts=CardFacts(
                vendor="nvidia",
                pcie_loaded=reading,
                copy_to=rate,
                copy_from=rate * 0.98,
                nvlinks=tuple(NvLink(i, True, bandwidth=14.06e9) for i in range(4)),
            ),
        )
        for bus, reading, rate in zip(buses, loaded, rates, strict=True)
    )
    links = []
    for a, b in combinations(cards, 2):
        joined = {a.id, b.id} in ({cards[0].id, cards[1].id}, {cards[2].id, cards[3].id})
        rate = 52.4e9 if joined else 0.7e9 if cards[3] in (a, b) else 11.2e9
        facts = PairFacts(
            path="PIX" if joined else "PHB",
            nvlinks=4 if joined else None,
            read="ok" if joined else "chipset",
            forth=rate,
            back=rate * 0.9,
            verdict="good" if joined else "unsupported",
        )
        kind = "nvlink" if joined else "host"
        links.append(Link(a.id, b.id, kind, rate, 1.4e-6, joined, True, facts))
    timed = tuple(
        Collective("shared-memory", 4, n, t, True) for n, t in ((8192, 31e-6), (1 << 20, 4e-4))
    )
    host = HostFacts("Example EPYC 7003", memory_bandwidth=140e9, memory_channels=8, swap=0)
    return Rig((*cards, CPU), tuple(links), 256 * GIB, 240 * GIB, 32, "Linux", "580.10", (), host,
               SOFTWARE, timed)  # fmt: skip


def eight() -> Rig:
    """Two sockets of four unlike cards each, nothing measured but the pairs on one socket."""
    names = ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA GeForce RTX 5090")
    cards = tuple(
        card(0x10 * (i + 1), names[i % 2], 96 if i % 2 == 0 else 32, pcie=Pcie(5, 16, 5, 16),
             facts=CardFacts(vendor="nvidia", numa=i // 4, lost=i == 6))
        for i in range(8)
    )  # fmt: skip
    links = []
    for (i, a), (j, b) in combinations(enumerate(cards), 2):
        near = i // 4 == j // 4
        facts = PairFacts(path="NODE" if near else "SYS", read="ok")
        rate = 55.9e9 if near else None
        links.append(Link(a.id, b.id, "p2p", rate, None, near, near, facts))
    host = HostFacts("Example EPYC 9005 with a long name of a processor", sockets=2, numa_nodes=2)
    return Rig((*cards, CPU), tuple(links), 512 * GIB, 500 * GIB, 64, "Linux", "580.10", (), host)


def report_of(rig: Rig) -> Report:
    cards = tuple(d.id for d in rig.devices if d.kind != "cpu")
    findings = (
        Finding("display-attached", "info", cards[:1], "0.4 GiB used", "0.4 GiB", "Unplug it."),
        Finding(
            "narrow-link",
            "warning",
            cards[-1:],
            f"{cards[-1]} runs at x1 under load, the card can do x8",
            "about 12 tokens/s of 40 with a tensor split",
            "Move the card to a slot with at least 4 lanes, or use --split layer.",
        ),
        Finding("p2p-broken", "error", cards[:2], "zeros arrived", "", "Run nothing over P2P."),
    )
    return Report(rig, findings, ("Serial Number : 0321018012345", "<b>odd</b> line"))
