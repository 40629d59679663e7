"""Machines that each deserve one finding on graphics memory."""

from __future__ import annotations

from typing import Any

from diagnosis_link_cases import Case
from diagnosis_rigs import CARD, GIB, MIB, a5000, card, rig

from local_tp.core import Device
from local_tp.facts import CardFacts, HostFacts, Process


def unsized(kind: Any, name: str, **facts: Any) -> Device:
    """A card whose memory nobody told, under a name that may stand for two sizes."""
    return Device(CARD, kind, name, 0, 0, facts=CardFacts(**facts))


MEMORY_CASES = (
    Case(
        rig(card(bar1_total=256 * MIB)),
        "resizable-bar-off",
        "info",
        (CARD,),
        ("24.0 GiB", "256 MiB"),
    ),
    Case(
        rig(
            unsized("rocm", "AMD Radeon RX 7900 XT/7900 XTX", bar1_total=256 * MIB),
        ),
        "resizable-bar-off",
        "info",
        (CARD,),
        ("its 20.0 GiB or more", "256 MiB"),
    ),
    Case(
        rig(unsized("xpu", "Intel Arc A770", bar1_total=256 * MIB)),
        "resizable-bar-off",
        "info",
        (CARD,),
        ("its 16.0 GiB through", "256 MiB"),
    ),
    Case(
        rig(card(display=True, used=900 * MIB, processes=(Process(7, "Xorg", 700 * MIB),))),
        "display-on-card",
        "info",
        (CARD,),
        ("900 MiB", "Xorg"),
    ),
    Case(
        rig(card(used=21 * GIB, processes=(Process(7, "llama-server", 20 * GIB),))),
        "memory-in-use",
        "warning",
        (CARD,),
        ("20.0 GiB of 24.0 GiB", "llama-server"),
    ),
    Case(rig(card(used=2 * GIB)), "memory-in-use", "info", (CARD,), ("2.0 GiB",)),
    Case(rig(card(), os="Microsoft Windows 11 Pro"), "wddm-spill", "info", (CARD,), ("WDDM",)),
    Case(rig(card(driver_model="WDDM", display=True)), "wddm-spill", "info", (CARD,), ("WDDM",)),
    Case(
        rig(card(), host=HostFacts(wsl=True)),
        "wsl-hidden-memory",
        "info",
        (CARD,),
        ("1.3 GiB",),
    ),
    Case(
        rig(a5000(ecc=True, total=23028 * MIB)),
        "ecc-takes-memory",
        "info",
        (CARD,),
        ("22.5 GiB remain",),
    ),
    Case(
        rig(
            unsized("rocm", "AMD card"),
            unknown=(f"{CARD}: 97% of its memory is in use, and how much it has is not known",),
        ),
        "memory-nearly-full",
        "warning",
        (CARD,),
        ("97% of its memory",),
    ),
    Case(
        rig(card(name="NVIDIA GeForce GTX 1050 Ti", total=1 * GIB, capability=(6, 1), used=0)),
        "card-not-as-named",
        "warning",
        (CARD,),
        ("1050 Ti", "has 1.0 GiB", "less than 4.0 GiB"),
    ),
)
