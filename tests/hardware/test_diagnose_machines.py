"""Whole machines as people describe them, and everything a knowledgeable helper would say of each.

The machines have values of this project's own. Where real outputs of other people's machines lie
beside the repository, they are read and judged too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnosis_rigs import CARD, FOURTH, GIB, MIB, SECOND, THIRD, a5000, card, pair, rig

from local_tp.core import Device, Pcie, Rig
from local_tp.facts import CardFacts, HostFacts, PcieReading, Process, SoftwareFacts
from local_tp.hardware.diagnose import diagnose
from local_tp.hardware.paste.read import read_pasted

Said = list[tuple[str, str, tuple[str, ...]]]

PASTED = SoftwareFacts(driver="550.90.07")
ALL = (CARD, SECOND, THIRD, FOURTH)


def laptop() -> Device:
    return card(
        name="NVIDIA GeForce RTX 4070 Laptop GPU",
        total=8188 * MIB,
        capability=(8, 9),
        pcie=Pcie(1, 8, 4, 16),
        bar1_total=8 * GIB,
        power_limit=80.0,
        power_default=115.0,
        used=11 * MIB,
    )


def desktop() -> Device:
    processes = (Process(1, "dwm.exe", None), Process(2, "explorer.exe", None))
    return card(
        name="NVIDIA GeForce RTX 3070",
        total=8 * GIB,
        driver_model="WDDM",
        display=True,
        used=1210 * MIB,
        bar1_total=256 * MIB,
        processes=processes,
    )


def radeon(id: str, name: str, **facts: object) -> Device:
    values = CardFacts(vendor="amd", **facts)  # type: ignore[arg-type]
    return Device(id, "rocm", name, 16 * GIB, 15 * GIB, facts=values)


MACHINES: dict[str, tuple[Rig, Said]] = {
    "eight cards of one kind, idle": (
        rig(*(card(f"0000:{bus:02x}:00.0") for bus in range(1, 9)), software=PASTED),
        [],
    ),
    "four cards in a frame, capped, on eight lanes, without peer copies": (
        rig(
            *(card(id, pcie=Pcie(1, 8, 3, 16), power_limit=250.0) for id in ALL),
            links=tuple(
                pair(a, b, path="PHB", read="chipset", write="chipset")
                for a in ALL
                for b in ALL
                if a < b
            ),
            software=PASTED,
        ),
        [
            ("info", "nvlink-absent", ALL),
            ("info", "p2p-off", ALL),
            ("info", "pcie-narrow", ALL),
            ("info", "pcie-slot-older", ALL),
            ("info", "power-capped", ALL),
        ],
    ),
    "a Windows desktop": (
        rig(desktop(), software=PASTED),
        [
            ("info", "display-on-card", (CARD,)),
            ("info", "resizable-bar-off", (CARD,)),
            ("info", "wddm-spill", (CARD,)),
        ],
    ),
    "a laptop": (rig(laptop(), software=PASTED), [("info", "laptop-gpu", (CARD,))]),
    "unlike cards under WSL2": (
        rig(
            card(name="NVIDIA GeForce RTX 4070", total=12 * GIB, capability=(8, 9)),
            card(SECOND, name="NVIDIA GeForce RTX 3060", total=12 * GIB, power_default=170.0,
                 power_limit=170.0),
            host=HostFacts(wsl=True),
            software=SoftwareFacts(driver="572.16", torch="2.6.0+cu124", torch_cuda="12.4"),
        ),
        [
            ("info", "mixed-architectures", (CARD, SECOND)),
            ("info", "wsl-hidden-memory", (CARD, SECOND)),
        ],
    ),
    "a card lost from a mining riser": (
        rig(card(lost=True, xids=(79,), pcie=Pcie(1, 1, 2, 16)), card(SECOND)),
        [("error", "gpu-lost", (CARD,)), ("warning", "pcie-x1", (CARD,))],
    ),
    "a small PC with two cards on four lanes": (
        rig(
            a5000(pcie=Pcie(1, 4, 3, 16)),
            card(SECOND, pcie=Pcie(1, 4, 3, 16), power_limit=280.0),
            ram=15 * GIB,
        ),
        [
            ("warning", "ram-small", ()),
            ("warning", "pcie-x4", (CARD, SECOND)),
            ("info", "pcie-slot-older", (CARD, SECOND)),
            ("info", "power-capped", (SECOND,)),
        ],
    ),
    "a guest with a sliced server card": (
        rig(
            card("0000:00:05.0", name="NVIDIA A100-SXM4-40GB", total=40 * GIB, mig=True,
                 capability=(8, 0), ecc=True, performance_state="P0"),
            ram=128 * GIB,
            host=HostFacts(virtual_machine="kvm"),
            software=SoftwareFacts(driver="535.104.05"),
        ),
        [("warning", "mig-on", ("0000:00:05.0",))],
    ),
    "a Radeon beside the processor's graphics": (
        rig(
            radeon("0000:03:00.0", "AMD Radeon RX 7800 XT", used=60 * MIB),
            radeon("0000:10:00.0", "AMD Radeon Graphics", integrated=True, used=500 * MIB),
        ),
        [("info", "integrated-gpu", ("0000:10:00.0",))],
    ),
    "a patched driver that joins like cards only": (
        rig(
            card(name="NVIDIA GeForce RTX 4090", capability=(8, 9)),
            card(SECOND, name="NVIDIA GeForce RTX 4090", capability=(8, 9)),
            card(THIRD, name="NVIDIA GeForce RTX 4060 Ti", total=16380 * MIB, capability=(8, 9),
                 pcie=Pcie(1, 8, 4, 8), power_limit=165.0, power_default=165.0),
            links=(
                pair(CARD, SECOND, "p2p", read="ok", verdict="good", forth=26e9, back=26e9),
                pair(CARD, THIRD, read="not-supported", forth=9e9, back=9e9),
                pair(SECOND, THIRD, read="not-supported", forth=9e9, back=9e9),
            ),
        ),
        [("info", "p2p-off", (CARD, SECOND, THIRD))],
    ),
    "a program left running": (
        rig(
            card(used=22 * GIB, processes=(Process(90, "llama-server", 22 * GIB),)),
            card(SECOND, used=300 * MIB, processes=(Process(91, "python", 280 * MIB),)),
        ),
        [
            ("warning", "memory-in-use", (CARD,)),
            ("info", "memory-in-use", (SECOND,)),
        ],
    ),
    "a card at its limits": (
        rig(
            card(pcie_loaded=PcieReading(4, 16), temperature=96, utilization=99,
                 throttle=("SW Thermal Slowdown",), performance_state="P2", bandwidth=610e9)
        ),
        [
            ("warning", "card-slower-than-rated", (CARD,)),
            ("warning", "throttled-by-heat", (CARD,)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_everything_that_is_said_of_a_machine(name: str) -> None:
    machine, said = MACHINES[name]
    assert [(f.severity, f.id, f.devices) for f in diagnose(machine)] == said


REAL = Path(__file__).parents[2].parent / "shared" / "rigs"
# File name's start: the findings that a helper would give, no more and no fewer.
DESERVED = {
    "rig01": {"power-capped"},
    "rig03": set(),
    "rig05": set(),
    "rig08": {"display-on-card", "wddm-spill"},
    "rig10": {"mig-on"},
    "rig12": {"display-on-card"},
    "rig14": {"ecc-takes-memory", "persistence-off"},
    "rig15": set(),
    "rig18": set(),
    "rig19": set(),
    "rig21": {"memory-in-use"},
    "rig22": {"memory-in-use"},
    "rig23": set(),
    "rig28": {"driver-too-old", "display-on-card", "pcie-narrow", "wddm-spill"},
    "rig29": {"driver-too-old", "laptop-gpu"},
    "rig30": {"pcie-slot-older", "resizable-bar-off"},
    "rig31": {"driver-too-old", "mig-on", "persistence-off"},
    "rig32": {"driver-too-old", "card-before-cuda-13", "persistence-off"},
    "rig34": {"power-capped"},
    "rig36": {"memory-in-use", "resizable-bar-off"},
    "rig38": set(),
    "rig39": set(),
    "rig40": {"pcie-narrow"},
    "rig42": {"cards-on-two-sockets"},
    "rig43": {"p2p-off"},
    "rig45": {"p2p-off"},
    "rig46": set(),
    "rig47": set(),
    "rig50": {"p2p-off"},
    "rig55": {"gpu-lost"},
    "rig56": {"gpu-lost"},
    "rig57": {"gpu-lost", "pcie-x1"},
    "rig59": {"driver-not-running"},
    "rig60": {"driver-too-old", "memory-in-use"},
    "rig63": {"integrated-gpu"},
    "rig66": {"mixed-architectures", "wsl-hidden-memory"},
    "rig67": {"wsl-hidden-memory"},
    "rig65": set(),
    "rig71": {"ram-small", "pcie-x4", "pcie-slot-older", "power-capped"},
    "rig72": {"power-capped"},
    "rig74": set(),
    "rig75": set(),
    "rig76": set(),
    "rig79": {"p2p-off"},
    "rig81": {"collective-failed"},
    "rig82": set(),
}


@pytest.mark.skipif(not REAL.is_dir(), reason="no real outputs beside the repository")
@pytest.mark.parametrize("start", DESERVED)
def test_real_machines_get_what_they_deserve(start: str) -> None:
    (file,) = REAL.glob(f"{start}_*")
    found = diagnose(read_pasted([(file.name, file.read_bytes())]).rig)
    assert {finding.id for finding in found} == DESERVED[start]
