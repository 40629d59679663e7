"""AMD's tools of all ages: `rocm-smi`, `amd-smi` and `rocminfo`."""

from __future__ import annotations

import json

import pytest
from pasted_text import GIB, MIB, by_id, found, pairs, read

from local_tp.core import Pcie
from local_tp.hardware.diagnose import diagnose

CONCISE = """\
======================== ROCm System Management Interface ========================
================================== Concise Info ==================================
GPU  Temp   AvgPwr  SCLK    MCLK     Fan    Perf  PwrCap  VRAM%  GPU%
0    56.0c  11.0W   500Mhz  96Mhz    30.2%  auto  203.0W   62%   1%
==================================================================================
"""
CONCISE_6 = """\
Device  Node  IDs              Temp    Power  Partitions          SCLK    MCLK     Fan     Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Edge)  (Avg)  (Mem, Compute, ID)
====================================================================================================================
0       1     0x744c,   27211  51.0°C  49.0W  N/A, N/A, 0         136Mhz  1249Mhz  20.0%   auto  339.0W  95%    12%
1       2     0x744c,   15417  41.0°C  20.0W  N/A, N/A, 0         35Mhz   96Mhz    0%      auto  339.0W  1%     0%
"""  # noqa: E501
CONCISE_5 = """\
========================================= Concise Info =========================================
Device  [Model : Revision]    Temp    Power  Partitions      SCLK    MCLK    Fan     Perf  VRAM%  GPU%
        Name (20 chars)       (Edge)  (Avg)  (Mem, Compute)
================================================================================================
0       [0x0834 : 0x01]       37.0°C  18.0W  N/A, N/A        930Mhz  350Mhz  14.51%  auto   97%   4%
        Vega 20 [Radeon Pro
1       [0x0834 : 0x01]       36.0°C  19.0W  N/A, N/A        930Mhz  350Mhz  14.51%  auto    0%   0%
        Vega 20 [Radeon Pro
================================================================================================
=================================== % time GPU is busy ===================================
GPU[0]\t\t: GPU use (%): 4
"""  # noqa: E501
OLDER = """\
GPU  Temp   AvgPwr  SCLK    MCLK    PCLK           Fan    Perf  PwrCap  SCLK OD  MCLK OD  GPU%
0    56.0c  11.0W   500Mhz  96Mhz   8.0GT/s, x16   30.2%  auto  203.0W  0%       5%       1%
"""
TOTAL = "GPU[0]\t\t: VRAM Total Memory (B): 17163091968\n"
PIDS = """\
KFD process information:
PID  	PROCESS NAME	GPU(s)	VRAM USED  	SDMA USED	CU OCCUPANCY
4711 	/opt/bin/ollama	1     	9663676416 	0        	UNKNOWN
"""


def test_rows_with_half_a_name_below_them() -> None:
    pasted = read(CONCISE_5)
    told = [
        (d.facts.temperature, d.facts.power_draw, d.facts.utilization) for d in pasted.rig.devices
    ]
    assert told == [(37, 18.0, 4), (36, 19.0, 0)]
    assert any(line.startswith("GPU0: 97% of its memory is in use") for line in pasted.rig.unknown)
    assert pasted.unread == ()


SERIES = "GPU[0]\t\t: Card Series: \t\tAMD Radeon RX {}\n"


@pytest.mark.parametrize("share", ["97%", "7%"])
def test_a_share_of_memory_counts_of_what_the_model_is_sold_with(share: str) -> None:
    text = CONCISE.replace("62%", share) + SERIES.format("7800 XT")
    (card,) = read(text).rig.devices
    used = round(int(share[:-1]) / 100 * 16 * GIB)
    assert (card.total, card.free, card.facts.used) == (0, 0, used)
    held = [f for f in diagnose(read(text).rig) if f.id == "memory-in-use"]
    assert [f.severity for f in held] == ["warning" if share == "97%" else "info"]
    assert f"{'15.5 GiB' if share == '97%' else '1.1 GiB'} of 16.0 GiB taken" in held[0].evidence


def test_a_share_of_one_of_several_sizes_is_said_as_it_is() -> None:
    rig = read(CONCISE_6).rig
    assert [device.facts.used for device in rig.devices] == [None, None]
    (line,) = [line for line in rig.unknown if "memory is in use" in line]
    assert line.startswith("GPU0: 95% of its memory is in use, and how much it has is not in the")


@pytest.mark.parametrize("order", [(CONCISE, TOTAL), (TOTAL, CONCISE), (CONCISE + TOTAL,)])
def test_a_share_of_memory_in_use_becomes_bytes_where_the_total_is_known(
    order: tuple[str, ...],
) -> None:
    rig = read(*order).rig
    (card,) = rig.devices
    assert card.facts.used == round(0.62 * 17163091968)
    assert card.free == card.total - card.facts.used
    assert found(rig) == {"memory-in-use": ("GPU0",)}


def test_a_share_without_a_total_is_no_amount() -> None:
    (card,) = read(CONCISE).rig.devices
    assert (card.total, card.facts.used) == (0, None)


def test_an_overdrive_is_no_memory_in_use() -> None:
    (card,) = read(OLDER + TOTAL).rig.devices
    assert (card.facts.used, card.free) == (None, card.total)


def test_the_table_of_release_six() -> None:
    first, second = read(CONCISE_6 + TOTAL + TOTAL.replace("[0]", "[1]")).rig.devices
    assert first.name == "AMD Radeon RX 7900 XT/7900 XTX"
    assert first.facts.used == round(0.95 * first.total)
    assert (second.facts.power_limit, second.facts.utilization) == (339.0, 0)


def test_programs_belong_to_the_only_card() -> None:
    rig = read(CONCISE + TOTAL + PIDS).rig
    (process,) = rig.devices[0].facts.processes
    assert (process.name, process.used) == ("ollama", 9 * GIB)
    assert found(rig)["memory-in-use"] == ("GPU0",)


def test_programs_on_one_of_several_cards_are_on_none_that_is_known() -> None:
    pasted = read(CONCISE_6 + PIDS)
    assert [device.facts.processes for device in pasted.rig.devices] == [(), ()]
    assert any("--showpidgpus" in word for word in pasted.rig.unknown)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("PowerPlay not enabled - Cannot get supported clocks", "GPU 0: PowerPlay not enabled"),
        ("Unable to get maximum Graphics Package Power", "Unable to get maximum Graphics Package"),
        ("Not supported on the given system", "GPU 0: Not supported on the given system"),
        ("thekla-ws refused", "GPU 0: rocm-smi reports an error"),
    ],
)
def test_complaints_are_told_in_known_words_alone(line: str, said: str) -> None:
    (word,) = [w for w in read(f"GPU[0]\t\t: {line}\n").rig.unknown if w.startswith("GPU 0")]
    assert said in word
    assert "thekla" not in word


def test_a_card_that_calls_itself_graphics_is_no_part_of_a_processor() -> None:
    text = (
        "GPU[0]\t\t: Card Series: \t\tAMD Radeon Graphics\nGPU[0]\t\t: Card Model: \t\t0x7550\n"
        "GPU[0]\t\t: GFX Version: \t\tgfx1201\nGPU[1]\t\t: Card Series: \t\tAMD Radeon Graphics\n"
        "GPU[1]\t\t: Card Model: \t\t0x13c0\nGPU[1]\t\t: GFX Version: \t\tgfx1036\n"
    )
    card, inside = read(text).rig.devices
    assert (card.name, card.facts.integrated) == ("AMD Radeon RX 9070/9070 XT", False)
    assert (inside.name, inside.facts.integrated) == ("AMD Radeon Graphics", True)


def test_json_with_a_share_of_memory() -> None:
    card = {"Card Series": "AMD Radeon RX 7900 XTX", "GPU Memory Allocated (VRAM%)": "50"}
    text = json.dumps({"card0": {**card, "VRAM Total Memory (B)": "25753026560"}})
    (device,) = read(text).rig.devices
    assert (device.facts.used, device.free) == (12876513280, 12876513280)


# --------------------------------------------------------------------------------- amd-smi

SECTIONS = """\
$ amd-smi static
GPU: 0
    ASIC:
        MARKET_NAME: AMD Radeon RX 7900 XTX
        VENDOR_ID: 0x1002
        DEVICE_ID: 0x744c
        ASIC_SERIAL: 0xABCDEF1234567890
        TARGET_GRAPHICS_VERSION: gfx1100
    BUS:
        BDF: 0000:03:00.0
        MAX_PCIE_WIDTH: 16
        MAX_PCIE_SPEED: 16 GT/s
        PCIE_INTERFACE_VERSION: Gen 4
    LIMIT:
        MAX_POWER: 327 W
        SOCKET_POWER: 303 W
    VRAM:
        TYPE: GDDR6
        SIZE: 24560 MB
    NUMA:
        NODE: -1
$ amd-smi metric
GPU: 0
    USAGE:
        GFX_ACTIVITY: 99 %
    POWER:
        SOCKET_POWER: 280 W
    TEMPERATURE:
        EDGE: 60 °C
        HOTSPOT: 80 °C
    PCIE:
        WIDTH: 8
        SPEED: 16 GT/s
        REPLAY_COUNT: 0
    MEM_USAGE:
        TOTAL_VRAM: 24560 MB
        USED_VRAM: 20010 MB
$ amd-smi process
GPU: 0
    PROCESS_INFO:
        NAME: /usr/bin/llama-server
        PID: 4242
        MEMORY_USAGE:
            GTT_MEM: 2.0 MB
            VRAM_MEM: 19.0 GB
"""
TABLE = """\
+------------------------------------------------------------------------------+
| AMD-SMI 26.0.0+37d158ab      amdgpu version: 6.14.14  ROCm version: 7.0.0    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:03:00.0 ...Radeon RX 7900 XTX  | 2 %      42 °C   0            33/339 W |
|   0       0     N/A             N/A | 1 %     0.0 %             285/24560 MB |
|-------------------------------------+----------------------------------------|
| 0000:07:00.0 ...Radeon RX 7900 XTX  | 0 %      42 °C   0           133/339 W |
|   1       1     N/A             N/A | 0 %     0.0 %           21285/24560 MB |
+-------------------------------------+----------------------------------------+
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|    1       4242  python3.12             2.0 MB   20.5 GB    20.6 GB      N/A |
+------------------------------------------------------------------------------+
"""
TOPOLOGY = """\
ACCESS TABLE:
             0000:03:00.0 0000:07:00.0
0000:03:00.0 ENABLED      {reach}
0000:07:00.0 {reach}      ENABLED

LINK TYPE TABLE:
             0000:03:00.0 0000:07:00.0
0000:03:00.0 SELF         {kind}
0000:07:00.0 {kind}       SELF
"""


def test_sections_of_amd_smi() -> None:
    rig = read(SECTIONS).rig
    (card,) = rig.devices
    assert (card.id, card.name, card.kind) == ("0000:03:00.0", "AMD Radeon RX 7900 XTX", "rocm")
    assert (card.total, card.free) == (24560 * MIB, (24560 - 20010) * MIB)
    assert card.pcie == Pcie(4, 8, 4, 16)
    assert (card.facts.power_limit, card.facts.power_draw, card.facts.temperature) == (303, 280, 80)
    assert [(p.name, p.pid, p.used) for p in card.facts.processes] == [
        ("llama-server", 4242, 19 * GIB)
    ]
    assert found(rig) == {"memory-in-use": (card.id,), "pcie-narrow": (card.id,)}


def test_the_table_of_amd_smi() -> None:
    rig = read(TABLE).rig
    first, second = rig.devices
    assert (first.name, first.free) == ("AMD Radeon RX 7900 XTX", (24560 - 285) * MIB)
    assert (second.facts.index, second.facts.processes[0].name) == (1, "python3.12")
    assert (rig.driver, rig.software.driver) == ("6.14.14", "6.14.14")


@pytest.mark.parametrize(
    ("reach", "kind", "state", "linked"),
    [("DISABLED", "PCIE", "not-supported", "host"), ("ENABLED", "XGMI", "ok", "nvlink")],
)
def test_matrices_of_amd_smi(reach: str, kind: str, state: str, linked: str) -> None:
    rig = read(TABLE + TOPOLOGY.format(reach=reach, kind=kind)).rig
    link = pairs(rig)["03", "07"]
    assert (link.facts.read, link.kind) == (state, linked)


ROCMINFO = """\
ROCk module version 6.8.5 is loaded
=====================
HSA System Attributes
=====================
Runtime Version:         1.14
==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD Ryzen 9 7950X 16-Core Processor
  Device Type:             CPU
  BDFID:                   0
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: FINE GRAINED
      Size:                    65000000(0x3dfd240) KB
*******
Agent 2
*******
  Name:                    gfx1100
  Uuid:                    GPU-0123456789abcdef
  Marketing Name:          AMD Radeon RX 7900 XTX
  Device Type:             GPU
  Chip ID:                 29772(0x744c)
  BDFID:                   768
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    25149440(0x17fc000) KB
    Pool 3
      Segment:                 GROUP
      Size:                    64(0x40) KB
*******
Agent 3
*******
  Name:                    gfx1036
  Marketing Name:          AMD Radeon Graphics
  Device Type:             GPU
  Chip ID:                 5710(0x164e)
  BDFID:                   4352
*** Done ***
"""


def test_agents_of_rocminfo() -> None:
    pasted = read(ROCMINFO)
    cards = by_id(pasted.rig)
    assert set(cards) == {"0000:03:00.0", "0000:11:00.0"}
    card = cards["0000:03:00.0"]
    assert (card.name, card.total, card.facts.architecture) == (
        "AMD Radeon RX 7900 XTX",
        25149440 * 1024,
        "gfx1100",
    )
    assert cards["0000:11:00.0"].facts.integrated
    assert pasted.unread == ()


def test_rocminfo_and_rocm_smi_speak_of_one_card() -> None:
    smi = "GPU[0]\t\t: PCI Bus: 0000:03:00.0\nGPU[0]\t\t: GPU use (%): 7\n"
    cards = by_id(read(ROCMINFO, smi).rig)
    assert set(cards) == {"0000:03:00.0", "0000:11:00.0"}
    assert cards["0000:03:00.0"].facts.utilization == 7


NVIDIA = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:0A:00.0 Off |                  N/A |
| 30%   41C    P8             20W /  350W |       4MiB /  24576MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+
"""


@pytest.mark.parametrize("text", [TABLE + NVIDIA, NVIDIA + TABLE])
def test_tables_of_both_makers_one_after_the_other(text: str) -> None:
    rig = read(text).rig
    assert [(device.id[5:7], device.kind, device.total // MIB) for device in rig.devices] == [
        ("03", "rocm", 24560),
        ("07", "rocm", 24560),
        ("0a", "cuda", 24576),
    ]


WEIGHTS = """\
================================ Weight between two GPUs =================================
       GPU0         GPU1         GPU2
GPU0   0            40           72
GPU1   40           0            72
GPU2   72           72           0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2
GPU0   0            PCIE         PCIE
GPU1   PCIE         0            PCIE
GPU2   PCIE         PCIE         0
"""


def test_weights_alone_say_how_far_two_cards_are() -> None:
    told = [("01", "40"), ("02", "72"), ("12", "72")]
    system = {
        f"(Topology) {what} between DRM devices {ends[0]} and {ends[1]}": value
        for ends, weight in told
        for what, value in (("Weight", weight), ("Link type", "PCIE"))
    }
    cards = {f"card{n}": {"PCI Bus": f"0000:0{n}:00.0"} for n in range(3)}
    for text in (WEIGHTS, json.dumps(cards | {"system": system})):
        links = read(text).rig.links
        assert [(link.kind, link.facts.path) for link in links] == [
            ("host", "PHB"),
            ("host", "SYS"),
            ("host", "SYS"),
        ]


def test_hops_count_before_weights_and_without_both_a_pair_has_no_path() -> None:
    hops = WEIGHTS.replace("Weight", "Hops").replace("40", "2 ").replace("72", "3 ")
    for text in (hops, hops + WEIGHTS.replace("40", "99")):
        assert [link.facts.path for link in read(text).rig.links] == ["PHB", "SYS", "SYS"]
    types = WEIGHTS[WEIGHTS.index("=============================== Link") :]
    assert [(k.kind, k.facts.path) for k in read(types).rig.links] == [("host", None)] * 3
