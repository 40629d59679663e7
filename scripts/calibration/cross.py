"""Errors on rows that the fit did not see: by folds, and source by source.

A fold's constants come from the other folds alone; a class that only the held-back rows have falls
back on the general constants, as for a measurement that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from calibration.fit import fitted
from calibration.prediction import Counted
from calibration.report import Errors, Point, errors_of, points_of
from local_tp.rates import Rates

FOLDS = 5


def cross_validated(cases: Sequence[Counted], unfitted: Mapping[str, Rates]) -> dict[str, Errors]:
    """Errors of held-back rows, for folds of rows and for whole sources."""
    found: dict[str, Errors] = {}
    groups: tuple[tuple[str, Callable[[Counted], str]], ...] = (
        (f"{FOLDS} folds of rows", lambda c: str(_fold(c.case.id))),
        ("one source left out", lambda c: c.case.source),
    )
    for name, group in groups:
        points = list(_held_back(cases, unfitted, group))
        for figure in ("decode", "prefill"):
            if errors := errors_of(p for p in points if p.figure == figure):
                found[f"{name}, {figure}"] = errors
    return found


def _held_back(
    cases: Sequence[Counted], unfitted: Mapping[str, Rates], group: Callable[[Counted], str]
) -> list[Point]:
    points: list[Point] = []
    for name in sorted({group(case) for case in cases}):
        held = [case for case in cases if group(case) == name]
        rest = [case for case in cases if group(case) != name]
        points += points_of(held, fitted(rest, unfitted))
    return points


def _fold(name: str) -> int:
    """The same fold for a row on every machine."""
    return sha256(name.encode()).digest()[0] % FOLDS
