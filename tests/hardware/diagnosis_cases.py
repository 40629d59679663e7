"""Machines that each deserve one finding: the table behind the tests of diagnosis."""

from __future__ import annotations

from dataclasses import replace

from diagnosis_link_cases import LINK_CASES, Case
from diagnosis_memory_cases import MEMORY_CASES
from diagnosis_rigs import CARD, GIB, MIB, SECOND, a5000, card, rig, versions
from diagnosis_start_cases import START_CASES

from local_tp.core import Device, Pcie, Rig
from local_tp.facts import (
    CardFacts,
    HostFacts,
    SoftwareFacts,
)


def igpu() -> Device:
    return Device(
        "0000:12:00.0",
        "rocm",
        "AMD Radeon Graphics",
        total=32 * GIB,
        free=31 * GIB,
        facts=CardFacts(vendor="amd", integrated=True),
    )


def radeon() -> Device:
    facts = CardFacts(vendor="amd", architecture="gfx1100")
    return Device("0000:03:00.0", "rocm", "AMD Radeon RX 7900 XTX", 24 * GIB, 24 * GIB, facts=facts)


def mig_slice(number: int, profile: str | None, size: int) -> Device:
    return card(
        f"{CARD}/mig-{number}",
        name=f"NVIDIA A100 MIG {number}",
        total=size * GIB,
        slice_of=CARD,
        profile=profile,
    )


def with_host(**changes: object) -> Rig:
    sound = rig(card())
    return replace(sound, host=replace(sound.host, **changes))  # type: ignore[arg-type]


CASES = (
    *LINK_CASES,
    *MEMORY_CASES,
    *START_CASES,
    # power and heat
    Case(
        rig(card(power_limit=230.0, power_default=None)),
        "power-capped",
        "info",
        (CARD,),
        ("230 W", "350 W"),
    ),
    Case(rig(card(power_limit=230.0)), "power-capped", "info", (CARD,), ("230 W", "66%", "350 W")),
    Case(
        rig(
            card(
                name="Tesla P40",
                temperature=91,
                temperature_limit=None,
                utilization=100,
                performance_state="P0",
                pcie=None,
            )
        ),
        "throttled-by-heat",
        "warning",
        (CARD,),
        ("91 °C, its limit was not read; most cards slow down between 83 and 95 °C",),
    ),
    Case(
        rig(
            replace(
                card(
                    name="AMD Instinct MI210",
                    temperature=104,
                    temperature_limit=None,
                    utilization=100,
                    performance_state=None,
                    vendor="amd",
                    pcie=None,
                ),
                kind="rocm",
            )
        ),
        "throttled-by-heat",
        "warning",
        (CARD,),
        ("104 °C, its limit was not read; AMD's cards slow down when the hottest spot reaches",),
    ),
    Case(rig(card(temperature=96)), "throttled-by-heat", "warning", (CARD,), ("96 °C", "95 °C")),
    Case(
        rig(card(throttle=("HW Slowdown", "HW Thermal Slowdown"))),
        "throttled-by-heat",
        "warning",
        (CARD,),
        ("HW Thermal Slowdown",),
    ),
    Case(
        rig(card(throttle=("HW Power Brake Slowdown",))),
        "throttled-by-supply",
        "warning",
        (CARD,),
        ("HW Power Brake Slowdown",),
    ),
    Case(
        rig(
            card(
                throttle=("SW Power Cap",),
                performance_state="P2",
                utilization=99,
                clock=1050,
                clock_max=2100,
            )
        ),
        "throttled-by-power",
        "info",
        (CARD,),
        ("350 W", "1050 of 2100 MHz"),
    ),
    # faults
    Case(rig(card(lost=True)), "gpu-lost", "error", (CARD,), (CARD,)),
    Case(
        rig(unknown=("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.",)),
        "gpu-lost",
        "error",
        (CARD,),
        ("fallen off the bus",),
    ),
    Case(rig(card(ecc=True, ecc_uncorrected=3)), "ecc-errors", "error", (CARD,), ("3 errors",)),
    Case(
        rig(card(link_errors=1)), "pcie-errors", "info", (CARD,), ("at least one error, corrected",)
    ),
    Case(rig(card(link_errors=340)), "pcie-errors", "warning", (CARD,), ("340 errors",)),
    Case(
        rig(a5000(remap_pending=True)),
        "memory-remap-pending",
        "warning",
        (CARD,),
        ("only after a reset",),
    ),
    Case(rig(card(xids=(48,))), "xid-fault", "warning", (CARD,), ("Xid 48",)),
    Case(rig(card(replays=4180)), "pcie-replays", "warning", (CARD,), ("4,180",)),
    Case(
        rig(card(uuid="GPU-5e1f2a90"), card(SECOND, uuid="GPU-5e1f2a90")),
        "duplicate-gpu",
        "warning",
        (CARD, SECOND),
        ("2 times",),
    ),
    Case(
        rig(card(bandwidth=600e9)),
        "card-slower-than-rated",
        "warning",
        (CARD,),
        ("600.0 GB/s", "64%", "936.2 GB/s"),
    ),
    Case(
        rig(card(), software=SoftwareFacts(driver="595.71.05", cuda_module="590.48.01")),
        "driver-mismatch",
        "error",
        (),
        ("595.71.05", "590.48.01"),
    ),
    Case(
        rig(software=SoftwareFacts(driver_fault="not-running")),
        "driver-not-running",
        "error",
        (),
        ("does not answer",),
    ),
    Case(
        rig(unknown=("NVIDIA cards: the NVML library was not found",)),
        "driver-library-missing",
        "error",
        (),
        ("not found",),
    ),
    Case(
        rig(software=SoftwareFacts(driver_fault="unknown-error")),
        "driver-unknown-error",
        "error",
        (),
        ("does not start",),
    ),
    Case(
        rig(software=SoftwareFacts(driver_fault="no-permission")),
        "driver-no-permission",
        "error",
        (),
        ("device files",),
    ),
    Case(
        rig(
            software=SoftwareFacts(driver_fault="no-permission"),
            unknown=("AMD's tools: this user may not open /dev/kfd",),
        ),
        "driver-no-permission",
        "error",
        (),
        ("/dev/kfd",),
    ),
    Case(
        rig(radeon(), software=SoftwareFacts(driver_fault="amdgpu-missing")),
        "driver-amdgpu-missing",
        "error",
        (),
        ("amdgpu is not loaded",),
    ),
    Case(
        rig(card(), card(SECOND, driver_in_use="nouveau")),
        "driver-cannot-compute",
        "warning",
        (SECOND,),
        (f"RTX 3090 at {SECOND} is held by nouveau",),
    ),
    Case(
        rig(card(driver_in_use="vfio-pci")),
        "driver-cannot-compute",
        "warning",
        (CARD,),
        ("held by vfio-pci, which keeps it for virtual machines",),
    ),
    Case(
        rig(
            software=SoftwareFacts(
                driver="550.144", cuda_module="550.144.03", driver_fault="mismatch"
            )
        ),
        "driver-mismatch",
        "error",
        (),
        ("550.144 ", "550.144.03"),
    ),
    Case(
        rig(unknown=("nvidia-smi: no devices were found",)),
        "driver-sees-no-card",
        "error",
        (),
        ("finds no card",),
    ),
    # versions
    Case(
        rig(card(), software=versions(driver="570.86.15")),
        "driver-too-old",
        "error",
        (CARD,),
        ("570.86.15", "CUDA 13.0", "580"),
    ),
    Case(
        rig(card(), software=SoftwareFacts(driver="470.256.02")),
        "driver-too-old",
        "warning",
        (CARD,),
        ("470.256.02", "525"),
    ),
    Case(
        rig(
            card(name="NVIDIA GeForce RTX 5070", capability=(12, 0), total=12 * GIB),
            software=versions(torch_architectures=("sm_80", "sm_90")),
        ),
        "torch-lacks-architecture",
        "error",
        (CARD,),
        ("sm_120", "sm_80, sm_90"),
    ),
    Case(
        rig(
            card(name="Tesla P40", capability=(6, 1), pcie=Pcie(3, 16, 3, 16)),
            software=SoftwareFacts(driver="550.54.14"),
        ),
        "card-before-cuda-13",
        "info",
        (CARD,),
        ("6.1",),
    ),
    Case(
        rig(card(), software=versions(torch="2.13.0+cpu", torch_architectures=())),
        "torch-without-cuda",
        "error",
        (CARD,),
        ("2.13.0+cpu",),
    ),
    # what the cards are
    Case(
        rig(
            card(),
            card(SECOND, name="NVIDIA GeForce RTX 2060", total=6 * GIB, capability=(7, 5)),
        ),
        "mixed-architectures",
        "warning",
        (CARD, SECOND),
        ("7.5, 8.6",),
    ),
    Case(
        rig(card(), replace(card(SECOND), kind="rocm", name="AMD Radeon RX 7900 XTX")),
        "mixed-vendors",
        "info",
        (CARD, SECOND),
        ("AMD and NVIDIA",),
    ),
    Case(rig(card(mig=True)), "mig-on", "warning", (CARD,), ("MIG", "none of them is known")),
    Case(
        rig(card(mig=True), mig_slice(0, "3g.20gb", 20), mig_slice(1, None, 5)),
        "mig-on",
        "warning",
        (CARD,),
        (f"3g.20gb with 20.0 GiB ({CARD}/mig-0), one with 5.0 GiB ({CARD}/mig-1)",),
    ),
    Case(
        rig(card(driver_model="WDDM"), card(SECOND, driver_model="TCC")),
        "driver-models-differ",
        "warning",
        (CARD, SECOND),
        ("WDDM", "TCC"),
    ),
    Case(rig(card(virtual=True)), "virtual-gpu", "info", (CARD,), ("vGPU",)),
    Case(rig(card(), igpu()), "integrated-gpu", "info", ("0000:12:00.0",), ("processor's own",)),
    Case(
        rig(card(compute_mode="Exclusive_Process")),
        "compute-mode-exclusive",
        "warning",
        (CARD,),
        ("Exclusive Process",),
    ),
    Case(
        rig(card(compute_mode="Prohibited")),
        "compute-mode-prohibited",
        "error",
        (CARD,),
        ("Prohibited",),
    ),
    Case(rig(card(persistence=False)), "persistence-off", "info", (CARD,), ("persistence",)),
    Case(
        rig(card(external=True, pcie=Pcie(3, 4, 3, 16))),
        "external-gpu",
        "warning",
        (CARD,),
        ("external case", "x4"),
    ),
    Case(
        rig(card(name="NVIDIA GeForce RTX 3060 Laptop GPU", pcie=Pcie(1, 8, 4, 16))),
        "laptop-gpu",
        "info",
        (CARD,),
        ("laptop",),
    ),
    # the machine around them
    Case(rig(card(), ram=16 * GIB), "ram-small", "warning", (), ("16.0 GiB", "24.0 GiB")),
    Case(
        rig(card(), ram=15 * GIB, host=HostFacts(wsl=True)),
        "ram-small",
        "warning",
        (),
        ("WSL2 gives Linux 15.0 GiB", "24.0 GiB"),
    ),
    Case(rig(ram=4 * GIB), "ram-small", "warning", (), ("4.0 GiB",)),
    Case(with_host(memory_bandwidth=30e9), "ram-channels-missing", "warning", (), ("89.6 GB/s",)),
    Case(
        with_host(memory_channels=1, memory_bandwidth=31e9),
        "ram-channels-missing",
        "warning",
        (),
        ("one memory",),
    ),
    Case(with_host(swap=0), "swap-off", "info", (), ("no swap",)),
    Case(with_host(core_limit=4.0), "container-cores", "info", (), ("4 of 24",)),
    Case(with_host(memory_limit=6 * GIB), "container-memory", "warning", (), ("6.0 GiB",)),
    Case(
        with_host(container="docker", shared_memory=64 * MIB),
        "container-shared-memory",
        "warning",
        (),
        ("64 MiB",),
    ),
    Case(with_host(disk_read=140e6), "disk-slow", "warning", (), ("140 MB/s",)),
    Case(with_host(disk_free=7 * GIB), "disk-nearly-full", "warning", (), ("7.0 GiB",)),
)
