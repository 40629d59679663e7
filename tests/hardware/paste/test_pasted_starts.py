"""Cards on the bus that do not start: gone, without an address, or under the wrong modules."""

from __future__ import annotations

import pytest
from pasted_text import by_id, found, read

from local_tp.facts import StartFault
from local_tp.hardware.diagnose import diagnose

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
TITLE = "{}:00.0 VGA compatible controller [0300]: NVIDIA Corporation {}\n"
RTX_3090 = TITLE.format("02", "GA102 [GeForce RTX 3090] [10de:2204] (rev {rev})").rstrip("\n")
RTX_5090 = TITLE.format("01", "GB202 [GeForce RTX 5090] [10de:2b85] (rev a1)")
GTX_1080 = TITLE.format("02", "GP102 [GeForce GTX 1080 Ti] [10de:1b06] (rev a1)")
NEEDS_OPEN = (
    "[ 5.1] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)\n"
    "[ 5.1] NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
)
FAILED = "[ 5.2] NVRM: GPU {}: RmInitAdapter failed! (0x22:0x56:884)\n"
NEEDS_CLOSED = (
    "[ 5.3] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:1b06)\n"
    "[ 5.3] NVRM: installed in this system is not supported by open\n"
    "[ 5.3] NVRM: nvidia.ko because it does not include the required GPU\n"
    "[ 5.3] NVRM: System Processor (GSP).\n"
)


def starts(text: str) -> dict[str, StartFault | None]:
    return {id: card.facts.start_fault for id, card in by_id(read(text).rig).items()}


@pytest.mark.parametrize(
    "text",
    [
        RTX_3090.format(rev="ff") + " (prog-if ff)\n\t!!! Unknown header type 7f\n",
        RTX_3090.format(rev="ff") + "\n",
        RTX_3090.format(rev="a1") + "\n!!! Unknown header type 7f\nKernel driver in use: nvidia\n",
    ],
)
def test_a_card_that_reads_as_all_ones_is_lost(text: str) -> None:
    pasted = read(text)
    assert found(pasted.rig) == {"gpu-lost": (SECOND,)}
    assert [card.name for card in pasted.rig.devices] == ["NVIDIA GeForce RTX 3090"]
    assert pasted.unread == ()


def test_a_laptops_card_that_reads_so_may_be_asleep() -> None:
    mobile = TITLE.format("01", "AD107M [GeForce RTX 4060 Max-Q / Mobile] (rev ff)")
    rig = read(mobile).rig
    assert "gpu-lost" not in found(rig)
    assert any(line.startswith(f"{FIRST}: lspci could not read it") for line in rig.unknown)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("\tRegion 1: Memory at <unassigned> (64-bit, prefetchable) [disabled]\n", "no-address"),
        ("\tMemory at <ignored> (64-bit, prefetchable) [disabled]\n", "no-address"),
        ("\tRegion 1: Memory at 380000000000 (64-bit, prefetchable) [size=32G]\n", None),
        ("\tExpansion ROM at <unassigned> [disabled]\n", None),
        ("\tRegion 5: I/O ports at <unassigned> [disabled]\n", None),
    ],
)
def test_memory_windows_without_an_address(lines: str, fault: StartFault | None) -> None:
    text = TITLE.format("01", "GP102GL [Tesla P40] (rev a1)") + lines
    assert starts(text) == {FIRST: fault}
    assert ("bar-unassigned" in found(read(text).rig)) is (fault is not None)


def test_the_kernels_word_for_a_window_without_an_address() -> None:
    said = "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
    pasted = read(f"{said}NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)\n")
    (finding,) = (f for f in diagnose(pasted.rig) if f.id == "bar-unassigned")
    assert finding.devices == (FIRST,)
    assert "'Above 4G Decoding'" in finding.remedy
    assert pasted.unread == ()
    assert found(read("NVRM: BAR1 is 0M @ 0x0\n").rig) == {"bar-unassigned": ()}
    assert found(read("NVRM: BAR1 is 32768M @ 0x380000000000 (PCI:0000:01:00.0)\n").rig) == {}


@pytest.mark.parametrize(
    ("text", "card", "name", "fault", "id", "remedy"),
    [
        (
            NEEDS_OPEN + FAILED.format(FIRST),
            FIRST,
            "NVIDIA GeForce RTX 5090",
            "needs-open",
            "driver-wrong-modules",
            "nvidia-open",
        ),
        (
            FAILED.format(SECOND) + NEEDS_CLOSED,
            SECOND,
            "NVIDIA GeForce GTX 1080 Ti",
            "needs-closed",
            "driver-wrong-modules",
            "proprietary",
        ),
        (
            FAILED.format(FIRST),
            FIRST,
            "NVIDIA card",
            "failed",
            "card-start-failed",
            "power cables",
        ),
    ],
)
def test_why_the_module_did_not_start_a_card(
    text: str, card: str, name: str, fault: StartFault, id: str, remedy: str
) -> None:
    pasted = read(text)
    assert starts(text) == {card: fault}
    assert by_id(pasted.rig)[card].name == name
    (finding,) = (f for f in diagnose(pasted.rig) if f.id == id)
    assert finding.devices == (card,)
    assert remedy in finding.remedy
    assert pasted.unread == ()


def test_cards_of_two_kinds_of_modules_cannot_share_a_driver() -> None:
    log = read("$ dmesg | grep NVRM\n" + NEEDS_OPEN + FAILED.format(FIRST) + NEEDS_CLOSED)
    for rig in (log.rig, read(RTX_5090 + GTX_1080).rig):
        ids = found(rig)
        assert ids["driver-modules-conflict"] == (FIRST, SECOND)
        assert "driver-wrong-modules" not in ids
    assert log.unread == ()
    assert "driver-modules-conflict" not in found(read(RTX_5090).rig)


def test_on_windows_they_can_and_cards_that_were_read_do() -> None:
    query = (
        "index, name, pci.bus_id, temperature.gpu{model}\n"
        "0, NVIDIA GeForce RTX 5090, 00000000:01:00.0, {heat}{value}\n"
        "1, NVIDIA GeForce GTX 1080 Ti, 00000000:02:00.0, {heat}{value}\n"
    )
    assert "driver-modules-conflict" in found(read(query.format(model="", heat="", value="")).rig)
    for texts in (
        query.format(model="", heat="40", value=""),
        query.format(model=", driver_model.current", heat="", value=", WDDM"),
    ):
        assert "driver-modules-conflict" not in found(read(texts).rig)


def test_a_card_that_was_read_has_started_whatever_an_older_line_says() -> None:
    query = "index, pci.bus_id, temperature.gpu\n0, 00000000:01:00.0, 40\n"
    assert "card-start-failed" not in found(read(query + FAILED.format(FIRST)).rig)


def test_a_line_of_the_module_that_is_not_used_is_said_to_be_unread() -> None:
    pasted = read("[ 4.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n[ 5.0] NVRM: odd words\n")
    assert pasted.unread == ("line 2: not understood: '[ 5.0] NVRM: odd words'",)
