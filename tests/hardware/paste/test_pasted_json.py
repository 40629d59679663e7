"""JSON of `amd-smi` and `xpu-smi`, and the latter's table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pasted_text import GIB, MIB, by_id, found, read

from local_tp.core import Pcie
from local_tp.facts import PcieReading, Process


def amount(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


STATIC = {
    "gpu": 0,
    "asic": {
        "market_name": "AMD Radeon PRO W7800",
        "device_id": "0x745e",
        "target_graphics_version": "gfx1100",
    },
    "bus": {
        "bdf": "0000:43:00.0",
        "max_pcie_width": 16,
        "max_pcie_speed": amount(16, "GT/s"),
        "pcie_interface_version": "Gen 4",
    },
    "vram": {"type": "GDDR6", "size": amount(32752, "MB"), "bit_width": 256},
    "numa": {"node": 1, "affinity": "NONE"},
}
METRIC = {
    "gpu": 0,
    "usage": {"gfx_activity": amount(98, "%"), "umc_activity": amount(40, "%")},
    "power": {"socket_power": amount(211, "W")},
    "pcie": {"width": 8, "speed": amount(16.0, "GT/s"), "replay_count": 240},
    "temperature": {"edge": amount(61, "C"), "hotspot": amount(79, "C")},
    "mem_usage": {"total_vram": amount(32752, "MB"), "used_vram": amount(30000, "MB")},
}
PROCESS = {
    "gpu": 0,
    "process_list": [
        {
            "process_info": {
                "name": "/opt/somebody/vllm",
                "pid": 77,
                "memory_usage": {"gtt_mem": amount(5, "B"), "vram_mem": amount(29 * GIB, "B")},
            }
        },
        {"process_info": "No running processes detected"},
    ],
}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("indent", [None, 4])
def test_amd_smi_in_json(named: bool, indent: int | None) -> None:
    def text(entry: dict[str, Any]) -> str:
        listed = [entry, entry | {"gpu": 1, "bus": {"bdf": "0000:83:00.0"}}]
        return json.dumps({"gpu_data": listed} if named else listed, indent=indent)

    pasted = read(f"$ amd-smi static --json\n{text(STATIC)}\n", text(METRIC), text(PROCESS))
    card = by_id(pasted.rig)["0000:43:00.0"]
    assert (card.name, card.total, card.free) == (
        "AMD Radeon PRO W7800",
        32752 * MIB,
        2752 * MIB,
    )
    assert card.pcie == Pcie(4, 8, 4, 16)
    facts = card.facts
    assert (facts.architecture, facts.numa, facts.replays) == ("gfx1100", 1, 240)
    assert (facts.utilization, facts.power_draw, facts.temperature) == (98, 211, 79)
    assert facts.processes == (Process(77, "vllm", 29 * GIB),)
    assert len(pasted.rig.devices) == 2
    assert "pcie-replays" in found(pasted.rig)
    assert pasted.unread == ()


@pytest.mark.parametrize(
    "text", ["[]", "[1, 2]", '[{"name": 1}]', '{"gpu_data": {}}', '{"gpu_data": [{"gpu": null}]}']
)
def test_other_json_is_no_card(text: str) -> None:
    pasted = read(text)
    assert pasted.rig.devices == ()
    assert pasted.unread


# ------------------------------------------------------------------------------------ xpu-smi

RULE = f"+{'-' * 11}+{'-' * 50}+\n"
HEADER = f"{RULE}| Device ID | Device Information{' ' * 31}|\n{RULE}"


def table(*cards: tuple[str, ...]) -> str:
    text = HEADER
    for number, entries in enumerate(cards):
        for row, entry in enumerate(entries):
            text += f"| {'' if row else number:<9} | {entry:<48} |\n"
        text += RULE
    return text


A770 = (
    "Device Name: Intel(R) Arc(TM) A770 Graphics",
    "Vendor Name: Intel(R) Corporation",
    "SOC UUID: 00000000-0000-0003-0000-000856a08086",
    "PCI BDF Address: 0000:03:00.0",
    "DRM Device: /dev/dri/card1",
    "Function Type: physical",
)
MORE = ("", "PCIe Generation: 4", "PCIe Max Link Width: 16", "Memory Physical Size: 15989.00 MiB")
INSIDE = (
    "Device Name: Intel(R) UHD Graphics 770",
    "PCI BDF Address: 0000:00:02.0",
    "PCIe Generation: -1",
    "Memory Physical Size: 0.00 MiB",
)
NAMELESS = ("Device Name: Intel(R) Graphics [0xe20b]", "PCI BDF Address: 0000:87:00.0")


def test_the_table_of_xpu_smi() -> None:
    pasted = read("$ xpu-smi discovery\n" + table(A770 + MORE, NAMELESS, INSIDE))
    cards = by_id(pasted.rig)
    card = cards["0000:03:00.0"]
    assert (card.kind, card.name, card.total) == ("xpu", "Intel Arc A770", 15989 * MIB)
    assert (card.facts.pcie_card, card.facts.index) == (PcieReading(4, 16), 0)
    assert cards["0000:87:00.0"].name == "Intel Arc B580"
    assert cards["0000:00:02.0"].facts.integrated is True
    assert pasted.unread == ()


@pytest.mark.parametrize("alone", [False, True])
def test_xpu_smi_in_json(alone: bool) -> None:
    entry = {
        "device_id": 0,
        "device_name": "Intel(R) Arc(TM) Pro B60 Graphics",
        "memory_physical_size_byte": str(24 * GIB),
        "pci_bdf_address": "0000:18:00.0",
        "pcie_generation": "1",
        "pcie_max_link_width": "1",
    }
    pasted = read(json.dumps(entry if alone else {"device_list": [entry]}, indent=2))
    (card,) = pasted.rig.devices
    assert (card.id, card.name, card.total) == ("0000:18:00.0", "Intel Arc Pro B60", 24 * GIB)
    # Its own end of the link inside the card: what the catalog has stands instead.
    assert card.facts.pcie_card == PcieReading(5, 8)
    assert pasted.unread == ()
