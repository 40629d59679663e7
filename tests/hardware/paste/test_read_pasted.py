"""Pasted outputs of every kind, spoiled in every way people spoil them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_tp.codec import encode
from local_tp.core import Device, Link, Pcie, Rig
from local_tp.hardware.paste import Pasted, read_pasted

FIXTURES = Path(__file__).parent / "fixtures"
MIB = 1024**2


def read(*names: str) -> Pasted:
    return read_pasted([(name, (FIXTURES / name).read_bytes()) for name in names])


def by_id(rig: Rig) -> dict[str, Device]:
    return {device.id: device for device in rig.devices}


def pair(rig: Rig, a: str, b: str) -> Link:
    (link,) = [link for link in rig.links if (link.a, link.b) == (a, b)]
    return link


def test_table_of_driver_610_on_windows() -> None:
    rig = read("smi_table_610.txt").rig
    desktop, busy, broken = rig.devices
    assert (desktop.id, desktop.name, desktop.total) == (
        "0000:01:00.0",
        "NVIDIA GeForce RTX 5060 Ti",
        16311 * MIB,
    )
    assert (desktop.display, desktop.facts.driver_model) == (True, "WDDM")
    assert (busy.free, busy.facts.ecc_uncorrected) == ((16376 - 15002) * MIB, 2)
    assert busy.facts.processes[0].name == "llama-server.exe"
    assert broken.facts.lost
    assert (rig.driver, rig.software.cuda_driver) == ("610.43", "13.3")


def test_table_of_driver_384_quoted_twice_and_cut_off() -> None:
    rig = read("smi_table_384.txt").rig
    first, second = rig.devices
    assert (first.name, first.total, second.name) == (
        "Tesla K80",
        11439 * MIB,
        "GeForce GTX 108...",
    )
    assert second.total == 0
    assert "0000:09:00.0: memory not in the text" in rig.unknown


def test_details_know_everything() -> None:
    rig = read("smi_details.txt").rig
    first, second, part = rig.devices
    assert (part.id, part.total) == ("0000:0b:00.0/mig-0", 11904 * MIB)
    assert first.pcie == Pcie(1, 4, 4, 16)
    assert first.display is False
    assert first.facts.throttle == ("SW Power Cap", "HW Thermal Slowdown")
    assert (first.facts.hidden, first.facts.bar1_total) == (315 * MIB, 256 * MIB)
    assert (first.facts.power_limit, first.facts.power_default) == (220.0, 320.0)
    assert first.facts.processes[0].name == "python3"
    assert (second.total, second.facts.mig, second.facts.ecc_uncorrected) == (24576 * MIB, True, 3)


def test_xml_indented_and_with_two_power_sections() -> None:
    (card,) = read("smi_new.xml").rig.devices
    assert card.pcie == Pcie(3, 8, 3, 16)
    assert (card.facts.power_limit, card.facts.virtual) == (130.0, True)
    assert card.facts.throttle == ("SW Thermal Slowdown",)


def test_query_with_header_in_the_drivers_order() -> None:
    rig = read("query_header.csv").rig
    assert [(d.id, d.facts.index, d.capability) for d in rig.devices] == [
        ("0000:08:00.0", 0, (8, 6)),
        ("0000:0d:00.0", 1, (8, 9)),
    ]
    assert rig.devices[0].pcie == Pcie(1, None, None, 16)


def test_query_without_header_keeps_the_rows_after_a_lost_card() -> None:
    cards = by_id(read("query_command.txt").rig)
    assert cards["0000:43:00.0"].facts.lost
    assert (cards["GPU0"].total, cards["GPU2"].free) == (6144 * MIB, 24000 * MIB)


def test_matrix_with_network_cards_and_escapes() -> None:
    rig = read("topo_nic.txt").rig
    assert pair(rig, "GPU0", "GPU1").kind == "nvlink"
    assert pair(rig, "GPU0", "GPU1").facts.nvlinks == 4
    assert pair(rig, "GPU1", "GPU2").facts.path == "SYS"
    assert [device.facts.numa for device in rig.devices] == [0, 0, 1]


def test_peer_to_peer_matrices_keep_their_reasons_apart() -> None:
    facts = pair(read("topo_p2p.txt").rig, "GPU0", "GPU2").facts
    assert (facts.read, facts.write, facts.atomics) == ("gpu", "topology", "unknown")


def test_lspci_finds_the_slot_above_a_card_and_amds_own_switch() -> None:
    cards = by_id(read("lspci_vv.txt").rig)
    nvidia, amd = cards["0000:01:00.0"], cards["0000:0c:00.0"]
    assert nvidia.name == "NVIDIA GeForce RTX 3060"
    assert nvidia.pcie == Pcie(1, 4, 4, 16)
    assert nvidia.facts.pcie_slot is not None
    assert (nvidia.facts.pcie_slot.generation, nvidia.facts.pcie_slot.width) == (3, 4)
    assert (amd.kind, amd.name) == ("rocm", "AMD Radeon RX 7900 XTX")
    assert amd.pcie == Pcie(4, 8, 4, 16)


def test_lspci_tree_tells_switch_from_host_bridge() -> None:
    rig = read("lspci_tv.txt").rig
    paths = {(link.a[5:7], link.b[5:7]): link.facts.path for link in rig.links}
    assert paths == {("03", "04"): "PIX", ("03", "05"): "PHB", ("04", "05"): "PHB"}


def test_p2p_test_in_cudas_order() -> None:
    link = pair(read("p2p_test.txt").rig, "0000:01:00.0", "0000:41:00.0")
    assert (link.facts.forth, link.facts.back) == (23.25e9, 24.5e9)
    assert (link.facts.staged, link.facts.both, link.latency) == (11.4e9, 48.2e9, 1.25e-6)
    assert (link.kind, link.verified, link.measured) == ("host", False, True)


def test_nccl_tests_count_wrong_values() -> None:
    rig = read("nccl.txt").rig
    assert [(c.ranks, c.nbytes, c.seconds, c.correct) for c in rig.collectives] == [
        (2, 8192, 12.5e-6, True),
        (2, 1048576, 101.25e-6, False),
    ]
    assert rig.collectives[0].devices == ("0000:01:00.0", "0000:41:00.0")


def test_rocm_smi_in_all_its_forms() -> None:
    card, inside = read("rocm_new.txt").rig.devices
    assert (card.id, card.name, card.total) == (
        "0000:03:00.0",
        "AMD Radeon RX 7900 XTX",
        25753026560,
    )
    assert inside.facts.integrated
    pretty = read("rocm.json").rig
    assert [d.total for d in pretty.devices] == [17095983104, 17095983104]
    assert pretty.links[0].kind == "nvlink"
    assert pair(read("rocm_topo.txt").rig, "GPU0", "GPU2").facts.path == "SYS"


def test_environment_report_and_kernel_log() -> None:
    rig = read("collect_env.txt").rig
    assert (rig.software.torch, rig.host.physical_cores, rig.ram) == (
        "2.7.1+cu128",
        12,
        65536000 * 1024,
    )
    (card,) = read("report.md").rig.devices
    assert card.pcie == Pcie(None, 1, 2, 16)
    log = read("dmesg.txt").rig
    assert (log.devices[0].facts.lost, log.devices[0].facts.xids) == (True, (13, 79))
    assert (log.software.driver_fault, log.host.iommu) == ("mismatch", "passthrough")


def test_several_outputs_of_one_machine_become_one() -> None:
    both = read_pasted(
        [
            ("a", (FIXTURES / "query_header.csv").read_bytes()),
            ("b", b"GPU0 X PHB\nGPU1 PHB X\n"),
        ]
    ).rig
    assert pair(both, "0000:08:00.0", "0000:0d:00.0").facts.path == "PHB"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_windows_does_to_text_changes_nothing(encoding: str, end: str) -> None:
    text = (FIXTURES / "smi_details.txt").read_text()
    spoiled = text.replace("\n", end).encode(encoding)
    assert read_pasted([("x", spoiled)]).rig == read("smi_details.txt").rig


def test_our_own_report_reads_back_exactly() -> None:
    rig = read("smi_details.txt").rig
    report = json.dumps({"rig": encode(rig), "findings": [], "unread": []}, indent=1)
    assert read_pasted([("r", report.encode())]).rig == rig
    assert read_pasted([("r", f"see:\n```json\n{report}\n```\nbye".encode())]).rig == rig


def test_entities_are_refused_in_words() -> None:
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE x [\n<!ENTITY a "aaaa">\n<!ENTITY b "&a;&a;&a;">\n]>\n'
    found = read_pasted([("x", (bomb + "<nvidia_smi_log>&b;</nvidia_smi_log>").encode())])
    assert any("entities: refused" in word for word in found.unread)


@pytest.mark.parametrize("piece", [b"<gpu>", b"{\n", b"GPU0 ", b"| ", b"a, b,", b"\x00\xff"])
def test_fifty_megabytes_of_nothing_are_answered_soon(piece: bytes) -> None:
    data = piece * (50 * MIB // len(piece))
    started = time.process_time()
    found = read_pasted([("big", data)])
    assert time.process_time() - started < 3  # seconds of processor time
    assert any("skipped" in word for word in found.unread)


ALL = sorted(path for path in FIXTURES.iterdir())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ALL), st.data())
def test_any_half_of_any_output_is_read_without_a_crash(path: Path, data: st.DataObject) -> None:
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    noise = data.draw(st.binary(max_size=40))
    found = read_pasted([("half", whole[start:stop] + noise)])
    assert len(found.rig.devices) <= 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=3))
def test_any_bytes_are_read_without_a_crash(texts: list[bytes]) -> None:
    assert read_pasted([("x", text) for text in texts]).rig.cores >= 1


def test_what_two_outputs_say_differently_is_said() -> None:
    matrix = b"GPU0 X CNS\nGPU1 CNS X\n"
    query = b"index, name, pci.bus_id\n0, NVIDIA A, 0000:01:00.0\n1, NVIDIA B, 0000:41:00.0\n"
    test = (FIXTURES / "p2p_test.txt").read_bytes()
    named = query.replace(b"A,", b"GeForce RTX 3090,").replace(b"B,", b"GeForce RTX 4090,")
    rig = read_pasted([("q", named), ("m", matrix), ("t", test)]).rig
    assert rig.unknown[0] == (
        "0000:01:00.0 and 0000:41:00.0: peer-to-peer is told as both chipset, ok"
    )
