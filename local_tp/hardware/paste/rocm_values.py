"""One AMD card's values as `rocm-smi` names them, in its lines and in its JSON.

Knows nothing of how they were laid out. Names changed with the releases; the most telling comes
first. Graphics inside a processor is told apart by its device id or target, then by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from local_tp.core import Pcie
from local_tp.facts import CardFacts
from local_tp.hardware.devices import bus_id
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import Card
from local_tp.hardware.paste.values import generation, known, number, size, whole

_NAMES = ("Card Series", "Card series", "Device Name", "Card Model", "Card model", "Marketing Name")
# Targets of graphics inside processors.
INSIDE = frozenset(
    {
        "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037",
        "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    }
)  # fmt: skip
_NAMELESS = re.compile(r"(?:AMD )?Radeon(?:\(TM\))? Graphics\Z|0x")


def card(values: Mapping[str, str]) -> Card:
    """The card that `values` are about."""

    def first(*names: str) -> str | None:
        return next((text for name in names if (text := known(values.get(name)))), None)

    device = first("Device ID", "GPU ID", "Card Model", "Card model") or ""
    names = [text for name in _NAMES if (text := known(values.get(name)))]
    spoken = next((text for text in names if not text.startswith("0x")), None)
    target = (first("GFX Version", "GFX version") or "").partition(":")[0] or None
    name = called(spoken, device)
    total = size(first("VRAM Total Memory (B)"), "B")
    used = size(first("VRAM Total Used Memory (B)"), "B")
    share = number(first("GPU Memory Allocated (VRAM%)"))
    link = first("pcie clock level") or first("PCIe speed", "pcie clock speed") or ""
    speed = re.search(r"([\d.]{3,5})GT/s", link)
    width = re.search(r"x(\d{1,2})\b", link)
    fastest, widest = _levels(values)
    limits = first("Max Graphics Package Power (W)")
    draws = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
    return Card(
        slot=bus_id(first("PCI Bus", "PCI bus") or ""),
        name=name,
        total=total,
        free=total - used if total is not None and used is not None else None,
        used_share=None if share is None else share / 100,
        pcie=Pcie(
            generation(speed[1] if speed else None),
            int(width[1]) if width else None,
            fastest,
            widest,
        ),
        facts=CardFacts(
            vendor="amd",
            architecture=target,
            used=used,
            bar1_total=size(first("VIS_VRAM Total Memory (B)"), "B"),
            bar1_used=size(first("VIS_VRAM Total Used Memory (B)"), "B"),
            replays=whole(first("PCIe Replay Count")),
            power_draw=number(first(*draws)),
            power_limit=number(limits),
            clock=whole((first("sclk clock speed:") or "").strip("()")),
            memory_clock=whole((first("mclk clock speed:") or "").strip("()")),
            temperature=whole(
                first("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
            ),
            utilization=whole(first("GPU use (%)")),
            numa=_node(first("(Topology) Numa Node")),
            integrated=True if is_inside(name, device, target) else None,
        ),
    )


def called(spoken: str | None, device: str) -> str | None:
    """A card's name: as a tool has it, or by its device id where that says no more than AMD."""
    if spoken and not _NAMELESS.match(_tidy(spoken)):
        return _tidy(spoken)
    return pci_names.name_of(device) or (_tidy(spoken) if spoken else None)


def is_inside(name: str | None, device: str, target: str | None) -> bool:
    """Whether this is graphics inside a processor; cards too call themselves Radeon Graphics."""
    if (target or "").startswith("gfx"):
        return target in INSIDE
    return pci_names.integrated(device) or pci_names.integrated(name or "")


def _levels(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The fastest level of the link: levels are numbered, their speeds end in GT/s."""
    found = [
        (generation(text) or 0, int(text.split("x")[1].split()[0]))
        for name, text in values.items()
        if name.isdecimal() and re.match(r"[\d.]{3,5}GT/s x\d{1,2}\b", text)
    ]
    return max(found) if found else (None, None)


def _node(text: str | None) -> int | None:
    node = whole(text)
    return node if node is not None and node >= 0 else None


def _tidy(name: str) -> str:
    """`AMD Radeon RX 6700/6700 XT` of `Navi 22 [Radeon RX 6700/6700 XT]`."""
    match = re.search(r"\[([^\[\]]{3,100})\]", name)
    plain = (match[1] if match else name).strip()
    return plain if plain.startswith("AMD") else f"AMD {plain}"
