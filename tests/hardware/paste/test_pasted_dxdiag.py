"""`dxdiag` of Windows, as saved to a file and as pasted without its indentation."""

from __future__ import annotations

import pytest
from pasted_text import MIB, found, read

HEAD = """\
------------------
System Information
------------------
      Time of this report: 3/2/2026, 19:02:11
             Machine name: SOMEBODYS-PC
         Operating System: Windows 11 Home 64-bit (10.0, Build 26100) (26100.ge_release.240331-1435)
                Processor: 13th Gen Intel(R) Core(TM) i7-13700K               (24 CPUs), ~3.4GHz
                   Memory: 32768MB RAM
      Available OS Memory: 32510MB RAM
                Page File: 11282MB used, 42822MB available

---------------
Display Devices
---------------
"""
CARD = """\
           Card name: {0}
        Manufacturer: {1}
          Device Key: Enum\\PCI\\VEN_10DE&DEV_{2}&SUBSYS_87AF1043&REV_A1
      Display Memory: 40000 MB
    Dedicated Memory: {3} MB
       Shared Memory: 16255 MB
      Driver Version: {4}
        Driver Model: WDDM 3.2

"""
RTX = CARD.format("NVIDIA GeForce RTX 4070 Ti", "NVIDIA", "2782", 11994, "32.0.15.7283")
OLD = CARD.format("NVIDIA GeForce GTX 1080 Ti", "NVIDIA", "1B06", 11127, "32.0.15.7283")
INSIDE = CARD.format("Intel(R) UHD Graphics 770", "Intel Corporation", "A780", 128, "32.0.101.6129")
SOUND = """\
-------------
Sound Devices
-------------
            Description: Speakers (Realtek(R) Audio)
            Driver Version: 6.0.9700.1
"""


@pytest.mark.parametrize("trimmed", [False, True])
def test_cards_and_the_machine_around_them(trimmed: bool) -> None:
    text = HEAD + RTX + OLD + INSIDE + SOUND
    if trimmed:
        text = "\n".join(line.strip() for line in text.splitlines())
    pasted = read(text)
    rig = pasted.rig
    assert [(d.kind, d.name, d.total // MIB) for d in rig.devices] == [
        ("cuda", "NVIDIA GeForce RTX 4070 Ti", 11994),
        ("cuda", "NVIDIA GeForce GTX 1080 Ti", 11127),
        ("xpu", "Intel(R) UHD Graphics 770", 0),
    ]
    assert [d.facts.driver_model for d in rig.devices] == ["WDDM", "WDDM", None]
    assert [d.facts.integrated for d in rig.devices] == [False, False, True]
    assert (rig.os, rig.driver, rig.ram) == ("Windows 11 Home 64-bit", "572.83", 32510 * MIB)
    assert rig.host.processor == "13th Gen Intel(R) Core(TM) i7-13700K"
    assert (rig.host.logical_cores, rig.host.wsl) == (24, False)
    assert found(rig)["wddm-spill"] == ("GPU0", "GPU1")
    assert "SOMEBODYS-PC" not in repr(pasted)


def test_a_card_with_two_monitors_counts_once_and_that_is_said() -> None:
    rig = read(HEAD + RTX + RTX + OLD).rig
    assert [device.name[-4:] for device in rig.devices] == ["0 Ti", "0 Ti"]
    assert any(line.startswith("dxdiag lists a card once for each monitor") for line in rig.unknown)
    assert not any("monitor" in line for line in read(HEAD + RTX + OLD).rig.unknown)


def test_what_is_pasted_below_it_is_another_output() -> None:
    listed = "GPU 0: NVIDIA GeForce RTX 4070 Ti (UUID: GPU-12345678-1234-1234-1234-123456789001)\n"
    (card,) = read(HEAD + RTX + listed).rig.devices
    assert (card.uuid, card.total) == ("GPU-12345678-1234-1234-1234-123456789001", 11994 * MIB)


def test_a_driver_version_of_another_form_is_none() -> None:
    assert read(HEAD + RTX.replace("32.0.15.7283", "Unknown")).rig.driver is None
    assert read(HEAD + INSIDE).rig.driver is None
