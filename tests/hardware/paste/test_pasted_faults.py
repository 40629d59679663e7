"""Pasted texts of broken machines, broken tools and people who mean harm."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from local_tp.core import Link, Rig
from local_tp.hardware.paste import Pasted, read_pasted

MIB = 1024**2
HEADER = "index, name, pci.bus_id, power.draw [W], clocks_event_reasons.active\n"
MATRIX = "{title} (GB/s)\n   D\\D     0      1\n     0 {cells[0]}\n     1 {cells[1]}\n"
ONE_WAY = "Unidirectional P2P={} Bandwidth Matrix"
BOTH_WAYS = "Bidirectional P2P={} Bandwidth Matrix"
LATENCY = "P2P={} Latency Matrix"


def read(text: str) -> Pasted:
    return read_pasted([("", text.encode())])


def matrix(title: str, first: str, second: str) -> str:
    return MATRIX.format(title=title, cells=(first, second))


def only_link(text: str) -> Link:
    (link,) = read(text).rig.links
    return link


def test_a_damaged_report_beside_other_text_is_no_crash() -> None:
    found = read(
        'my report:\n{"rig": {"devices": [{"id": 5}]}}\n'
        "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-12345678-1234-1234-1234-123456789abc)\n"
    )
    assert [device.name for device in found.rig.devices] == ["NVIDIA GeForce RTX 3090"]
    assert any("line 2: " in word for word in found.unread)


# ------------------------------------------------------------------------------- lost cards


@pytest.mark.parametrize("cell", ["[GPU is lost]", "[Unknown Error]", "GPU is lost"])
def test_a_card_that_answers_no_query_is_lost(cell: str) -> None:
    rows = f"0, NVIDIA A, 0000:01:00.0, {cell}, {cell}\n1, NVIDIA B, 0000:02:00.0, 20 W, 0x0\n"
    lost, well = read(HEADER + rows).rig.devices
    assert (lost.facts.lost, well.facts.lost) == (True, False)


def test_a_card_whose_power_alone_is_not_known_is_there() -> None:
    (card,) = read(f"{HEADER}0, NVIDIA A, 0000:01:00.0, [Unknown Error], 0x0\n").rig.devices
    assert not card.facts.lost


def test_lost_cards_are_told_without_a_header() -> None:
    text = "0, NVIDIA GeForce RTX 3090, 24576 MiB\n1, [GPU is lost], [GPU is lost]\n"
    found = read(text)
    assert [device.facts.lost for device in found.rig.devices] == [False, True]
    assert found.unread == ()


# ----------------------------------------------------------------------- what slows a card down


@pytest.mark.parametrize("age", ["event", "throttle"])
@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("0x0000000000000000", ()),
        ("0x0000000000000001", ("Idle",)),
        ("0x0000000000000004", ("SW Power Cap",)),
        ("0x0000000000000020", ("SW Thermal Slowdown",)),
        ("0x00000000000000C8", ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown")),
        ("[N/A]", ()),
    ],
)
def test_masks_of_reasons_become_words(age: str, mask: str, words: tuple[str, ...]) -> None:
    header = f"index, clocks_{age}_reasons.active, name\n"
    (card,) = read(f"{header}0, {mask}, NVIDIA GeForce RTX 3090\n").rig.devices
    assert card.facts.throttle == words


# ------------------------------------------------------------------------------ the bandwidth test


def test_copies_through_memory_do_not_stand_in_for_the_way_back() -> None:
    link = only_link(
        matrix(ONE_WAY.format("Disabled"), "800.00 6.00", "5.00 800.00")
        + "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
        + "   D\\D     0      1\n     0 800.00 26.00\n"
        + matrix(LATENCY.format("Disabled"), "1.00 12.00", "12.00 1.00")
    )
    assert (link.facts.forth, link.facts.back, link.facts.both) == (26e9, None, None)
    assert (link.facts.staged, link.latency) == (5e9, None)


def test_copies_both_ways_through_memory_do_not_stand_in_for_peers() -> None:
    link = only_link(
        matrix(ONE_WAY.format("Enabled"), "800.00 26.00", "25.00 800.00")
        + matrix(BOTH_WAYS.format("Disabled"), "800.00 9.00", "9.00 800.00")
    )
    assert (link.facts.back, link.facts.both, link.facts.staged_both) == (25e9, None, 9e9)


def test_copies_through_memory_are_all_there_is_without_peers() -> None:
    link = only_link(
        matrix(ONE_WAY.format("Disabled"), "800.00 6.00", "5.00 800.00")
        + matrix(BOTH_WAYS.format("Disabled"), "800.00 9.00", "9.00 800.00")
        + matrix(LATENCY.format("Disabled"), "1.00 12.00", "11.00 1.00")
    )
    assert (link.facts.forth, link.facts.back, link.facts.both) == (6e9, 5e9, 9e9)
    assert link.latency == 12e-6


# ---------------------------------------------------------------------- complaints and the kernel


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Failed to initialize NVML: Unknown Error", "NVML does not start"),
        ("Failed to initialize NVML: Insufficient Permissions", "may not open"),
        (
            "==== ROCm System Management Interface ====\n"
            "Driver not initialized (amdgpu not found in modules)",
            "amdgpu is not loaded",
        ),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)", "is not loaded"),
    ],
)
def test_why_a_tool_does_not_answer_is_told(text: str, words: str) -> None:
    found = read(text)
    assert any(words in word for word in found.rig.unknown)
    assert found.unread == ()


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("[    0.05] DMAR: IOMMU enabled", "on"),
        ("[    0.05] Kernel command line: quiet iommu=pt", "passthrough"),
        ("DMAR: IOMMU enabled\nKernel command line: intel_iommu=on iommu=pt", "passthrough"),
        ("Kernel command line: amd_iommu=on iommu=pt\nDMAR: IOMMU enabled", "passthrough"),
        ("Command line: intel_iommu=off", "off"),
    ],
)
def test_what_the_kernel_says_of_its_iommu(text: str, state: str) -> None:
    found = read(text)
    assert (found.rig.host.iommu, found.unread) == (state, ())


def test_the_kernels_parameters_are_kept() -> None:
    rig = read("[    0.04] Kernel command line: quiet iommu=pt").rig
    assert rig.host.command_line == "quiet iommu=pt"


# ------------------------------------------------------------------------------ too many cards


def devices(count: int) -> str:
    line = "Device: {}, NVIDIA A, pciBusID: {:x}, pciDeviceID: 0, pciDomainID:{:x}\n"
    return "".join(line.format(i, i % 256, i // 256) for i in range(count))


def rows_of_a_matrix(count: int) -> str:
    head = " ".join(f"GPU{i}" for i in range(count))
    return f"{head}\n" + "".join(f"GPU{i} {'PHB ' * count}\n" for i in range(min(count, 300)))


def query(count: int) -> str:
    row = "{}, NVIDIA A, 0000:{:02x}:{:02x}.0\n"
    rows = (row.format(i, i % 256, i // 256 % 32) for i in range(count))
    return "index, name, pci.bus_id\n" + "".join(rows)


def table(count: int) -> str:
    row = "| {:3}  NVIDIA A     Off | 00000000:{:02X}:{:02X}.0 Off |   N/A |\n"
    return "".join(row.format(i % 999, i % 256, i // 256 % 32) for i in range(count))


def faults(count: int) -> str:
    row = "NVRM: Xid (PCI:0000:{:02x}:{:02x}): 79, x\n"
    return "".join(row.format(i % 256, i // 256 % 32) for i in range(count))


def details(count: int) -> str:
    row = "GPU 00000000:{:02X}:{:02X}.0\n    Product Name : NVIDIA A\n"
    return "".join(row.format(i % 256, i // 256 % 32) for i in range(count))


MANY = [devices, rows_of_a_matrix, query, table, faults, details]


@pytest.mark.parametrize("text", MANY)
def test_a_full_machine_is_read_whole(text: Callable[[int], str]) -> None:
    found = read(text(64))
    assert (len(found.rig.devices), found.unread) == (64, ())


@pytest.mark.parametrize("text", MANY)
def test_no_parser_reads_more_cards_than_a_machine_has(text: Callable[[int], str]) -> None:
    found = read(text(65))
    assert len(found.rig.devices) == 64
    assert any("64" in word and "cards" in word for word in found.unread)


@pytest.mark.parametrize("text", MANY)
def test_fifty_megabytes_of_cards_are_answered_soon(text: Callable[[int], str]) -> None:
    once = text(999).encode()
    data = once * (50 * MIB // len(once))
    started = time.process_time()
    found = read_pasted([("big", data)])
    assert time.process_time() - started < 3  # seconds of processor time
    assert len(found.rig.devices) <= 64


@pytest.mark.parametrize(
    "block",
    [
        f"P2P=Enabled Bandwidth Matrix\nD\\D {' '.join(map(str, range(64)))}\n0{' 1.00' * 64}\n",
        f"GPU0 X {'PHB ' * 63}\n",
        "NVRM: Xid (PCI:0000:01:00): {number}, x\n",
        "GPU {number}: NVIDIA A\nPyTorch version: 2\n",
    ],
)
def test_thousands_of_outputs_take_as_many_times_as_long(block: str) -> None:
    """Four times as many, of a thousand and more: not sixteen times."""

    def seconds(count: int) -> float:
        text = "".join(f"{block}hello\n".replace("{number}", str(i % 1000)) for i in range(count))
        started = time.process_time()
        read(text)
        return time.process_time() - started

    assert seconds(6000) < 10 * max(0.01, seconds(1500))


def test_a_log_between_whose_lines_others_stand_is_read_to_its_end() -> None:
    def line(number: int) -> str:
        return f"NVRM: Xid (PCI:0000:{number % 4 + 1:02x}:00): 13, x\nusb 1-1: new device\n"

    rig: Rig = read("".join(map(line, range(200))) + "Model name: Example 5\n").rig
    assert [device.facts.xids for device in rig.devices] == [(13,)] * 4
    assert rig.host.processor == "Example 5"
