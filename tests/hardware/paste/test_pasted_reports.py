"""Our own report beside other text of the same machine."""

from __future__ import annotations

import json
from dataclasses import replace

from pasted_text import GIB, read

from local_tp.codec import encode
from local_tp.core import Rig
from local_tp.facts import HostFacts

EMPTY = Rig(
    devices=(),
    links=(),
    ram=64 * GIB,
    available_ram=48 * GIB,
    cores=12,
    os="Linux 6.8",
    host=HostFacts(processor="Ryzen 9"),
)
LIST = "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"


def report(rig: Rig) -> str:
    return json.dumps(encode(rig))


def test_a_report_without_cards_leaves_them_to_other_text() -> None:
    for texts in ((report(EMPTY), LIST), (LIST, report(EMPTY))):
        pasted = read(*texts)
        assert [card.name for card in pasted.rig.devices] == ["NVIDIA GeForce RTX 3090"]
        assert (pasted.rig.ram, pasted.rig.cores, pasted.rig.os) == (64 * GIB, 12, "Linux 6.8")
        assert pasted.rig.host.processor == "Ryzen 9"
        assert pasted.unread == ()


def test_a_report_with_cards_counts_alone_and_one_without_is_what_it_is() -> None:
    whole = replace(EMPTY, devices=read(LIST).rig.devices)
    pasted = read(report(EMPTY), report(whole), LIST)
    assert pasted.rig == whole
    assert pasted.unread == ("nvidia-smi -L: not used beside a report of local-tp",)
    assert read(report(EMPTY)).rig == EMPTY
