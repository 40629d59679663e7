"""Fields by value: what a person may leave in them, and what an engine gets."""

from __future__ import annotations

import pytest

from ui.controls import LARGEST_SEED, seed_of, within


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("7", 7),
        (" 0 ", 0),
        ("+12", 12),
        ("", None),
        (None, None),
        ("-1", None),
        ("-99", None),
        ("1.5", None),
        ("seven", None),
        ("9" * 30, LARGEST_SEED),
    ],
)
def test_seeds(text: str | None, seed: int | None) -> None:
    assert seed_of(text) == seed


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (-1, 0),
        (2.6, 3),
        (999, 200),
        (float("inf"), 200),
        (float("nan"), 40),
        (None, 40),
        ("", 40),
        ("12", 12),
        ([], 40),
        (10**400, 40),
    ],
)
def test_whole_numbers_within_bounds(value: object, number: int) -> None:
    got = within(value, 0, 200, 40, whole=True)
    assert (got, type(got)) == (number, int)


def test_fractions_stay() -> None:
    assert within(0.25, 0.0, 1.0, 0.5, whole=False) == 0.25
