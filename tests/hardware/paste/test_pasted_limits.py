"""Texts with more cards than a machine has, and reports that cannot be read back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pasted_text import read

from local_tp.codec import encode
from local_tp.core import Rig


def listed(count: int) -> str:
    return "".join(f"GPU {i}: NVIDIA A (UUID: GPU-{i:08x}-1)\n" for i in range(count))


def functions(count: int) -> str:
    row = "{:02x}:{:02x}.0 VGA compatible controller: NVIDIA Corporation A [GeForce RTX 3090]\n"
    return "".join(row.format(i % 256, i // 256) for i in range(count))


def tree(count: int) -> str:
    row = "           +-{:02x}.0-[{:02x}]----00.0  NVIDIA Corporation A [GeForce RTX 3090]\n"
    return "-[0000:00]-+-00.0  Intel\n" + "".join(row.format(i, i + 1) for i in range(count))


def values(count: int) -> str:
    return "".join(f"GPU[{i}]\t\t: GPU use (%): 5\n" for i in range(count))


def rocm_json(count: int) -> str:
    cards = {f"card{i}": {"PCI Bus": f"0000:{i:02x}:00.0"} for i in range(count)}
    return json.dumps(cards)


def agents(count: int) -> str:
    row = "Agent {}\n  Name:       gfx1100\n  Device Type:   GPU\n  BDFID:      {}\n"
    return "".join(row.format(i, 256 * (i + 1)) for i in range(count))


def sections(count: int) -> str:
    return "".join(f"GPU: {i}\n    BDF: 0000:{i:02x}:00.0\n" for i in range(count))


@pytest.mark.parametrize("text", [listed, functions, tree, values, rocm_json, agents, sections])
def test_the_first_cards_are_kept_and_the_rest_is_said(text: Callable[[int], str]) -> None:
    whole, more = read(text(64)), read(text(70))
    assert (len(whole.rig.devices), len(more.rig.devices)) == (64, 64)
    assert not any("cards" in word for word in whole.unread)
    assert any("only 64 were used" in word for word in more.unread)


SECRET = "thekla-ws"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({SECRET: 1}, " at devices[0]:"),
        ({"total": SECRET}, " at devices[0].total:"),
        ({"facts": {SECRET: SECRET}}, " at devices[0].facts:"),
    ],
)
def test_of_a_report_that_cannot_be_read_only_the_place_is_told(
    change: dict[str, object], place: str
) -> None:
    device = {"id": "cpu", "kind": "cpu", "name": SECRET, "total": 1, "free": 1, **change}
    (word,) = read(json.dumps({"rig": {"devices": [device]}})).unread[:1]
    assert SECRET not in word
    assert f"cannot be read{place} it is of another version or was changed" in word
    assert "`local-tp doctor --json`" in word


def test_a_file_is_named_by_its_place_and_only_among_others() -> None:
    alone, both = read("hello\n"), read("hello\n", "bye\n")
    assert alone.unread[0] == "line 1: not understood: 'hello'"
    assert [word for word in both.unread if "understood: '" in word] == [
        "file 1: line 1: not understood: 'hello'",
        "file 2: line 1: not understood: 'bye'",
    ]


def test_our_own_report_of_a_machine_with_slices_reads_back() -> None:
    rig: Rig = read(
        listed(1) + "  MIG 1g.5gb Device 0: (UUID: MIG-1)\nFailed to initialize NVML: Timeout\n"
    ).rig
    assert read(json.dumps({"rig": encode(rig)})).rig == rig
