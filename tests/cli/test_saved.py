"""Plans in files: written and read again, by hand too, and refused on another machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from explained import CARD, MIB, RIG, TENSOR, A, B, placement, plan

from local_tp import codec
from local_tp.cli.saved import Saved, devices_of, plan_json, read_saved
from local_tp.core import Goal, Plan, Rig
from local_tp.errors import DeviceError, PlanError
from local_tp.plan.explain import explain


def saved(tmp_path: Path, data: object) -> Saved:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    return read_saved(path)


def whole(made: Plan = TENSOR) -> dict[str, Any]:
    return plan_json(made, explain(RIG, made))


def test_a_plan_is_its_own_json_with_the_explanation_beside_it() -> None:
    data = whole()
    explanation = data.pop("explanation")
    assert codec.decode(Plan, data) == TENSOR
    assert explanation["headline"] == explain(RIG, TENSOR).headline
    assert [device["label"] for device in explanation["devices"]] == ["cuda:0", "cuda:1", "cpu"]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made = plan(placement(0, A), copies=((B,),), split="single")
    found = saved(tmp_path, whole(made))
    assert found.placements == made.placements
    assert found.copies == ((B,),)
    assert found.goal == replace(made.goal, context=made.context)
    assert found.names == {A: "RTX 3090", B: "RTX 3060", "cpu": "Ryzen"}


def test_placements_by_hand_are_a_list_or_an_object(tmp_path: Path) -> None:
    entries = codec.encode(TENSOR.placements)
    for data in (entries, {"placements": entries}, {"model": "x", "placements": entries}):
        found = saved(tmp_path, data)
        assert found.placements == TENSOR.placements
        assert (found.goal, found.copies, dict(found.names)) == (Goal(), (), {})


def test_devices_are_those_of_this_machine(tmp_path: Path) -> None:
    entries = codec.encode(TENSOR.placements)
    entries[1]["device"] = "cuda:1"
    assert [d.id for d in devices_of(saved(tmp_path, entries), RIG)] == [A, B]
    copied = plan(placement(0, A), copies=((B,),), split="single")
    assert [d.id for d in devices_of(saved(tmp_path, whole(copied)), RIG)] == [A, B]


def test_a_plan_for_another_machine_is_refused_with_the_device(tmp_path: Path) -> None:
    found = saved(tmp_path, whole())
    one = Rig((CARD, RIG.devices[-1]))
    with pytest.raises(DeviceError, match=rf"plan.json is for another machine: .* '{B}'"):
        devices_of(found, one)
    other = replace(RIG, devices=(CARD, replace(CARD, id=B), RIG.devices[-1]))
    with pytest.raises(DeviceError) as refused:
        devices_of(found, other)
    assert f"was made for RTX 3060 at {B}, where this machine has RTX 3090" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layres": [0, 1]}, "'layres': did you mean layers?"),
        ({"layers": [0, 1, 2]}, "layers: expected [start, stop]"),
        ({"rank": "one"}, "rank: expected a whole number"),
    ],
)
def test_a_wrong_field_is_named_with_its_entry(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    first, second = codec.encode(TENSOR.placements)
    with pytest.raises(PlanError) as refused:
        saved(tmp_path, [first, second | change])
    assert "plan.json: placements[1]: " in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"goal": {"contxt": 1}}, "goal: Goal: unknown key 'contxt': did you mean context?"),
        ({"goal": {"streams": "2"}}, "goal: streams: expected a whole number"),
        ({"context": "long"}, "context: tokens: expected a whole number"),
        ({"copies": [1]}, "copies[0]: expected a list"),
    ],
)
def test_a_wrong_part_of_the_plan_is_named(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    with pytest.raises(PlanError) as refused:
        saved(tmp_path, whole() | change)
    assert words in str(refused.value)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    first = codec.encode(TENSOR.placements)[0]
    del first["vocab"]
    with pytest.raises(PlanError, match=r"placements\[0\]: vocab: missing"):
        saved(tmp_path, [first])


@pytest.mark.parametrize("explanation", [3, [], {"devices": 3}, {"devices": [1, {"device": 2}]}])
def test_an_explanation_that_is_none_says_nothing(tmp_path: Path, explanation: object) -> None:
    assert dict(saved(tmp_path, whole() | {"explanation": explanation}).names) == {}


@pytest.mark.parametrize("data", [[], {}, {"placements": []}, {"model": "x"}, 3, "x", None])
def test_what_holds_no_placements(tmp_path: Path, data: object) -> None:
    with pytest.raises(PlanError, match="holds no placements"):
        saved(tmp_path, data)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"[" * 200_000], ids=["empty", "open", "bytes", "deep"]
)
def test_what_is_not_json(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text)
    with pytest.raises(PlanError, match="is not JSON") as refused:
        read_saved(path)
    assert len(str(refused.value).splitlines()) == 1


def test_a_placement_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(PlanError, match="cannot read the placement"):
            read_saved(path)


def test_what_a_person_keeps_free_is_kept(tmp_path: Path) -> None:
    assert saved(tmp_path, whole()).goal.reserve == {A: 1024 * MIB}
