"""From options to goal, sampling and threads, and the refusals on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from local_tp.cli import options
from local_tp.cli.main import build_parser
from local_tp.cli.saved import Saved
from local_tp.core import Device, Goal, Placement, Rig, Sampling, Span
from local_tp.errors import DeviceError, InputError

MIB = 1024 * 1024
CPU = Device("cpu", "cpu", "Ryzen", 64 << 30, 60 << 30)
CARD = Device("0000:01:00.0", "cuda", "RTX 3090", 24 << 30, 23 << 30)
RIG = Rig((CARD, CPU), cores=8)
BARE = Rig((CPU,), cores=8)


def goal_of(*arguments: str, rig: Rig = RIG, saved: Saved | None = None) -> Goal:
    return options.goal(build_parser().parse_args(["plan", *arguments]), rig, saved)


def sampling_of(*arguments: str) -> Sampling:
    return options.sampling(build_parser().parse_args(["complete", "--prompt", "x", *arguments]))


# ------------------------------------------------------------------------------------ goal


def test_without_options_the_planner_is_left_free() -> None:
    assert goal_of() == Goal()
    assert goal_of(rig=BARE) == Goal()


def test_every_option_reaches_the_goal() -> None:
    asked = "--devices cuda:0,cpu --split layer --format bfloat16 --context 900 --streams 2"
    more = "--kv-format float16 --objective quality --floor 12.5 --offload stream --shares 3,1.5"
    reserve = "--reserve cuda:0=512 --reserve cpu=2048"
    assert goal_of(*asked.split(), *more.split(), *reserve.split()) == Goal(
        devices=(CARD.id, "cpu"),
        split="layer",
        context=900,
        streams=2,
        dtype="bfloat16",
        kv_format="float16",
        reserve={CARD.id: 512 * MIB, "cpu": 2048 * MIB},
        objective="quality",
        floor=12.5,
        offload="stream",
        shares=(3.0, 1.5),
    )


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ("--format as-stored", "auto"),
        ("--format stored", "stored"),
        ("--dtype float32", "float32"),
        ("--dtype auto", "auto"),
    ],
)
def test_formats_by_the_names_that_people_use(arguments: str, dtype: str) -> None:
    assert goal_of(*arguments.split()).dtype == dtype


def test_a_single_split_of_a_processor_takes_it_once() -> None:
    assert goal_of("--split", "single", rig=BARE) == Goal(devices=("cpu",), split="single")
    assert goal_of("--split", "single") == Goal(split="single"), "the planner chooses the card"


SAVED = Saved(
    Path("plan.json"),
    (Placement(0, CARD.id, 0, *[Span(0, 2)] * 5),),
    Goal(context=700, streams=9, dtype="float16", objective="serve", reserve={"cpu": MIB}),
    (),
    {},
)


def test_options_go_before_what_a_saved_plan_says() -> None:
    assert goal_of(saved=SAVED) == replace(SAVED.goal, devices=(CARD.id,))
    changed = goal_of("--streams", "2", "--reserve", "cuda:0=1", saved=SAVED)
    assert (changed.streams, changed.context) == (2, 700)
    assert changed.reserve == {"cpu": MIB, CARD.id: MIB}


def test_a_saved_context_is_no_limit_where_the_longest_is_asked_for() -> None:
    assert goal_of("--objective", "context", saved=SAVED).context is None
    assert goal_of("--objective", "context", "--context", "50", saved=SAVED).context == 50
    again = replace(SAVED, goal=replace(SAVED.goal, objective="context"))
    assert goal_of(saved=again).context == 700


@pytest.mark.parametrize(
    ("command", "streams"), [("chat", 1), ("complete --prompt x", 1), ("serve", 4), ("plan", 4)]
)
def test_one_person_needs_one_stream(command: str, streams: int) -> None:
    parse = build_parser().parse_args
    assert options.goal(parse(command.split()), RIG).streams == streams
    assert options.goal(parse([*command.split(), "--streams", "3"]), RIG).streams == 3
    assert options.goal(parse(command.split()), RIG, SAVED).streams == 9


@pytest.mark.parametrize("other", ["--devices=cpu", "--split=layer", "--shares=1"])
def test_a_saved_plan_says_its_devices_itself(other: str) -> None:
    with pytest.raises(InputError, match="leave out the others"):
        goal_of(other, saved=SAVED)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("--devices tpu", DeviceError, "'tpu'"),
        ("--devices cpu,", DeviceError, "''"),
        ("--streams 0", InputError, "--streams 0"),
        ("--floor 5", InputError, "--objective quality"),
        ("--objective quality --floor 0", InputError, "--floor 0"),
        ("--objective quality --floor nan", InputError, "--floor nan"),
        ("--shares 1,2", InputError, "--devices"),
        ("--devices cuda:0,cpu --shares 1", InputError, "1 numbers for 2 devices"),
        ("--devices cpu --shares x", InputError, "--shares x"),
        ("--devices cpu --shares 0", InputError, "--shares 0"),
        ("--devices cpu,cpu --shares=1,-1", InputError, "--shares 1,-1"),
        ("--devices cpu --shares nan", InputError, "--shares nan"),
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
