"""How far off predictions of a kind of plan typically are: docs/planning.md's table by split.

Against published measurements of other programs. What the constants of this program are worth on
cards nobody measured yet, so that the figures are the best case there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from local_tp.core import DeviceKind, Plan


@dataclass(frozen=True, slots=True)
class Trust:
    """Of so many measurements of decode: parts by which half, and nine of ten, were off at most."""

    rows: int
    median: float
    most: float


SINGLE = Trust(103, 0.07, 0.23)
LAYER = Trust(54, 0.06, 0.31)
TENSOR = Trust(42, 0.11, 0.39)
PROCESSOR = Trust(23, 0.12, 0.52)


def trust_in(plan: Plan, kinds: set[DeviceKind]) -> tuple[str, Trust]:
    """The kind of plan in words, and how far off predictions of it are; by its devices' kinds.

    Stages of several ranks count as tensor split, which is the less certain of the two.
    """
    if "cpu" in kinds:
        return "plans with the processor", PROCESSOR
    if plan.split == "single":
        return "one card", SINGLE
    return ("layer split", LAYER) if plan.split == "layer" else ("tensor split", TENSOR)


def how_sure(plan: Plan, kinds: set[DeviceKind]) -> Iterator[str]:
    """By how much the predicted speed may be off, in a line."""
    if plan.prediction is None:
        return
    words, trust = trust_in(plan, kinds)
    line = (
        f"decode predictions of {words} are off by {trust.median:.0%} typically, one in ten by "
        f"more than {trust.most:.0%}, in {trust.rows} published measurements of other programs"
    )
    cards = kinds - {"cpu"}
    yield f"{line}; this program was not measured on cards yet" if cards else line
