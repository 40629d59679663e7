"""Kept memory figures: found under the same driver and version only, worst one first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from local_tp.core import Device, Rig
from local_tp.hardware import memory_ratios
from local_tp.hardware.memory_ratios import FILE, Conditions, Kept, MemoryRatios, driver_of, worst

CARD = Device("0000:01:00.0", "cuda", "RTX 3090", 24, 24)
TWIN = replace(CARD, id="0000:02:00.0")
RIG = Rig((CARD, TWIN, Device("cpu", "cpu", "EPYC", 8, 8)), os="Linux", driver="580.1")
CONDITIONS = Conditions("m", "tensor", 2, 4096, 1, 512, "auto", "float16")
KEPT = Kept("RTX 3090", "580.1", memory_ratios.VERSION, 100, 110, 1.1, CONDITIONS)


def store(folder: Path | None, lines: list[str] | None = None) -> MemoryRatios:
    return MemoryRatios(folder, (lines if lines is not None else []).append)


def test_what_was_kept_is_found_for_every_card_of_that_name(tmp_path: Path) -> None:
    assert store(tmp_path).ratios(RIG) == {}
    store(tmp_path).keep([KEPT])
    assert store(tmp_path).ratios(RIG) == {CARD.id: 1.1, TWIN.id: 1.1}
    assert store(tmp_path).entries() == (KEPT,)


def test_the_processor_is_kept_by_its_system(tmp_path: Path) -> None:
    store(tmp_path).keep([replace(KEPT, device="EPYC", driver=driver_of(RIG, "cpu"))])
    assert store(tmp_path).ratios(RIG) == {"cpu": 1.1}
    assert store(tmp_path).ratios(replace(RIG, os="Windows")) == {}


def test_the_highest_ratio_counts(tmp_path: Path) -> None:
    longer = replace(KEPT, ratio=1.3, conditions=replace(CONDITIONS, context=8192))
    store(tmp_path).keep([longer, KEPT])
    assert store(tmp_path).ratios(RIG)[CARD.id] == 1.3


def test_the_same_conditions_take_the_place_of_the_older(tmp_path: Path) -> None:
    store(tmp_path).keep([replace(KEPT, ratio=1.5)])
    store(tmp_path).keep([KEPT])
    assert store(tmp_path).entries() == (KEPT,)


@pytest.mark.parametrize(
    "other",
    [replace(KEPT, driver="590.2"), replace(KEPT, version=0), replace(KEPT, device="RTX 3060")],
    ids=["driver", "version", "name"],
)
def test_other_drivers_versions_and_cards_are_not_relied_on(other: Kept, tmp_path: Path) -> None:
    store(tmp_path).keep([other])
    assert store(tmp_path).ratios(RIG) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"entries": 3}', '{"entries": [{"device": 1}]}'])
def test_a_damaged_file_is_told_and_written_anew(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    lines: list[str] = []
    assert store(tmp_path, lines).ratios(RIG) == {}
    assert len(lines) == 1
    assert FILE in lines[0]
    store(tmp_path).keep([KEPT])
    assert store(tmp_path).entries() == (KEPT,)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_old_entries_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_ratios, "MOST", 2)
    many = [replace(KEPT, conditions=replace(CONDITIONS, context=i)) for i in range(3)]
    store(tmp_path).keep(many)
    assert store(tmp_path).entries() == tuple(many[1:])


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    lines: list[str] = []
    store(tmp_path / "file", lines).keep([KEPT])
    assert "cannot be kept" in lines[-1]


def test_no_folder_keeps_nothing() -> None:
    store(None).keep([KEPT])
    assert store(None).entries() == ()


def test_of_several_ranks_the_worst_is_kept() -> None:
    higher = replace(KEPT, ratio=1.2)
    other = replace(KEPT, device="RTX 3060")
    assert worst([KEPT, higher, other]) == (higher, other)
