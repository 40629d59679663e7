"""Who holds a card, and faults of links and memory, in what lspci, the kernel and drivers print."""

from __future__ import annotations

import time

import pytest
from pasted_text import MIB, by_id, read

from local_tp.facts import CardFacts
from local_tp.hardware.paste import read_pasted
from local_tp.hardware.report.facts import device_facts
from local_tp.hardware.report.report import Report, summary

CARD = "01:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090]\n"
HEALTHY_CESTA = "RxErr- BadTLP- BadDLLP- Rollover- Timeout- AdvNonFatalErr{}"


def only(text: str) -> CardFacts:
    (device,) = read(text).rig.devices
    return device.facts


@pytest.mark.parametrize("driver", ["nvidia", "nouveau", "vfio-pci"])
def test_the_driver_that_holds_a_card(driver: str) -> None:
    assert only(f"{CARD}\tKernel driver in use: {driver}\n").driver_in_use == driver
    assert only(CARD).driver_in_use is None


@pytest.mark.parametrize(
    ("lines", "errors"),
    [
        ("\tDevSta:\tCorrErr+ NonFatalErr- FatalErr-\n", 1),
        ("\tDevSta:\tCorrErr- NonFatalErr- FatalErr-\n", 0),
        ("\t\tCESta:\tRxErr+ BadTLP- BadDLLP- Rollover- Timeout- AdvNonFatalErr-\n", 1),
        ("\t\tCESta:\tRxErr- BadTLP- BadDLLP- Rollover- Timeout+ AdvNonFatalErr-\n", 1),
        (f"\tDevSta:\tCorrErr+\n\t\tCESta:\t{HEALTHY_CESTA.format('+')}\n", 0),
        (f"\t\tCESta:\t{HEALTHY_CESTA.format('-')}\n\tDevSta:\tCorrErr+\n", 0),
        ("\t\tCEMsk:\tRxErr+ BadTLP+\n", None),
    ],
)
def test_errors_of_a_link_that_were_corrected(lines: str, errors: int | None) -> None:
    assert only(CARD + lines).link_errors == errors


def test_the_kernel_counts_errors_of_links_by_card() -> None:
    bad = "[ 9.1] nvidia 0000:0a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer\n"
    port = "[ 9.0] pcieport 0000:00:01.1: AER: Corrected error received: 0000:0a:00.0\n"
    other = "[ 9.2] nvme 0000:0c:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer\n"
    xid = "[ 9.3] NVRM: Xid (PCI:0000:0b:00): 48, DBE\n"
    found = read(port + bad + port + bad.replace("nvidia", "amdgpu") + other + xid)
    cards = by_id(found.rig)
    told = {id: (card.facts.link_errors, card.facts.xids) for id, card in cards.items()}
    assert told == {"0000:0a:00.0": (2, ()), "0000:0b:00.0": (None, (48,))}
    assert found.unread == ()


def test_all_lines_of_an_error_are_understood_and_advisory_ones_count_for_nothing() -> None:
    place = "nvidia 0000:0a:00.0:"
    text = (
        "pcieport 0000:00:01.1: AER: Multiple Correctable error received: 0000:0a:00.0\n"
        f"{place} PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)\n"
        f"{place}   device [10de:2204] error status/mask=00000041/0000a000\n"
        f"{place}    [ 0] RxErr                  (First)\n{place}    [ 6] BadTLP\n"
        f"{place} PCIe Bus Error: severity=Corrected, type=Transaction Layer, (Receiver ID)\n"
        f"{place}   device [10de:2204] error status/mask=00002000/0000a000\n"
        f"{place}    [13] NonFatalErr\n"
    )
    found = read("".join(f"[ {9 + i}.1] {line}\n" for i, line in enumerate(text.splitlines())))
    assert [card.facts.link_errors for card in found.rig.devices] == [1]
    assert found.unread == ()


def test_of_what_lspci_and_the_kernel_count_the_more_is_told() -> None:
    bad = "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer\n"
    facts = only(f"{CARD}\tDevSta:\tCorrErr+\n\n{bad * 3}")
    assert facts.link_errors == 3


@pytest.mark.parametrize(("word", "pending"), [("Yes", True), ("No", False), ("N/A", None)])
def test_rows_of_memory_that_wait_for_a_reset(word: str, pending: bool | None) -> None:
    details = (
        "GPU 00000000:01:00.0\n    Product Name      : NVIDIA A\n    ECC Mode\n"
        f"        Pending       : Enabled\n    Remapped Rows\n        Pending       : {word}\n"
    )
    xml = (
        '<nvidia_smi_log>\n<gpu id="00000000:01:00.0">\n<product_name>NVIDIA A</product_name>\n'
        f"<remapped_rows><remapped_row_pending>{word}</remapped_row_pending></remapped_rows>\n"
        "</gpu>\n</nvidia_smi_log>\n"
    )
    query = f"index, name, pci.bus_id, remapped_rows.pending\n0, NVIDIA A, 0000:01:00.0, {word}\n"
    assert [only(text).remap_pending for text in (details, xml, query)] == [pending] * 3


PLUGGED = (
    "-[0000:00]-+-00.0  Intel Corporation Device a706\n"
    "           +-01.0-[01]----00.0  NVIDIA Corporation AD107M [GeForce RTX 4060 Max-Q / Mobile]\n"
    "           +-07.0-[2f-{last}]----00.0-[30-{last}]--+-01.0-[31]----00.0  NVIDIA Corporation "
    "GA102 [GeForce RTX 3080]\n"
    "           |                               \\-04.0-[32-{last}]--\n"
)


@pytest.mark.parametrize(("last", "external"), [("57", True), ("4e", True), ("36", None)])
def test_a_card_below_a_port_with_buses_to_spare_is_outside(
    last: str, external: bool | None
) -> None:
    cards = by_id(read(PLUGGED.format(last=last)).rig)
    assert cards["0000:01:00.0"].facts.external is None
    assert cards["0000:31:00.0"].facts.external is external


def test_a_pluggable_port_of_another_root_complex_is_another() -> None:
    roots = "".join(
        f"{'-' if root == '00' else ' +-'}[0000:{root}]---01.0-[{a}-{b}]----00.0  NVIDIA "
        "Corporation GA102 [GeForce RTX 3090]\n"
        for root, a, b in (("00", "01", "30"), ("80", "81", "81"))
    )
    cards = by_id(read(roots).rig)
    assert {id: card.facts.external for id, card in cards.items()} == {
        "0000:01:00.0": True,
        "0000:81:00.0": None,
    }


@pytest.mark.parametrize("text", ["hello\n", "Model name: Example 5\n", "Memory Device\n"])
def test_a_text_without_cards_is_not_called_well(text: str) -> None:
    assert (
        summary(Report(read(text).rig))
        == "no graphics card was found, and nothing wrong with the rest"
    )


@pytest.mark.parametrize(
    "line",
    [
        "GPU {0}: NVIDIA GeForce RTX 3090 (UUID: GPU-1a2b3c4d-0000-1111-2222-00000000{0:04})\n",
        "0000:{1:02x}:{2:02x}.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX "
        "3090]\n\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4\n",
    ],
)
def test_a_second_is_enough_for_fifty_megabytes(line: str) -> None:
    once = "".join(line.format(i, i // 32 % 256, i % 32) for i in range(9999)).encode()
    data = once * (50 * MIB // len(once))
    started = time.process_time()
    found = read_pasted([("big", data)])
    assert time.process_time() - started < 3  # seconds of processor time, on a slow machine
    assert len(found.rig.devices) == 64


BOLT = (
    "$ boltctl\n \u25cf Example Box\n   \u251c\u2500 type:          {}\n"
    "   \u251c\u2500 name:          Box\n   \u2514\u2500 status:        {}\n"
    "      \u251c\u2500 authorized: Mon\n"
)
LAPTOP = "GPU 0: NVIDIA GeForce RTX 4060 Laptop GPU\n"


@pytest.mark.parametrize(
    ("cards", "kind", "status", "external"),
    [
        (LAPTOP + "GPU 1: NVIDIA GeForce RTX 3080\n", "peripheral", "authorized", ["GPU1"]),
        (LAPTOP + "GPU 1: NVIDIA GeForce RTX 3080\n", "peripheral", "disconnected", []),
        (LAPTOP + "GPU 1: NVIDIA GeForce RTX 3080\n", "host", "authorized", []),
        ("GPU 0: NVIDIA A10\nGPU 1: NVIDIA GeForce RTX 3080\n", "peripheral", "authorized", []),
        (LAPTOP, "peripheral", "authorized", []),
    ],
)
def test_a_laptops_other_card_is_what_is_plugged_in(
    cards: str, kind: str, status: str, external: list[str]
) -> None:
    found = read(cards + BOLT.format(kind, status))
    assert [d.id for d in found.rig.devices if d.facts.external] == external
    assert found.unread == ()


def test_faults_stand_in_the_report_of_a_card() -> None:
    (card,) = read(
        f"{CARD}\tDevSta:\tCorrErr+\n\nindex, name, pci.bus_id, remapped_rows.pending\n"
        "0, NVIDIA GeForce RTX 3090, 0000:01:00.0, Yes\n"
    ).rig.devices
    rows = dict(device_facts(card))
    assert rows["Memory"].endswith("bad rows wait for a reset")
    assert rows["PCIe"].endswith("corrected errors were seen")
