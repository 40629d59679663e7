"""`lspci` as a tree or in full: chipset slots, graphics of processors, and how far cards are."""

from __future__ import annotations

import pytest
from pasted_text import bus, by_id, found, pairs, read

X570 = """\
~$ lspci -tv
-[0000:00]-+-00.0  Advanced Micro Devices, Inc. [AMD] Starship/Matisse Root Complex
           +-01.2-[02-0a]----00.0-[03-0a]--+-05.0-[05]--+-00.0  NVIDIA Corporation GA104 [GeForce RTX 3070]
           |                               |            \\-00.1  NVIDIA Corporation GA104 High Definition Audio Controller
           |                               \\-08.0-[08]--+-00.0  Advanced Micro Devices, Inc. [AMD] Starship/Matisse Reserved SPP
           |                                            \\-00.1  Advanced Micro Devices, Inc. [AMD] Matisse USB 3.0 Host Controller
           +-03.1-[0b]--+-00.0  NVIDIA Corporation GA102 [GeForce RTX 3090]
           |            \\-00.1  NVIDIA Corporation GA102 High Definition Audio Controller
           \\-08.1-[0d]--+-00.0  Advanced Micro Devices, Inc. [AMD] Starship/Matisse Reserved SPP
                        \\-00.3  Advanced Micro Devices, Inc. [AMD] Matisse USB 3.0 Host Controller
"""  # noqa: E501
AM5 = """\
-[0000:00]-+-00.0  Advanced Micro Devices, Inc. [AMD] Raphael/Granite Ridge Root Complex
           +-01.1-[01-03]----00.0-[02-03]----00.0-[03]--+-00.0  Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XTX]
           |                                            \\-00.1  Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 HDMI/DP Audio
           +-02.1-[04-0f]----00.0-[05-0f]--+-00.0-[06]----00.0  NVIDIA Corporation AD106 [GeForce RTX 4060 Ti]
           |                               \\-0c.0-[0e]----00.0  Advanced Micro Devices, Inc. [AMD] 600 Series Chipset USB 3.2 Controller
           \\-08.1-[10]--+-00.0  Advanced Micro Devices, Inc. [AMD/ATI] Raphael
                        +-00.1  Advanced Micro Devices, Inc. [AMD/ATI] Rembrandt Radeon High Definition Audio Controller
                        \\-00.2  Advanced Micro Devices, Inc. [AMD] VanGogh PSP/CCP
"""  # noqa: E501
INTEL = """\
-[0000:00]-+-00.0  Intel Corporation Device a700
           +-01.0-[01]--+-00.0  NVIDIA Corporation Device 2b85
           |            \\-00.1  NVIDIA Corporation Device 22e8
           +-02.0  Intel Corporation Device a780
           +-1b.4-[03]----00.0  NVIDIA Corporation GA102 [GeForce RTX 3090]
           \\-1c.0-[04]----00.0  Realtek Semiconductor Co., Ltd. RTL8125 2.5GbE Controller
"""
SERVER = """\
-+-[0000:c0]-+-00.0  Advanced Micro Devices, Inc. [AMD] Genoa/Bergamo Root Complex
 |           \\-01.1-[c1]----00.0  NVIDIA Corporation AD102GL [L40S]
 \\-[0000:00]-+-00.0  Advanced Micro Devices, Inc. [AMD] Genoa/Bergamo Root Complex
             +-01.1-[01]----00.0  NVIDIA Corporation AD102GL [L40S]
             \\-05.1-[05-06]----00.0-[06]----00.0  ASPEED Technology, Inc. ASPEED Graphics Family
"""
BARE = """\
-+-[0000:40]-+-00.0
 |           \\-01.1-[41-44]----00.0-[42-44]--+-00.0-[43]--+-00.0
 |                                           |            \\-00.1
 |                                           \\-10.0-[44]----00.0
 \\-[0000:00]-+-00.0
             \\-01.1-[01]----00.0
"""


@pytest.mark.parametrize(
    ("tree", "chipset", "processor"),
    [
        (X570, {"05"}, {"0b"}),
        (AM5, {"06"}, {"03"}),
        (INTEL, {"03"}, {"01"}),
        (SERVER, set(), {"01", "c1"}),
    ],
)
def test_a_slot_of_the_chipset_is_told_from_one_of_the_processor(
    tree: str, chipset: set[str], processor: set[str]
) -> None:
    rig = read(tree).rig
    cards = {bus(d.id): d.facts.chipset for d in rig.devices if not d.facts.integrated}
    assert cards == {**dict.fromkeys(chipset, True), **dict.fromkeys(processor)}
    assert {bus(id) for id in found(rig).get("pcie-chipset", ())} == chipset


@pytest.mark.parametrize(
    ("tree", "id", "name", "kind"),
    [
        (AM5, "0000:10:00.0", "AMD Raphael", "rocm"),
        (INTEL, "0000:00:02.0", "Intel HD Graphics", "xpu"),
    ],
)
def test_graphics_of_a_processor_are_named_in_a_tree(
    tree: str, id: str, name: str, kind: str
) -> None:
    rig = read(tree).rig
    inside = by_id(rig)[id]
    assert (inside.name, inside.kind, inside.facts.integrated) == (name, kind, True)
    assert found(rig)["integrated-gpu"] == (id,)


def test_sounds_and_boards_management_are_no_cards() -> None:
    assert set(by_id(read(INTEL).rig)) == {"0000:00:02.0", "0000:01:00.0", "0000:03:00.0"}
    assert set(by_id(read(SERVER).rig)) == {"0000:01:00.0", "0000:c1:00.0"}


def test_a_card_newer_than_the_list_of_ids_has_its_name() -> None:
    assert by_id(read(INTEL).rig)["0000:01:00.0"].name == "NVIDIA GeForce RTX 5090"


def test_a_tree_without_names_tells_how_far_known_cards_are() -> None:
    query = (
        "index, name, pci.bus_id\n"
        "0, NVIDIA GeForce RTX 3090, 00000000:01:00.0\n"
        "1, NVIDIA GeForce RTX 3090, 00000000:43:00.0\n"
        "2, NVIDIA GeForce RTX 3090, 00000000:44:00.0\n"
    )
    pasted = read(BARE, query)
    assert {pair: link.facts.path for pair, link in pairs(pasted.rig).items()} == {
        ("43", "44"): "PIX"
    }
    assert not any("PCI tree" in word for word in pasted.rig.unknown)


def test_a_tree_without_names_alone_says_what_it_lacks() -> None:
    pasted = read(BARE)
    assert pasted.rig.devices == ()
    assert pasted.rig.unknown == (
        "which parts of the PCI tree are graphics cards: the output of `lspci -tv` has their "
        "names, that of nvidia-smi or rocm-smi their places",
    )
    assert pasted.unread == ()


def test_the_drivers_word_counts_before_the_trees() -> None:
    query = "index, name, pci.bus_id\n0, NVIDIA A, 0000:43:00.0\n1, NVIDIA A, 0000:44:00.0\n"
    rig = read(BARE, query, "GPU0 X NV4\nGPU1 NV4 X\n").rig
    link = pairs(rig)["43", "44"]
    assert (link.kind, link.facts.path, link.facts.nvlinks) == ("nvlink", "nvlink", 4)


FULL = """\
00:01.0 PCI bridge [0604]: Intel Corporation Raptor Lake PCI Express 5.0 Root Port #1 [8086:a70d] (rev 01)
	Bus: primary=00, secondary=01, subordinate=01, sec-latency=0
		LnkCap:	Port #2, Speed 32GT/s, Width x16, ASPM L1
		LnkSta:	Speed 2.5GT/s, Width x16
00:1b.0 PCI bridge [0604]: Intel Corporation Raptor Lake PCI Express Root Port [8086:7a40] (rev 11)
	Bus: primary=00, secondary=02, subordinate=02, sec-latency=0
		LnkCap:	Port #17, Speed 8GT/s, Width x4, ASPM L1
		ACSCtl:	SrcValid+ TransBlk- ReqRedir{acs} CmpltRedir{acs} UpstreamFwd+ EgressCtrl-
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684] (rev a1)
	Region 1: Memory at 4800000000 (64-bit, prefetchable) [size=32G]
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM L1
		LnkSta:	Speed 2.5GT/s (downgraded), Width x16
02:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:1b38] (rev a1)
		LnkCap:	Port #0, Speed 8GT/s, Width x16, ASPM L0s L1
		LnkSta:	Speed 8GT/s, Width x4 (downgraded)
06:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000]
"""  # noqa: E501


@pytest.mark.parametrize(("sign", "redirects"), [("+", True), ("-", False)])
def test_lspci_in_full_tells_of_slots_paths_and_access_control(sign: str, redirects: bool) -> None:
    rig = read(FULL.format(acs=sign)).rig
    first, second = rig.devices
    assert (second.name, second.facts.chipset, first.facts.chipset) == (
        "NVIDIA Tesla P40",
        True,
        None,
    )
    assert pairs(rig)["01", "02"].facts.path == "PHB"
    assert rig.host.acs is redirects
    (narrow,) = [id for id in found(rig) if id.startswith("pcie-x")]
    assert narrow == "pcie-x4"
    assert "pcie-chipset" not in found(rig)


@pytest.mark.parametrize(
    ("title", "name", "inside"),
    [
        ("Vega 10 [Radeon Instinct MI25]", "AMD Radeon Instinct MI25", None),
        ("Vega 10 XL/XT [Radeon RX Vega 56/64] (rev c3)", "AMD Radeon RX Vega 56/64", None),
        ("Picasso/Raven 2 [Radeon Vega Series] (rev c2)", "AMD Radeon Vega Series", True),
        ("Phoenix1 (rev c7)", "AMD Phoenix1", True),
        ("Device 7550 (rev c0)", "AMD Radeon RX 9070/9070 XT", None),
        ("Device 13c0 (rev c1)", "AMD Radeon Graphics", True),
    ],
)
def test_which_radeons_are_part_of_a_processor(title: str, name: str, inside: bool | None) -> None:
    maker = "Advanced Micro Devices, Inc. [AMD/ATI]"
    (card,) = read(f"0c:00.0 VGA compatible controller: {maker} {title}\n").rig.devices
    assert (card.name, card.facts.integrated or None) == (name, inside)
