"""AMD cards as the kernel's files show them: a Radeon behind its own switch, and an APU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_bus import add_bridge, add_function, write

from local_tp.core import Pcie, Rig
from local_tp.facts import PairFacts, PcieReading, Process
from local_tp.hardware.devices import default_devices
from local_tp.hardware.live.amd import read_amd
from local_tp.hardware.probe import probe

MIB = 1024**2
GIB = 1024**3
CARD = "0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"
SECOND = "0000:00:03.1/0000:0a:00.0/0000:0b:00.0/0000:0c:00.0"


def add_radeon(root: Path, place: str = CARD, width: str = "16") -> Path:
    """A 24 GB Radeon: port of the processor, the card's switch (two bridges), the card."""
    port, upper, lower, _ = place.split("/")
    add_bridge(root, port, "0x1022", "0x14db", "16.0", width)
    add_bridge(root, f"{port}/{upper}", "0x1002", "0x1478", "16.0", "16", now="4")
    add_bridge(root, f"{port}/{upper}/{lower}", "0x1002", "0x1479", "16.0", "16")
    return add_function(
        root,
        place,
        "0x1002",
        "0x744c",
        "amdgpu",
        current_link_speed="16.0 GT/s PCIe",
        current_link_width="16",
        max_link_speed="16.0 GT/s PCIe",
        max_link_width="16",
        mem_info_vram_total=str(24 * GIB),
        mem_info_vram_used=str(3 * GIB),
        mem_info_vis_vram_total=str(256 * MIB),
        mem_info_vis_vram_used=str(16 * MIB),
        pp_dpm_sclk="0: 500Mhz\n1: 27Mhz *\n2: 2526Mhz",
        pp_dpm_mclk="0: 96Mhz *\n1: 456Mhz\n2: 1249Mhz",
        gpu_busy_percent="3",
        pcie_replay_count="12",
        unique_id="0123456789abcdef",
        numa_node="-1",
        hwmon__hwmon3__power1_average="89000000",
        hwmon__hwmon3__power1_cap="315000000",
        hwmon__hwmon3__power1_cap_default="339000000",
        hwmon__hwmon3__power1_cap_max="390000000",
        hwmon__hwmon3__temp1_input="50500",
        hwmon__hwmon3__temp1_crit="100000",
        drm__card1__dev="226:1",
        ras__umc_err_count="ue: 2\nce: 9",
    )


def add_node(root: Path, number: int, slot: str, version: int, cores: int = 0) -> None:
    bus, device = int(slot[5:7], 16), int(slot[8:10], 16)
    lines = (
        f"cpu_cores_count {cores}\nsimd_count 192\ngfx_target_version {version}\n"
        f"location_id {bus << 8 | device << 3}\ndomain 0"
    )
    node = f"sys/class/kfd/kfd/topology/nodes/{number}"
    write(root, {f"{node}/properties": lines, f"{node}/gpu_id": str(51000 + number)})


def test_a_radeon_with_everything_the_kernel_tells(tmp_path: Path) -> None:
    folder = add_radeon(tmp_path)
    write(folder, {"drm/card1/card1-HDMI-A-1/status": "connected"})
    # Of the three links on the way only that between switch and slot is the slot's.
    for place, errors in ((folder, 64), (folder.parent.parent, 1), (folder.parents[2], 2)):
        write(place, {"aer_dev_correctable": f"RxErr 0\nRollover {errors}\nNonFatalErr 500"})
    add_node(tmp_path, 1, "0000:03:00.0", 110000)
    kfd = "sys/class/kfd/kfd/proc"
    write(tmp_path, {f"{kfd}/77/vram_51001": str(2 * GIB), "proc/77/comm": "llama-server"})
    write(tmp_path, {f"{kfd}/78/vram_51001": "0"})
    found = read_amd(tmp_path)
    (card,) = found.devices
    facts = card.facts
    assert (card.id, card.kind, card.total, card.free) == (
        *("0000:03:00.0", "rocm"),
        *(24 * GIB, 21 * GIB),
    )
    assert (card.display, card.reserve, card.uuid) == (True, GIB, None)
    # The link inside the card says x16; the one to the slot has four lanes.
    assert card.pcie == Pcie(4, 4, 4, 16)
    assert (facts.pcie_card, facts.pcie_slot) == (PcieReading(4, 16), PcieReading(4, 16))
    assert (facts.architecture, facts.integrated, facts.external) == ("gfx1100", False, None)
    assert (facts.bar1_total, facts.used, facts.replays) == (256 * MIB, 3 * GIB, 12)
    assert (facts.clock, facts.clock_max) == (27, 2526)
    assert (facts.memory_clock, facts.memory_clock_max) == (96, 1249)
    assert (facts.power_draw, facts.power_limit, facts.power_default) == (89.0, 315.0, 339.0)
    assert (facts.power_max, facts.temperature, facts.temperature_limit) == (390.0, 50, 100)
    assert (facts.utilization, facts.ecc_uncorrected, facts.numa) == (3, 2, None)
    assert (facts.driver_in_use, facts.link_errors) == ("amdgpu", 3)
    assert facts.processes == (Process(77, "llama-server", 2 * GIB),)
    assert found.unknown == ()
    assert "0123456789abcdef" not in repr(card)


def test_the_slot_bounds_what_the_link_can_do(tmp_path: Path) -> None:
    add_radeon(tmp_path, width="8")
    (card,) = read_amd(tmp_path).devices
    assert card.pcie == Pcie(4, 4, 4, 8)
    assert card.facts.pcie_slot == PcieReading(4, 8)


def test_a_processors_own_graphics_stay_out_of_plans_and_it_is_said(tmp_path: Path) -> None:
    add_radeon(tmp_path)
    add_function(
        *(tmp_path, "0000:00:08.1/0000:12:00.0", "0x1002", "0x164e", "amdgpu"),
        mem_info_vram_total=str(512 * MIB),
        mem_info_vram_used=str(40 * MIB),
    )
    rig = probe(tmp_path)
    card, own, cpu = rig.devices
    assert (own.id, own.facts.integrated, own.total) == ("0000:12:00.0", True, 512 * MIB)
    assert (card.facts.integrated, cpu.kind) == (False, "cpu")
    assert set(default_devices(rig)) == {"cpu"}
    lines = [line for line in rig.unknown if "left out of plans" in line]
    assert lines == [
        f"0000:03:00.0 ({card.name}): left out of plans: workers run on NVIDIA cards and on the "
        "processor only",
        f"0000:12:00.0 ({own.name}): left out of plans: it is part of the processor and has no "
        "memory but the PC's own",
    ]
    assert [(link.a, link.b, link.facts.path) for link in rig.links] == [
        ("0000:03:00.0", "0000:12:00.0", "PHB")
    ]


@pytest.mark.parametrize(
    ("version", "cores", "architecture", "integrated"),
    [
        (100300, 0, "gfx1030", False),
        (90006, 0, "gfx906", False),
        (90010, 0, "gfx90a", False),
        (110501, 0, "gfx1151", True),
        (90012, 8, "gfx90c", True),
    ],
)
def test_architectures(
    tmp_path: Path, version: int, cores: int, architecture: str, integrated: bool
) -> None:
    add_radeon(tmp_path)
    add_node(tmp_path, 2, "0000:03:00.0", version, cores)
    facts = read_amd(tmp_path).devices[0].facts
    assert (facts.architecture, facts.integrated) == (architecture, integrated)


def test_an_xgmi_bridge_is_seen_without_amds_programs(tmp_path: Path) -> None:
    """Nodes 1 and 2 are cards, node 0 the processor, to which a link of PCIe leads."""
    add_radeon(tmp_path)
    add_radeon(tmp_path, SECOND)
    add_node(tmp_path, 1, "0000:03:00.0", 90006)
    add_node(tmp_path, 2, "0000:0c:00.0", 90006)
    links = tmp_path / "sys/class/kfd/kfd/topology/nodes/1/io_links"
    write(links, {"0/properties": "type 2\nnode_from 1\nnode_to 0"})
    assert read_amd(tmp_path).links[0].facts.path == "PHB"
    write(links, {"1/properties": "type 11\nnode_from 1\nnode_to 2"})
    (link,) = read_amd(tmp_path).links
    assert (link.a, link.b, link.facts) == (
        "0000:03:00.0",
        "0000:0c:00.0",
        PairFacts(path="nvlink"),
    )


def test_without_the_compute_driver_the_cards_own_table_says_it(tmp_path: Path) -> None:
    block = "ip_discovery/die/0/GC/0"
    numbers = {f"{block}/major": "12", f"{block}/minor": "0", f"{block}/revision": "1"}
    write(add_radeon(tmp_path), numbers)
    assert read_amd(tmp_path).devices[0].facts.architecture == "gfx1201"


def test_names_come_from_the_table_where_no_tool_is(tmp_path: Path) -> None:
    add_radeon(tmp_path)
    assert read_amd(tmp_path).devices[0].name == "AMD graphics 744c"
    table = "1001  Another\n\t744c  Wrong\n1002  AMD\n\t0001  A\n\t744c  Navi 31 [Radeon RX 7900]"
    write(tmp_path, {"usr/share/hwdata/pci.ids": table})
    assert read_amd(tmp_path).devices[0].name == "Radeon RX 7900"


def install(root: Path, name: str, script: str) -> None:
    write(root, {f"opt/rocm/bin/{name}": f"#!/bin/sh\n{script}"})
    (root / "opt/rocm/bin" / name).chmod(0o755)


def test_the_tool_names_cards_and_finds_bridges(tmp_path: Path) -> None:
    add_radeon(tmp_path)
    add_radeon(tmp_path, SECOND)
    answer = {
        "card0": {"Card Series": "Radeon RX 7900 XTX", "PCI Bus": "0000:03:00.0"},
        "card1": {"Card series": "0x744c", "Card model": "N/A", "PCI Bus": "0000:0C:00.0"},
        "system": {"(Topology) Link type between DRM devices 0 and 1": "XGMI"},
    }
    install(tmp_path, "rocm-smi", f"echo 'WARNING: low power'\necho '{json.dumps(answer)}'")
    found = read_amd(tmp_path)
    assert [card.name for card in found.devices] == ["Radeon RX 7900 XTX", "AMD graphics 744c"]
    assert [link.facts for link in found.links] == [PairFacts(path="nvlink")]
    assert found.unknown == ()


def test_the_newer_tool_is_asked_too(tmp_path: Path) -> None:
    add_radeon(tmp_path)
    card = {"gpu": 0, "asic": {"market_name": "Radeon X"}, "bus": {"bdf": "0000:03:00.0"}}
    install(tmp_path, "amd-smi", f"echo '{json.dumps([card])}'")
    install(tmp_path, "rocm-smi", "echo no library >&2; exit 3")
    found = read_amd(tmp_path)
    assert found.devices[0].name == "Radeon X"
    assert found.unknown == ("rocm-smi: exit code 3: no library",)


@pytest.mark.parametrize("answer", ["", "nonsense [", "{}", "[1, {}]", '{"card0": 3}'])
def test_an_answer_of_another_form_costs_only_the_name(tmp_path: Path, answer: str) -> None:
    add_radeon(tmp_path)
    install(tmp_path, "rocm-smi", f"echo '{answer}'")
    assert read_amd(tmp_path).devices[0].name == "AMD graphics 744c"


def test_damaged_files_are_as_good_as_absent(tmp_path: Path) -> None:
    folder = add_radeon(tmp_path)
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("vendor", "device", "class"):
            path.write_bytes(b"\xff\xfe:*\n12 34")
    found = read_amd(tmp_path)
    assert found.devices[0].total == 0
    assert found.unknown == ("0000:03:00.0: the driver does not tell its memory",)
    assert default_devices(Rig(devices=found.devices, cores=1)) == ("cpu",)


def test_paths_between_cards(tmp_path: Path) -> None:
    """Two below one switch on the board, one below another port, one on the other socket."""
    board = "0000:00:01.0/0000:20:00.0"
    add_bridge(tmp_path, "0000:00:01.0", "0x1022", "0x1", "16.0", "16")
    add_bridge(tmp_path, board, "0x10b5", "0x9733", "16.0", "16")
    for port, bus in (("0000:21:01.0", "22"), ("0000:21:02.0", "23")):
        add_bridge(tmp_path, f"{board}/{port}", "0x10b5", "0x9733", "16.0", "16")
        slot = f"{board}/{port}/0000:{bus}:00.0"
        add_function(tmp_path, slot, "0x1002", "0x66a1", "amdgpu", numa_node="0")
    add_function(tmp_path, "0000:00:03.0/0000:30:00.0", "0x1002", "0x66a1", "amdgpu")
    far = add_function(tmp_path, "../pci0000:80/0000:80:01.0/0000:81:00.0", "0x1002", "0x66a1")
    (far / "numa_node").write_text("1\n")
    (far / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/amdgpu")
    links = {(k.a[5:7], k.b[5:7]): k.facts.path for k in read_amd(tmp_path).links}
    assert links["22", "23"] == "PIX"
    assert links["22", "30"] == links["23", "30"] == "PHB"
    assert links["22", "81"] == links["30", "81"] == "SYS"
