"""Whether a card's slot is one of the chipset's, from the numbers of the bridges above it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_bus import add_bridge, add_function

from local_tp.hardware.live.pci import graphics, hangs_off_chipset
from local_tp.hardware.probe import probe


@pytest.mark.parametrize(
    ("bridges", "chipset"),
    [
        ([("0000:00:01.0", "0x8086", "0x460d")], None),  # the processor's x16 slot
        ([("0000:00:06.0", "0x8086", "0x464d")], None),  # the processor's M.2 slot
        ([("0000:00:1c.4", "0x8086", "0x7abc")], True),
        ([("0000:00:1b.0", "0x8086", "0x7ac0")], True),
        ([("0000:00:01.1", "0x1022", "0x1633")], None),
        ([("0000:00:02.1", "0x1022", "0x14db"), ("0000:02:00.0", "0x1022", "0x43f4")], True),
        ([("0000:00:01.2", "0x1022", "0x1483"), ("0000:02:00.0", "0x1022", "0x57ad")], True),
        ([("0000:00:01.0", "0x8086", "0x2f02"), ("0000:02:1c.0", "0x10b5", "0x8747")], None),
    ],
)
def test_a_slot_of_the_chipset(
    tmp_path: Path, bridges: list[tuple[str, str, str]], chipset: bool | None
) -> None:
    place = ""
    for slot, vendor, device in bridges:
        place = f"{place}/{slot}".strip("/")
        add_bridge(tmp_path, place, vendor, device, "8.0", "4")
    add_function(tmp_path, f"{place}/0000:09:00.0", "0x10de", "0x2204", "nvidia")
    (card,) = [f for f in graphics(tmp_path) if f.slot == "0000:09:00.0"]
    assert hangs_off_chipset(card) is chipset


def test_the_probe_says_it_of_an_amd_card(tmp_path: Path) -> None:
    add_bridge(tmp_path, "0000:00:1c.4", "0x8086", "0x7abc", "8.0", "4")
    folder = add_function(
        tmp_path, "0000:00:1c.4/0000:03:00.0", "0x1002", "0x744c", "amdgpu",
        mem_info_vram_total=str(24 << 30), mem_info_vram_used="0",
    )  # fmt: skip
    (card,) = [d for d in probe(tmp_path).devices if d.id == folder.name]
    assert card.facts.chipset is True
