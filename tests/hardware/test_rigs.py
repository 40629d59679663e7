"""Machines that come along as files, and what a damaged file is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local_tp.codec import encode
from local_tp.core import Pcie
from local_tp.errors import InputError
from local_tp.facts import PcieReading
from local_tp.hardware.catalog import find, with_catalog
from local_tp.hardware.diagnose import diagnose
from local_tp.hardware.report.json import report_json
from local_tp.hardware.report.report import Report
from local_tp.hardware.rigs import load_rig, rig_names

GIB = 1024**3

SMALL = """\
title = "A test machine"

[processor]
name = "Some processor"
cores = 6

[memory]
size = 32
channels = 2
speed = 3200

[[card]]
model = "GeForce RTX 3090"
slot = "4.0 x8"
count = 2

[[card]]
model = "GeForce RTX 3060 12 GB"
slot = "3.0 x4"
display = true

[[link]]
between = [1, 0]
kind = "nvlink"
"""


@pytest.mark.parametrize("name", rig_names())
def test_every_preset_is_a_machine_of_cards_in_the_catalog(name: str) -> None:
    rig = load_rig(name)
    *cards, processor = rig.devices
    assert (processor.kind, processor.total) == ("cpu", rig.ram)
    assert len({device.id for device in rig.devices}) == len(rig.devices)
    assert len(rig.links) == len(cards) * (len(cards) - 1) // 2
    for card in cards:
        assert with_catalog(card) == card, "the catalog knows more of it than the preset says"
        assert 0 < card.free < card.total
        assert card.bandwidth or card.facts.integrated
    assert not [finding for finding in diagnose(rig) if finding.severity == "error"]


def test_a_dozen_and_more_machines_come_along() -> None:
    assert len(rig_names()) >= 20
    assert {"rtx3060", "rtx3090-x2-nvlink", "rx7900xtx-x6", "cpu-ddr5"} < set(rig_names())


def test_two_bridged_rtx_3090() -> None:
    rig = load_rig("rtx3090-x2-nvlink")
    first, second, processor = rig.devices
    assert (first.total, first.bandwidth, first.capability) == (24 * GIB, 936.2e9, (8, 6))
    assert first.pcie == Pcie(4, 8, 4, 16)
    assert processor.bandwidth == 2 * 8 * 3200e6
    (link,) = rig.links
    assert (link.a, link.b, link.kind, link.verified) == (first.id, second.id, "nvlink", True)
    assert (link.bandwidth, link.measured) == (56.25e9, False)


def test_slots_decide_the_links(tmp_path: Path) -> None:
    rig = load_rig(_written(tmp_path, SMALL))
    assert [device.id for device in rig.devices] == [
        "0000:01:00.0",
        "0000:02:00.0",
        "0000:03:00.0",
        "cpu",
    ]
    bridged, slow, also_slow = rig.links
    assert (bridged.kind, bridged.verified, bridged.facts.path) == ("nvlink", False, "nvlink")
    assert (slow.kind, slow.facts.path) == ("host", "PHB")
    # PCIe 3.0 x4 carries 3.94 GB/s one way; through the PC's memory 60% of it.
    assert slow.bandwidth == pytest.approx(3.94e9 * 0.6, rel=0.01)
    assert also_slow.bandwidth == slow.bandwidth
    third = rig.devices[2]
    assert third.facts.pcie_loaded == PcieReading(3, 4)
    assert third.facts.pcie_card == PcieReading(4, 16)
    assert (third.display, third.reserve) == (True, GIB)


def test_a_modded_card_has_its_real_memory(tmp_path: Path) -> None:
    text = SMALL.replace("RTX 3060 12 GB", "RTX 4090").replace("display", "memory = 48\ndisplay")
    card = load_rig(_written(tmp_path, text)).devices[2]
    assert (card.total, card.bandwidth) == (48 * GIB, 1008e9)
    found = find(card.name, card.total)
    assert found is not None
    assert found.modded


def test_our_own_json_is_read_back(tmp_path: Path) -> None:
    rig = load_rig("rtx5090-rtx3090")
    bare, report = tmp_path / "bare.json", tmp_path / "report.json"
    bare.write_text(json.dumps(encode(rig)))
    report.write_text(report_json(Report(rig, diagnose(rig))))
    assert load_rig(bare) == load_rig(str(report)) == rig


def test_an_unknown_name_lists_the_machines() -> None:
    with pytest.raises(InputError) as caught:
        load_rig("rtx3091")
    assert caught.value.exit_code == 2
    assert "'rtx3091'" in str(caught.value)
    assert all(name in str(caught.value) for name in rig_names())


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("cores = 6", "coers = 6", "processor: unknown key 'coers': did you mean cores?"),
        ("cores = 6", 'cores = "6"', "processor.cores: expected a whole number"),
        ("cores = 6", "cores = 0", "processor.cores: expected 1 or more"),
        ("size = 32", "size = nan", "memory.size: expected 1 or more"),
        ("size = 32", "size = inf", "memory.size: expected 1 or more"),
        ("size = 32\n", "", "memory.size: missing: expected a number"),
        ("speed = 3200", f"speed = {'9' * 5000}", "machine.toml: "),
        ("GeForce RTX 3090", "GeForce RTX 3091", "card[0].model: 'GeForce RTX 3091' is not in"),
        ("GeForce RTX 3090", "UHD Graphics 770", "card[0].memory: missing"),
        ("4.0 x8", "4.0 x7", "card[0].slot: '4.0 x7': expected a generation and lanes"),
        ("count = 2", "count = 0", "card[0].count: expected 1 or more"),
        ("count = 2", "count = 900000", "card[0].count: expected at most 32"),
        ("count = 2", 'bus = "1"\n', "card[0].bus: '1': expected an address"),
        ("count = 2", 'count = 2\nbus = "01:00.0"', "card[0].bus: one address for 2 cards"),
        ("display", 'bus = "01:00.0"\ndisplay', "card: bus: 0000:01:00.0 stands there twice"),
        ("[1, 0]", "[1, 3]", "link[0].between: expected two cards of 0 to 2"),
        ("[1, 0]", "[1, 1]", "link[0].between: expected two cards of 0 to 2"),
        ("[1, 0]", "[1, 2]", "link[0].kind: these cards have no NVLink"),
        ('kind = "nvlink"', 'kind = "wire"', 'link[0].kind: expected "nvlink" or "p2p"'),
        (
            "[[link]]",
            '[[link]]\nbetween = [0, 1]\nkind = "p2p"\n[[link]]',
            "link[1].between: cards 0 and 1 stand there twice",
        ),
        ('"GeForce', "GeForce", "machine.toml: "),
    ],
)
def test_a_damaged_file_is_told_its_table_and_key(
    tmp_path: Path, right: str, wrong: str, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_rig(_written(tmp_path, SMALL.replace(right, wrong, 1)))
    message = str(caught.value)
    assert message.startswith("machine.toml: ")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("rig.json", b"{", "rig.json: "),
        ("rig.json", b"[]", "rig.json: Rig: expected an object"),
        ("rig.json", b'{"devices": [], "ram": NaN}', "rig.json: NaN is no number"),
        ("rig.json", b'{"rig": {}}', "rig.devices: missing"),
        ("rig.json", b"[" * 200_000, "rig.json: "),
        ("rig.json", b"\xff\xfe\xff", "rig.json"),
        ("rig.toml", b"\xff\x00", "rig.toml is not text in UTF-8"),
        ("rig.toml", b"x = " + b"[" * 200_000, "rig.toml: "),
        ("rig.toml", b"#" * 5_000_000, "rig.toml: 5,000,000 bytes are no description"),
    ],
)
def test_no_machine_at_all_is_said_in_one_line(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_rig(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    for suffix in (".toml", ".json"):
        path = tmp_path / f"noise{suffix}"
        path.write_bytes(os.urandom(4096))
        with pytest.raises(InputError):
            load_rig(path)


@pytest.mark.parametrize("name", ["missing.toml", "missing.json", ".", "a\0b.toml", ""])
def test_what_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        load_rig(name)


def _written(folder: Path, text: str) -> Path:
    path = folder / "machine.toml"
    path.write_text(text)
    return path
