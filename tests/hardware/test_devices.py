"""Device names as people type them, and the description they read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from local_tp.core import Device, DeviceKind, Link, Pcie, Rig
from local_tp.errors import DeviceError
from local_tp.facts import CardFacts
from local_tp.hardware.describe import describe
from local_tp.hardware.devices import (
    WSL_HIDDEN,
    bus_id,
    default_devices,
    resolve_devices,
    short_names,
    why_left_out,
    with_hidden,
)

GIB = 1024**3


def card(slot: str, name: str) -> Device:
    return Device(id=slot, kind="cuda", name=name, total=12 * GIB, free=11 * GIB, reserve=GIB)


CPU = Device("cpu", "cpu", "Ryzen 9", 64 * GIB, 60 * GIB, GIB, facts=CardFacts(core_bandwidth=21e9))
FIRST = card("0000:01:00.0", "NVIDIA GeForce RTX 3060")
SECOND = card("0000:41:00.0", "NVIDIA GeForce RTX 5090")
THIRD = card("10000:01:00.0", "NVIDIA GeForce RTX 5090")
RIG = Rig(devices=(THIRD, SECOND, CPU, FIRST), cores=8, ram=64 * GIB)
BARE = Rig(devices=(CPU,), cores=8)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("cpu", CPU),
        ("CPU", CPU),
        ("cuda:0", FIRST),
        ("1", SECOND),
        (" 2 ", THIRD),
        ("0000:41:00.0", SECOND),
        ("00000000:41:00.0", SECOND),
        ("41:00.0", SECOND),
        ("10000:01:00.0", THIRD),
        ("3060", FIRST),
        ("rtx3060", FIRST),
        ("GeForce RTX 3060", FIRST),
    ],
)
def test_a_name_finds_its_device(name: str, device: Device) -> None:
    assert resolve_devices([name], RIG) == (device,)


def test_order_and_repetition_are_kept() -> None:
    assert resolve_devices(["cuda:1", "cpu", "cpu", "0"], RIG) == (SECOND, CPU, CPU, FIRST)
    assert resolve_devices([], RIG) == ()


@pytest.mark.parametrize("name", ["cuda:3", "3", "50", "", " ", "4090", "0000:02:00.0", "rocm:0"])
def test_an_unknown_name_says_what_exists(name: str) -> None:
    with pytest.raises(DeviceError) as caught:
        resolve_devices(["cpu", name], RIG)
    text = str(caught.value)
    assert text.startswith(f"there is no device {name!r}: this machine has cuda:0 (NVIDIA GeForce")
    assert "cpu (Ryzen 9)" in text
    assert "\n" not in text
    assert caught.value.exit_code == 2


def test_a_part_of_two_names_is_refused() -> None:
    with pytest.raises(DeviceError, match="'5090' fits cuda:1 and cuda:2: name one of them"):
        resolve_devices(["5090"], RIG)


def test_a_whole_name_wins_over_a_longer_one() -> None:
    titan = card("0000:42:00.0", "NVIDIA GeForce RTX 3060 Ti")
    rig = Rig(devices=(FIRST, titan, CPU))
    assert resolve_devices(["nvidia geforce rtx 3060"], rig) == (FIRST,)
    assert resolve_devices(["3060 ti"], rig) == (titan,)


def test_the_processor_is_not_found_by_a_part_of_its_name() -> None:
    with pytest.raises(DeviceError):
        resolve_devices(["Ryzen"], RIG)


def test_what_wsl_hides_of_a_card_is_kept_free() -> None:
    assert with_hidden(FIRST, wsl=True).reserve == FIRST.reserve + WSL_HIDDEN
    assert with_hidden(FIRST, wsl=False) == with_hidden(FIRST, wsl=None) == FIRST
    assert with_hidden(CPU, wsl=True) == CPU
    small = replace(FIRST, total=GIB)
    assert with_hidden(small, wsl=True).reserve == GIB


def test_defaults() -> None:
    assert default_devices(RIG) == (FIRST.id, SECOND.id, THIRD.id)
    assert default_devices(BARE) == ("cpu", "cpu")
    assert default_devices(replace(BARE, cores=1)) == ("cpu",)
    assert resolve_devices(default_devices(RIG), RIG) == (FIRST, SECOND, THIRD)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:0A:00.0", "0000:0a:00.0"),
        ("0000:0a:00.0", "0000:0a:00.0"),
        ("0a:00.1", "0000:0a:00.1"),
        ("00010000:01:1F.0", "10000:01:1f.0"),
        ("cuda:0", None),
        ("0000:0a:00", None),
        ("0000:0a:00.8", None),
    ],
)
def test_bus_ids_have_one_form(text: str, normal: str | None) -> None:
    assert bus_id(text) == normal


def test_short_names_count_slots_and_end_with_the_processor() -> None:
    assert list(short_names(RIG).items()) == [
        ("cuda:0", FIRST),
        ("cuda:1", SECOND),
        ("cuda:2", THIRD),
        ("cpu", CPU),
    ]


def test_describe_a_rig_of_two_cards() -> None:
    known = replace(
        FIRST, capability=(8, 6), display=True, pcie=Pcie(1, 4, max_generation=4, max_width=16)
    )
    rig = Rig(
        devices=(known, SECOND, CPU),
        links=(Link(known.id, SECOND.id, "nvlink"),),
        ram=64 * GIB,
        available_ram=60 * GIB,
        cores=1,
        os="Debian, Linux 6.1",
        driver="580.65",
        unknown=("0000:41:00.0: UUID: Not Supported",),
    )
    assert (
        describe(rig)
        == """\
System  Debian, Linux 6.1, NVIDIA driver 580.65
Memory  64.0 GiB, 60.0 GiB available; 1 physical core

Devices
  cuda:0  NVIDIA GeForce RTX 3060 at 0000:01:00.0
          11.0 GiB free of 12.0 GiB, 1.0 GiB of it kept back
          compute capability 8.6; display attached: yes
          PCIe 1.0 x4 now (idle cards slow down), 4.0 x16 at most
  cuda:1  NVIDIA GeForce RTX 5090 at 0000:41:00.0
          11.0 GiB free of 12.0 GiB, 1.0 GiB of it kept back
          compute capability unknown; display attached: unknown
  cpu     Ryzen 9
          60.0 GiB free of 64.0 GiB, 1.0 GiB of it kept back
          one thread moves 21.0 GB a second

Links
  cuda:0 to cuda:1: NVLink, not verified yet

Not known
  0000:41:00.0: UUID: Not Supported"""
    )


def test_describe_a_machine_without_cards() -> None:
    assert describe(BARE).splitlines()[-1] == "  No graphics card that can be used was found."


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("cuda", CardFacts(), None),
        ("cuda", CardFacts(integrated=True), None),  # a PC of one chip has no other card
        ("cuda", CardFacts(lost=True), "it is lost: the driver no longer reaches it"),
        ("cuda", CardFacts(compute_mode="Prohibited"), "its compute mode forbids"),
        ("cuda", CardFacts(mig=False), None),
        (
            "cuda",
            CardFacts(mig=True),
            "MIG is on, so that programs see its slices only",
        ),
        ("rocm", CardFacts(integrated=True), "it is part of the processor"),
        ("rocm", CardFacts(), "workers run on NVIDIA cards and on the processor only"),
        ("xpu", CardFacts(), "workers run on NVIDIA cards and on the processor only"),
        ("cpu", CardFacts(), None),
    ],
)
def test_what_a_plan_leaves_out_and_why(
    kind: DeviceKind, facts: CardFacts, words: str | None
) -> None:
    device = replace(SECOND, kind=kind, facts=facts)
    why = why_left_out(device)
    assert why is None if words is None else why and why.startswith(words)
    chosen = default_devices(Rig(devices=(FIRST, device, CPU), cores=8))
    assert chosen == ((FIRST.id, device.id) if words is None and kind != "cpu" else (FIRST.id,))
