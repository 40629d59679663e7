"""Who makes a graphics card, what it is called, and whether it is part of a processor.

Knows nothing of any tool. The device ids are those of the PCI ID database, for tools that print
nothing else; an id that is not here is no error, the card then has no name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from local_tp.facts import Vendor

AMD_DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "66a0": "AMD Instinct MI50/MI60",
        "66a1": "AMD Instinct MI50/MI60",
        "66af": "AMD Radeon VII",
        "67df": "AMD Radeon RX 470/480/570/580",
        "67ef": "AMD Radeon RX 460/560",
        "6860": "AMD Instinct MI25",
        "687f": "AMD Radeon RX Vega 56/64",
        "731f": "AMD Radeon RX 5600/5700",
        "7340": "AMD Radeon RX 5500",
        "738c": "AMD Instinct MI100",
        "738e": "AMD Instinct MI100",
        "7408": "AMD Instinct MI250X",
        "740c": "AMD Instinct MI250X",
        "740f": "AMD Instinct MI210",
        "73a3": "AMD Radeon PRO W6800",
        "73af": "AMD Radeon RX 6900 XT",
        "73bf": "AMD Radeon RX 6800/6800 XT/6900 XT",
        "73a5": "AMD Radeon RX 6950 XT",
        "73df": "AMD Radeon RX 6700/6700 XT/6750 XT",
        "73ff": "AMD Radeon RX 6600/6600 XT",
        "7448": "AMD Radeon PRO W7900",
        "744c": "AMD Radeon RX 7900 XT/7900 XTX",
        "745e": "AMD Radeon PRO W7800",
        "747e": "AMD Radeon RX 7700 XT/7800 XT",
        "7480": "AMD Radeon RX 7600",
        "7550": "AMD Radeon RX 9070/9070 XT",
        "7551": "AMD Radeon AI PRO R9700",
        "7590": "AMD Radeon RX 9060 XT",
        "74a1": "AMD Instinct MI300X",
    }
)
_INTEGRATED_DEVICES = frozenset(
    {
        "150e", "1506", "13c0", "1586", "15bf", "15c8", "15d8", "15dd", "15e7", "1636", "1638",
        "164c", "164d", "164e", "1681", "1900", "1901", "163f", "1435", "9874", "98e4",
    }
)  # fmt: skip
_INTEL_INTEGRATED = frozenset(
    {
        "0102", "0112", "0122", "0152", "0162", "0402", "0412", "0416", "041a", "1902", "1912",
        "5902", "5912", "3e91", "3e92", "3e98", "9bc5", "9bc8", "4c8a", "4680", "4692", "a780",
    }
)  # fmt: skip
_INTEGRATED = re.compile(
    r"\bRaphael\b|\bCezanne\b|\bRenoir\b|\bLucienne\b|\bBarcelo\b|\bRembrandt\b|\bPhoenix\d?\b"
    r"|\bHawk Point\b|\bStrix\b|\bGranite Ridge\b|\bKrackan\b|\bPicasso\b|\bRaven\b|\bMendocino\b"
    r"|\bVega (?:3|6|7|8|10|11)\b(?! XT)|Radeon(?:\(TM\))? Graphics\b|\bRadeon [678]\d0M\b"
    r"|\bU?HD Graphics\b|\bIris\b|\bMeteor Lake\b|\bLunar Lake\b|\bArrow Lake\b|\bIntegrated\b",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"\[([^\[\]]{2,120})\](?!.{0,200}\[[^\[\]]{2,120}\])")


def vendor(text: str) -> Vendor | None:
    """Who makes the card that a text describes."""
    if re.search(r"NVIDIA|\b10de\b|GeForce|Quadro|\bRTX\b|\bGTX\b", text, re.IGNORECASE):
        return "nvidia"
    if re.search(r"\bAMD\b|\bATI\b|Advanced Micro|Radeon|\b1002:|Instinct|\bgfx\d", text):
        return "amd"
    return "intel" if re.search(r"Intel\b|\b8086:|\bArc\b", text) else None


def integrated(text: str) -> bool:
    """Whether a name or an AMD device id is that of graphics inside a processor."""
    word = text.strip().lower().removeprefix("0x")
    return word in _INTEGRATED_DEVICES | _INTEL_INTEGRATED or bool(_INTEGRATED.search(text))


def name_of(device: str) -> str | None:
    """The name of a device id such as `0x744c`, of AMD's and of Intel's inside processors."""
    word = device.strip().lower().removeprefix("0x").rstrip(",")
    if word in _INTEGRATED_DEVICES:
        return "AMD Radeon Graphics"
    return "Intel HD Graphics" if word in _INTEL_INTEGRATED else AMD_DEVICES.get(word)


def marketing_name(text: str) -> str | None:
    """`NVIDIA GeForce RTX 3090` of `NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)`."""
    plain = re.sub(r"\[(?:AMD/ATI|[0-9a-f]{4}(?::[0-9a-f]{4})?|8086|10de|1002)\]", "", text)
    plain = re.sub(r"\(prog-if[^)]{0,60}\)?", "", plain)
    match = _BRACKETED.search(plain)
    maker = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", None: ""}[vendor(text)]
    if not match:
        return None
    name = match[1].replace("Lite Hash Rate", "").strip()
    return name if name.upper().startswith(maker.upper()) else f"{maker} {name}".strip()
