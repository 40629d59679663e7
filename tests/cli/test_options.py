"""From options to goal, sampling, ranks and threads, and the refusals on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local_tp import codec
from local_tp.cli import options
from local_tp.cli.main import build_parser
from local_tp.core import Device, Goal, Placement, Rig, Sampling, Span
from local_tp.errors import DeviceError, InputError, PlanError

MIB = 1024 * 1024
CPU = Device("cpu", "cpu", "Ryzen", 64 << 30, 60 << 30)
CARD = Device("0000:01:00.0", "cuda", "RTX 3090", 24 << 30, 23 << 30)
RIG = Rig((CARD, CPU), cores=8)
BARE = Rig((CPU,), cores=8)
PLACES = (
    Placement(0, "cpu", 0, Span(0, 2), Span(0, 2), Span(0, 1), Span(0, 9), Span(0, 9), 1, 2, 3),
    Placement(1, "cpu", 1, Span(2, 4), Span(0, 2), Span(0, 1), Span(0, 9), Span(0, 9)),
)


def goal_of(*arguments: str, rig: Rig = RIG) -> Goal:
    parsed = build_parser().parse_args(["plan", *arguments])
    return options.goal(parsed, options.devices(parsed, rig, options.placements(parsed)), rig)


def sampling_of(*arguments: str) -> Sampling:
    return options.sampling(build_parser().parse_args(["complete", "--prompt", "x", *arguments]))


# ------------------------------------------------------------------------------------ goal


def test_without_options_the_planner_is_left_free() -> None:
    assert goal_of() == Goal(devices=(CARD.id,))
    assert goal_of(rig=BARE) == Goal(devices=("cpu", "cpu"))


def test_every_option_reaches_the_goal() -> None:
    asked = "--devices cuda:0,cpu --split layer --dtype bfloat16 --context 900 --streams 2"
    reserve = "--reserve cuda:0=512 --reserve cpu=2048"
    assert goal_of(*asked.split(), *reserve.split()) == Goal(
        devices=(CARD.id, "cpu"),
        split="layer",
        context=900,
        streams=2,
        dtype="bfloat16",
        reserve={CARD.id: 512 * MIB, "cpu": 2048 * MIB},
    )


def test_a_single_split_takes_one_of_the_machines_own_devices() -> None:
    assert goal_of("--split", "single", rig=BARE).devices == ("cpu",)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("--devices tpu", DeviceError, "'tpu'"),
        ("--devices cpu,", DeviceError, "''"),
        ("--streams 0", InputError, "--streams 0"),
        ("--reserve cpu", InputError, "DEVICE=MiB"),
        ("--reserve cpu=", InputError, "DEVICE=MiB"),
        ("--reserve cpu=-5", InputError, "DEVICE=MiB"),
        ("--reserve cpu=2GiB", InputError, "DEVICE=MiB"),
        ("--reserve cpu=1.5", InputError, "DEVICE=MiB"),
        ("--reserve cpu=²", InputError, "DEVICE=MiB"),
        ("--reserve 512", InputError, "DEVICE=MiB"),
        ("--reserve =512", DeviceError, "''"),
        ("--reserve tpu=512", DeviceError, "'tpu'"),
    ],
)
def test_goals_that_are_refused(arguments: str, kind: type[InputError], words: str) -> None:
    with pytest.raises(kind) as refused:
        goal_of(*arguments.split())
    assert words in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "ranks", "expected"),
    [((), 1, 7), ((), 2, 3), ((), 3, 2), ((), 16, 1), (("--threads", "3"), 2, 3)],
)
def test_threads_share_the_cores(arguments: tuple[str, ...], ranks: int, expected: int) -> None:
    parsed = build_parser().parse_args(["plan", *arguments])
    assert options.threads(parsed, (CPU,) * ranks, cores=8) == expected


def test_cards_take_no_threads_from_the_processor() -> None:
    parsed = build_parser().parse_args(["plan"])
    assert options.threads(parsed, (CARD, CARD, CPU), cores=8) == 7
    assert options.threads(parsed, (CARD,), cores=8) == 7


def test_two_cores_are_both_used_and_of_more_one_is_left_to_others() -> None:
    parsed = build_parser().parse_args(["plan"])
    assert [options.threads(parsed, (CPU,), cores) for cores in (1, 2, 3, 4)] == [1, 2, 2, 3]


def test_more_threads_than_any_machine_has_are_refused() -> None:
    parsed = build_parser().parse_args(["plan", "--threads", "100000"])
    with pytest.raises(InputError, match="--threads 100000 is out of range: give 1 to 256"):
        options.threads(parsed, (CPU,), cores=8)


def test_no_threads_compute_nothing() -> None:
    with pytest.raises(InputError, match="--threads 0"):
        options.threads(build_parser().parse_args(["plan", "--threads", "0"]), (CPU,), cores=8)


# -------------------------------------------------------------------------------- sampling


def test_sampling_as_it_is_without_options() -> None:
    assert sampling_of() == Sampling(temperature=0.7, top_p=0.95)


def test_every_sampling_option_arrives() -> None:
    asked = (
        "--temperature 0 --top-k 40 --top-p 0.5 --min-p 0.1 --repetition-penalty 1.2 "
        "--presence-penalty 0.3 --frequency-penalty -0.4 --seed 7"
    )
    assert sampling_of(*asked.split()) == Sampling(0.0, 40, 0.5, 0.1, 1.2, 0.3, -0.4, 7)


@pytest.mark.parametrize(
    "arguments",
    [
        "--temperature -1",
        "--temperature nan",
        "--temperature inf",
        "--top-k -1",
        "--top-p 1.5",
        "--min-p -0.1",
        "--repetition-penalty 0",
        "--presence-penalty 1e9",
        "--frequency-penalty nan",
        "--max-tokens -1",
        "--stop=",
    ],
)
def test_sampling_out_of_range(arguments: str) -> None:
    with pytest.raises(InputError) as refused:
        sampling_of(*arguments.split())
    assert arguments.split()[0].rstrip("=") in str(refused.value)


# ------------------------------------------------------------------------------- placement


def read(tmp_path: Path, data: object) -> tuple[Placement, ...] | None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    return options.placements(build_parser().parse_args(["plan", "--placement", str(path)]))


def test_a_placement_is_a_list_or_a_whole_plan(tmp_path: Path) -> None:
    encoded = codec.encode(PLACES)
    assert read(tmp_path, encoded) == PLACES
    assert read(tmp_path, {"model": "x", "placements": encoded}) == PLACES
    assert options.placements(build_parser().parse_args(["plan"])) is None


def test_a_placement_names_its_own_devices(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(codec.encode(PLACES)))
    assert goal_of("--placement", str(path)).devices == ("cpu", "cpu")
    for other in ("--devices=cpu", "--split=layer"):
        with pytest.raises(InputError, match="leave out the other two"):
            goal_of("--placement", str(path), other)


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
    first, second = codec.encode(PLACES)
    with pytest.raises(PlanError) as refused:
        read(tmp_path, [first, second | change])
    assert "plan.json: placements[1]: " in str(refused.value)
    assert words in str(refused.value)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    first = codec.encode(PLACES)[0]
    del first["vocab"]
    with pytest.raises(PlanError, match=r"placements\[0\]: vocab: missing"):
        read(tmp_path, [first])


@pytest.mark.parametrize("data", [[], {}, {"placements": []}, {"model": "x"}, 3, "x", None])
def test_what_holds_no_placements(tmp_path: Path, data: object) -> None:
    with pytest.raises(PlanError, match="holds no placements"):
        read(tmp_path, data)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"[" * 200_000], ids=["empty", "open", "bytes", "deep"]
)
def test_what_is_not_json(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text)
    with pytest.raises(PlanError, match="is not JSON") as refused:
        options.placements(build_parser().parse_args(["plan", "--placement", str(path)]))
    assert len(str(refused.value).splitlines()) == 1


def test_a_placement_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(PlanError, match="cannot read the placement"):
            options.placements(build_parser().parse_args(["plan", "--placement", str(path)]))
