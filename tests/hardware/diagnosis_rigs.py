"""Machines for the tests of diagnosis, built by hand from a few values that matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from local_tp.core import Device, Link, Pcie, Rig
from local_tp.facts import CardFacts, HostFacts, NvLink, PairFacts, SoftwareFacts

GIB = 1024**3
MIB = 1024**2

CARD = "0000:17:00.0"
SECOND = "0000:65:00.0"
THIRD = "0000:b3:00.0"
FOURTH = "0000:ca:00.0"


def card(id: str = CARD, name: str = "NVIDIA GeForce RTX 3090", **changes: Any) -> Device:
    """A sound, idle 3090. Changes go to the device, or to its facts where it has no such field."""
    of_facts = {key: changes.pop(key) for key in list(changes) if hasattr(CardFacts(), key)}
    device = Device(
        id=id,
        kind="cuda",
        name=name,
        total=24 * GIB,
        free=23 * GIB,
        capability=(8, 6),
        pcie=Pcie(1, 16, 4, 16),
        display=False,
        facts=CardFacts(
            vendor="nvidia",
            used=4 * MIB,
            bar1_total=32 * GIB,
            replays=0,
            power_draw=18.0,
            power_limit=350.0,
            power_default=350.0,
            power_max=385.0,
            throttle=("Idle",),
            temperature=41,
            temperature_limit=95,
            utilization=0,
            compute_mode="Default",
            performance_state="P8",
            virtual=False,
        ),
    )
    return replace(device, **changes, facts=replace(device.facts, **of_facts))


def a5000(id: str = CARD, **changes: Any) -> Device:
    """A sound workstation card, for what drivers withhold from GeForce alone."""
    return card(id, name="NVIDIA RTX A5000", power_limit=230.0, power_default=230.0, **changes)


def pair(a: str = CARD, b: str = SECOND, kind: Any = "host", **facts: Any) -> Link:
    return Link(a, b, kind, facts=PairFacts(**facts))


def rig(
    *devices: Device,
    links: tuple[Link, ...] = (),
    host: HostFacts | None = None,
    software: SoftwareFacts | None = None,
    **changes: Any,
) -> Rig:
    """A sound PC of 64 GiB around the given devices."""
    sound = Rig(
        devices=devices,
        links=links,
        ram=64 * GIB,
        available_ram=58 * GIB,
        cores=12,
        os="Linux",
        host=host
        or HostFacts(
            physical_cores=12,
            logical_cores=24,
            memory_bandwidth=62e9,
            memory_channels=2,
            memory_speed=5600,
            swap=8 * GIB,
            iommu="off",
            disk_free=400 * GIB,
            disk_read=3.1e9,
        ),
        software=software
        or SoftwareFacts(
            driver="595.71.05",
            torch="2.13.0+cu130",
            torch_cuda="13.0",
            torch_architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
        ),
    )
    return replace(sound, **changes)


def versions(**changes: str | tuple[str, ...]) -> SoftwareFacts:
    return replace(rig().software, **changes)  # type: ignore[arg-type]


def joined(*up: bool | None, peer: str | None = None) -> tuple[NvLink, ...]:
    return tuple(NvLink(index, up=state, peer=peer) for index, state in enumerate(up))
