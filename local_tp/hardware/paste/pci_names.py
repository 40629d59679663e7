"""Who makes a graphics card, what it is called, and whether it is part of a processor or chipset.

Knows nothing of any tool but `lspci`, whose words for devices are those of the PCI ID database.
"""

from __future__ import annotations

import re

from local_tp.facts import Vendor
from local_tp.hardware.paste.pci_devices import (
    AMD_DEVICES,
    AMD_INTEGRATED,
    INTEL_DEVICES,
    INTEL_INTEGRATED,
    NVIDIA_DEVICES,
)

_INTEGRATED = re.compile(
    r"\bRaphael\b|\bCezanne\b|\bRenoir\b|\bLucienne\b|\bBarcelo\b|\bRembrandt\b|\bPhoenix\d?\b"
    r"|\bHawk ?Point\d?\b|\bStrix\b|\bGranite Ridge\b|\bKrackan\b|\bPicasso\b|\bRaven\b"
    r"|\bMendocino\b|\bVan ?Gogh\b|\bGorgon\b|\bDali\b|\bCarrizo\b|\bKaveri\b"
    r"|\bVega (?:3|6|7|8|9|11)\b|\bVega 10 (?:Graphics|Mobile)|Radeon(?:\(TM\))? Graphics\b"
    r"|\bRadeon(?:\(TM\))? (?:[678]\d0M|80[456]0S)\b|\bU?HD Graphics\b|\bIris\b"
    r"|\bMeteor Lake\b|\bLunar Lake\b|\bArrow Lake\b|\bPanther Lake\b|\bIntegrated\b"
    r"|\bArc(?:\(TM\))? (?:Graphics|1[34]0[VT])\b|Core Processor Graphics",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"\[([^\[\]]{2,120})\](?!.{0,200}\[[^\[\]]{2,120}\])")
_ID = re.compile(r"\[(?:10de|1002|8086):([0-9a-f]{4})\]|\bDevice ([0-9a-f]{4})\b", re.IGNORECASE)
_GRAPHICS = re.compile(
    r"GeForce|Quadro|\bRTX\b|\bGTX\b|Tesla|\bTITAN\b|Radeon|Instinct|\bNavi\b|\bVega\b|\bArc\b"
    r"|NVIDIA Corporation|\[AMD/ATI\]|Graphics\b|Display controller|VGA",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"Audio|USB|UCSI|Bridge|Port\b|Switch|HDMI|Memory Controller|Host Controller", re.IGNORECASE
)
_SHARE = re.compile(r"\w-\d{1,3}[QCAB]\Z")
_CHIPSET = re.compile(r"\b\w{1,6} Series Chipset\b|\bChipset Family\b|\bPCH\b|\bPromontory\b")
_MATISSE = re.compile(r"Matisse USB|FCH SATA|Matisse (?:Switch|PCIe GPP)")
_INTEL_PORT = re.compile(r"[0-9a-f]{2}:1[bcd]\.[0-7]\Z")


def vendor(text: str) -> Vendor | None:
    """Who makes the card that a text describes."""
    if re.search(
        r"NVIDIA|\b10de\b|GeForce|Quadro|Tesla|\bTITAN\b|\bRTX\b|\bGTX\b", text, re.IGNORECASE
    ):
        return "nvidia"
    if re.search(r"\bAMD\b|\bATI\b|Advanced Micro|Radeon|\b1002:|Instinct|\bgfx\d", text):
        return "amd"
    return "intel" if re.search(r"Intel\b|\b8086:|\bArc\b", text) else None


def integrated(text: str) -> bool:
    """Whether a name or a device id is that of graphics inside a processor."""
    word = text.strip().lower().removeprefix("0x")
    known = word in AMD_INTEGRATED | INTEL_INTEGRATED or _is_inside(text)
    return known or bool(_INTEGRATED.search(text))


def virtual(name: str) -> bool:
    """Whether an NVIDIA name is that of a share of a card, such as `GRID T4-16Q`."""
    return bool(_SHARE.search(name))


def is_card(title: str) -> bool:
    """Whether a device's title in a tree is that of graphics, of a maker of such cards."""
    known = bool(_GRAPHICS.search(title)) or _is_inside(title)
    return known and not _OTHER.search(title) and vendor(title) is not None


def of_chipset(title: str, steps: int) -> bool:
    """Whether a device is part of a chipset, `steps` down from the root complex.

    X570's parts have the names of those in the processor, but hang below a switch.
    """
    return bool(_CHIPSET.search(title) or (steps > 3 and _MATISSE.search(title)))


def intel_chipset_port(bridge: str) -> bool:
    """Whether a root port's number, such as `00:1c.4`, is one of those in Intel's chipsets."""
    return bool(_INTEL_PORT.search(bridge))


def name_of(device: str) -> str | None:
    """The name of a device id such as `0x744c`."""
    word = device.strip().lower().removeprefix("0x").rstrip(",")
    if word in AMD_INTEGRATED:
        return "AMD Radeon Graphics"
    if word in INTEL_INTEGRATED:
        return "Intel HD Graphics"
    return AMD_DEVICES.get(word) or NVIDIA_DEVICES.get(word) or INTEL_DEVICES.get(word)


def marketing_name(text: str) -> str | None:
    """`NVIDIA GeForce RTX 3090` of `NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)`."""
    plain = re.sub(r"\[(?:AMD/ATI|AMD|[0-9a-f]{4}(?::[0-9a-f]{4})?)\]", "", text)
    plain = re.sub(r"\((?:prog-if|rev)[^)]{0,60}\)?", "", plain)
    match = _BRACKETED.search(plain)
    maker = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", None: ""}[vendor(text)]
    if match:
        name = match[1].replace("Lite Hash Rate", "").strip()
        return name if name.upper().startswith(maker.upper()) else f"{maker} {name}".strip()
    if told := name_of(_id(text)):
        return told
    if integrated(text):
        family = re.sub(r".*(?:Corporation|Inc\.)\s*", "", plain).strip()
        return f"{maker} {family}".strip() if family and "Device" not in family else None
    return None


def _is_inside(title: str) -> bool:
    """Whether a title has the id of a processor's graphics, of the maker that it names."""
    ids = {"amd": AMD_INTEGRATED, "intel": INTEL_INTEGRATED}.get(vendor(title) or "", frozenset())
    return _id(title) in ids


def _id(title: str) -> str:
    match = _ID.search(title)
    return (match[1] or match[2]).lower() if match else ""
