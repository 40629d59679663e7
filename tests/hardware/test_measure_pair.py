"""Copies that fail in the ways that drivers were seen to, against the check; and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from local_tp.hardware.measuring.child_pair import POISON, Copy, measure, pattern, plain_copy
from local_tp.hardware.measuring.killable import Ending, Outcome
from local_tp.hardware.measuring.measured_rig import verdict
from local_tp.hardware.measuring.readings import READY, PairRequest, Place, Reading

NBYTES = 256 * 1024
HERE = Place("cpu", "cpu")
HOST = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_threads() -> Iterator[None]:
    """What a child sets for itself is put back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def examined(copy: Copy, both: bool = False) -> list[Reading]:
    readings = list(measure(PairRequest(HERE, HERE, NBYTES, both), copy))
    assert readings[0].what == READY
    return readings[1:]


def zeros(destination: Tensor, source: Tensor) -> None:
    destination.zero_()


def nothing(destination: Tensor, source: Tensor) -> None:
    """Reports success and moves no byte."""


def last_word_missing(destination: Tensor, source: Tensor) -> None:
    destination[:-1].copy_(source[:-1])


def shifted(destination: Tensor, source: Tensor) -> None:
    destination.copy_(source.roll(4096))


def one_bit(destination: Tensor, source: Tensor) -> None:
    destination.copy_(source)
    destination[len(source) // 2] ^= 1


class Stale:
    """Delivers what was sent the time before, as a cache that is not flushed does."""

    def __init__(self) -> None:
        self.before: dict[int, Tensor] = {}

    def __call__(self, destination: Tensor, source: Tensor) -> None:
        destination.copy_(self.before.get(len(source), source))
        self.before[len(source)] = source.clone()


class OneWay:
    """Every second size-and-direction works: the copies back are those that fail."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, destination: Tensor, source: Tensor) -> None:
        self.calls += 1
        back = source.dtype == torch.int64 and int(source[0]) in BACK
        destination.zero_() if back else destination.copy_(source)


BACK = {int(pattern(8, 2 * turn + 1, HOST)[0]) for turn in range(3)}


@pytest.mark.parametrize(
    "copy",
    [zeros, nothing, last_word_missing, shifted, one_bit, Stale()],
    ids=["zeros", "nothing", "last word missing", "shifted", "one bit", "stale"],
)
def test_wrong_data_is_found_in_both_directions(copy: Copy) -> None:
    wrong = [r for r in examined(copy) if r.what == "wrong"]
    assert {r.detail for r in wrong if not r.correct} == {"forth", "back"}
    assert verdict(Outcome(tuple(wrong), "done")) == "broken"


def test_one_direction_can_be_broken_alone() -> None:
    wrong = [r for r in examined(OneWay()) if r.what == "wrong"]
    assert [(r.detail, r.correct) for r in wrong] == [
        ("forth", True),
        ("forth", True),
        ("back", False),
        ("back", False),
    ]


def test_every_wrong_word_is_counted() -> None:
    words = {64 * 1024 // 8, NBYTES // 8}
    counts = {r.value for r in examined(zeros) if r.what == "wrong"}
    # A pattern holds at most one zero, so all words of three rounds are wrong but for those.
    assert all(any(3 * n - 3 <= count <= 3 * n for n in words) for count in counts)


def test_a_sound_copy_gets_rates_and_a_latency() -> None:
    readings = examined(plain_copy, both=True)
    assert [r.what for r in readings] == [
        "peer",
        *("wrong", "wrong", "forth"),
        *("wrong", "wrong", "back"),
        "latency",
        "both",
    ]
    assert all(r.value > 0 for r in readings if r.what != "wrong")
    assert verdict(Outcome(tuple(readings), "done")) == "good"


def test_the_pattern_depends_on_place_and_round_and_is_never_the_poison() -> None:
    first, second = pattern(NBYTES, 0, HOST), pattern(NBYTES, 1, HOST)
    assert len(set(first.tolist())) == len(first)
    assert not bool((first == second).any())
    assert not any(bool((pattern(NBYTES, turn, HOST) == POISON).any()) for turn in range(8))


RIGHT = (Reading("wrong", 0, "forth", 8, True), Reading("wrong", 0, "back", 8, True))
WRONG = Reading("wrong", 5, "back", 8, False)


@pytest.mark.parametrize(
    ("readings", "ending", "expected"),
    [
        ((Reading("peer", 1.0), *RIGHT), "done", "good"),
        ((Reading("peer", 0.0), *RIGHT), "done", "unsupported"),
        ((Reading("peer", 0.0), RIGHT[0], WRONG), "done", "broken"),
        ((Reading("peer", 1.0), WRONG), "hangs", "broken"),
        ((Reading("peer", 1.0), RIGHT[0]), "hangs", "hangs"),
        ((Reading("peer", 1.0), *RIGHT), "failed", "failed"),
        ((Reading("peer", 1.0), RIGHT[0]), "done", "failed"),
        ((), "done", "failed"),
    ],
)
def test_verdicts(readings: tuple[Reading, ...], ending: Ending, expected: str) -> None:
    assert verdict(Outcome(readings, ending)) == expected
