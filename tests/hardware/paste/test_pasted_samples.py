"""Several outputs about the same cards, in loops and side by side: each card is there once."""

from __future__ import annotations

import pytest
from pasted_text import GIB, MIB, by_id, read

from local_tp.core import Device
from local_tp.facts import PcieReading
from local_tp.hardware.report.facts import device_facts

LIST = "GPU {0}: NVIDIA A10 (UUID: GPU-12345678-1234-1234-1234-12345678900{0})\n"
RANK = "#  Rank  {0} Group  0 Pid  1 on   host device  {0} [0x{1}] {2}\n"
NCCL = "# nThread 1 nGpus 2 minBytes 8192 maxBytes 1048576 step: 2(factor)\n"
TABLE = (
    "| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14      CUDA Version: 12.4     |\n"
    "|   0  NVIDIA GeForce RTX 3090        On  |   00000000:42:00.0 Off |       N/A |\n"
    "| 30%   49C    {state}        {watts}W /  350W |   {used}MiB /  24576MiB | {busy}% Default |\n"
    "|                                         |                        |       N/A |\n"
    "|    0   N/A  N/A       {pid}      C   python             {used}MiB |\n"
)
LOOP = "name, pci.bus_id, utilization.gpu [%], pstate, pcie.link.gen.current, power.draw [W]\n"
DETAILS = (
    "==============NVSMI LOG==============\nAttached GPUs    : 1\n"
    "GPU 00000000:01:00.0\n    Product Name      : NVIDIA A\n"
    "    FB Memory Usage\n        Total     : 100 MiB\n        Used      : {0} MiB\n"
)


def ids(*texts: str) -> list[str]:
    return [device.id for device in read(*texts).rig.devices]


def table(used: int, busy: int, watts: int, state: str, pid: int) -> str:
    return TABLE.format(used=used, busy=busy, watts=watts, state=state, pid=pid)


IDLE = table(1, 0, 28, "P8", 7)
BUSY = table(20000, 99, 300, "P2", 8)


def test_cards_listed_by_number_are_those_that_a_test_places_on_buses() -> None:
    ranks = RANK.format(0, "17", "NVIDIA A10") + RANK.format(1, "65", "NVIDIA A10")
    devices = read(LIST.format(0) + LIST.format(1) + NCCL + ranks).rig.devices
    assert [(d.id, d.facts.index) for d in devices] == [("0000:17:00.0", 0), ("0000:65:00.0", 1)]


def test_a_test_on_some_of_the_cards_finds_them_by_number() -> None:
    listed = "".join(map(LIST.format, range(4)))
    ranks = RANK.format(2, "65", "NVIDIA A10")
    assert ids(listed + NCCL + ranks) == ["0000:65:00.0", "GPU0", "GPU1", "GPU3"]


def test_cards_of_another_model_are_others() -> None:
    ranks = RANK.format(0, "17", "NVIDIA L4")
    assert ids(LIST.format(0) + NCCL + ranks) == ["0000:17:00.0", "GPU0"]


def test_queries_of_other_columns_are_about_the_same_cards() -> None:
    devices = read(
        "$ nvidia-smi --query-gpu=index,name,memory.total --format=csv\n"
        "index, name, memory.total [MiB]\n0, NVIDIA A, 100 MiB\n1, NVIDIA A, 200 MiB\n"
        "$ nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv\n"
        "pcie.link.gen.current, pcie.link.width.current\n4, 16\n3, 4\n"
        "$ nvidia-smi --query-gpu=pci.bus_id,pcie.link.width.max --format=csv,noheader\n"
        "00000000:01:00.0, 8\n00000000:05:00.0, 16\n"
    ).rig.devices
    told = [
        (d.id, d.total // MIB, d.pcie.generation, d.pcie.width, d.pcie.max_width)
        for d in devices
        if d.pcie
    ]
    assert told == [("0000:01:00.0", 100, 4, 16, 8), ("0000:05:00.0", 200, 3, 4, 16)]


def test_a_query_without_names_is_about_the_card_of_the_table() -> None:
    (card,) = read(f"{IDLE}pcie.link.gen.current, pcie.link.gen.max\n1, 5\n").rig.devices
    assert (card.name, card.id) == ("NVIDIA GeForce RTX 3090", "0000:42:00.0")
    assert card.pcie is not None
    assert (card.pcie.generation, card.pcie.max_generation) == (1, 5)


@pytest.mark.parametrize("texts", [(IDLE + BUSY,), (BUSY + IDLE,), (IDLE, BUSY)])
def test_of_tables_the_one_under_load_counts(texts: tuple[str, ...]) -> None:
    (card,) = read(*texts).rig.devices
    facts = card.facts
    assert (facts.used, facts.power_draw, facts.utilization) == (20000 * MIB, 300, 99)
    assert (card.free, facts.performance_state) == (4576 * MIB, "P2")
    assert [process.pid for process in facts.processes] == [8]


def test_rows_of_a_loop_are_looks_at_the_same_cards() -> None:
    row = "NVIDIA A, 00000000:0{}:00.0, {} %, {}, {}, {} W\n"
    rows = [row.format(i, 0, "P8", 1, 20 + i) for i in (1, 2)]
    rows += [row.format(i, 99, "P2", gen, 300 + i) for i, gen in ((1, 4), (2, 1))]
    one, two = read(LOOP + "".join(rows)).rig.devices
    assert [c.facts.pcie_loaded for c in (one, two)] == [PcieReading(4), PcieReading(1)]
    assert [c.facts.power_draw for c in (one, two)] == [301, 302]


def test_a_loop_of_thousands_of_rows_has_one_card() -> None:
    row = "NVIDIA A, 00000000:01:00.0, {} %, P2, 4, 300 W\n"
    found = read(LOOP + "".join(row.format(i % 100) for i in range(3000)))
    (card,) = found.rig.devices
    assert (card.facts.utilization, found.unread) == (99, ())


STAMPED = "timestamp, name, utilization.gpu [%], memory.used [MiB]\n"


def stamped(*rows: tuple[str, int]) -> list[tuple[str, int | None]]:
    text = "".join(f"2025/10/10 10:00:{at}, NVIDIA A, {busy} %, 5 MiB\n" for at, busy in rows)
    return [(d.id, d.facts.utilization) for d in read(STAMPED + text).rig.devices]


def test_times_tell_looks_from_cards() -> None:
    assert stamped(("01.1", 0), ("02.1", 99), ("03.1", 12)) == [("GPU0", 99)]
    assert stamped(("01.100", 0), ("01.102", 9)) == [("GPU0", 0), ("GPU1", 9)]
    assert stamped(("01.100", 0), ("01.102", 9), ("02.100", 50), ("02.103", 8), ("03.100", 60)) == [
        ("GPU0", 60),
        ("GPU1", 9),
    ]


def test_looks_of_different_lengths_stay_apart() -> None:
    rows = ("01.100", 0), ("02.100", 1), ("02.102", 2), ("03.1", 3)
    assert len(stamped(*rows)) == 4


@pytest.mark.parametrize(
    "texts", [(DETAILS.format(9) + DETAILS.format(70),), (DETAILS.format(70), DETAILS.format(9))]
)
def test_details_printed_twice_are_of_one_card(texts: tuple[str, ...]) -> None:
    (card,) = read(*texts).rig.devices
    assert (card.id, card.facts.used) == ("0000:01:00.0", 70 * MIB)


def test_why_an_idle_clock_was_low_is_not_told_of_a_busy_one() -> None:
    header = "index, name, utilization.gpu [%], clocks_event_reasons.active\n"
    rows = "0, NVIDIA A, 0 %, 0x0000000000000001\n0, NVIDIA A, 98 %, 0x0000000000000000\n"
    (card,) = read(header + rows).rig.devices
    assert (card.facts.utilization, card.facts.throttle) == (98, ())


# ------------------------------------------------------------------------ what a look does not tell


def shown(device: Device) -> dict[str, str]:
    return dict(device_facts(device))


def test_free_memory_is_not_made_up() -> None:
    told, silent = read(
        "index, name, memory.total [MiB], memory.used [MiB]\n"
        "0, NVIDIA A, 24576 MiB, 1024 MiB\n1, NVIDIA A, 24576 MiB, [N/A]\n"
    ).rig.devices
    assert "23 GiB free" in shown(told)["Memory"]
    assert shown(silent)["Memory"].startswith("24 GiB, free memory not known")
    assert silent.free == 24 * GIB  # what a plan takes for free


def test_memory_told_as_free_is_known() -> None:
    header = "index, name, memory.total [MiB], memory.free [MiB]\n"
    (card,) = read(f"{header}0, NVIDIA A, 24576 MiB, 24576 MiB\n").rig.devices
    assert (card.facts.used, "24 GiB free" in shown(card)["Memory"]) == (0, True)


def test_the_link_of_a_busy_card_is_not_called_idle() -> None:
    header = (
        "index, name, pci.bus_id, utilization.gpu [%], pcie.link.gen.current, pcie.link.gen.max\n"
    )
    rows = "0, NVIDIA A, 0000:01:00.0, 97 %, 3, 4\n1, NVIDIA A, 0000:02:00.0, 0 %, 1, 4\n"
    cards = by_id(read(header + rows).rig)
    busy, idle = cards["0000:01:00.0"], cards["0000:02:00.0"]
    assert (busy.facts.pcie_loaded, idle.facts.pcie_loaded) == (PcieReading(3), None)
    assert "idle cards slow down" not in shown(busy)["PCIe"]
    assert "idle cards slow down" in shown(idle)["PCIe"]


def test_what_a_driver_keeps_for_itself_is_nobodys_use() -> None:
    header = "index, name, memory.total [MiB], memory.free [MiB]\n"
    (card,) = read(f"{header}0, NVIDIA A, 97887 MiB, 97249 MiB\n").rig.devices
    assert (card.facts.used, card.free) == (None, 97249 * MIB)
