"""Filling: every place of the cache once, in steps that may run; figures laid side by side."""

from __future__ import annotations

import pytest

from local_tp.core import EMPTY, Device, Goal, Placement, Plan, Rig, RowResult, Step
from local_tp.engine.fill import (
    compared,
    fill,
    filling_steps,
    kept_figures,
    loaded_bytes,
    memory_table,
    pages_of,
)
from local_tp.prediction import Memory
from local_tp.runtime.wire import Held, Measured

PREDICTED = Memory(weights=100, kv=40, state=10, activations=20, logits=5, context=50, slack=25)
PLACE = Placement(0, "cpu", 0, *[EMPTY] * 5, memory=PREDICTED)


def plan(context: int, streams: int, chunk: int, page: int = 4) -> Plan:
    pages = -(-context // page) * streams
    goal = Goal(context=context, streams=streams, chunk=chunk)
    return Plan("m", goal, (PLACE,), "none", context, page, pages)


class Recorder:
    """A crew that takes down what it is to run."""

    def __init__(self, peak: int) -> None:
        self.measured = {0: Measured(100, 100, 1.0, Held(now=155))}
        self.steps: list[Step] = []
        self.peak = peak

    def send(self, step: Step) -> None:
        self.steps.append(step)

    def receive(self) -> tuple[RowResult, ...]:
        return ()

    def measure(self) -> dict[int, Held]:
        return {0: Held(now=200, peak=self.peak)}


@pytest.mark.parametrize(
    ("context", "streams", "chunk"),
    [(100, 1, 32), (101, 3, 32), (17, 2, 8), (16, 2, 64), (2, 2, 8), (1, 1, 8), (40, 33, 16)],
)
def test_every_place_is_written_once_and_in_order(context: int, streams: int, chunk: int) -> None:
    made = plan(context, streams, chunk)
    written: dict[int, list[int]] = {stream: [] for stream in range(streams)}
    for number, step in enumerate(filling_steps(made, 50), 1):
        assert step.number == number
        assert len(step.rows) <= 31
        assert sum(len(row.tokens) for row in step.rows) <= max(chunk, 31)
        assert all(len(row.tokens) <= chunk for row in step.rows)
        for row in step.rows:
            assert row.position == len(written[row.request])
            assert row.stream == row.request
            assert all(0 <= token < 50 for token in row.tokens)
            for at in range(row.position, row.position + len(row.tokens)):
                written[row.request].append(row.pages[at // 4] * 4 + at % 4)
    assert all(len(places) == context for places in written.values())
    every = [place for places in written.values() for place in places]
    assert len(set(every)) == context * streams
    assert all(0 <= place < made.pages * 4 for place in every)


def test_pages_lie_apart_where_streams_share_the_cache() -> None:
    assert pages_of(plan(16, 1, 8), 0) == (0, 1, 2, 3)
    assert pages_of(plan(16, 3, 8), 1) == (1, 4, 7, 10)


def test_the_widest_steps_are_among_them() -> None:
    """Sixteen rows with all logits, and every stream in one decode step that samples."""
    steps = list(filling_steps(plan(64, 3, 32), 50))
    scored = [row for step in steps for row in step.rows if row.score is not None]
    assert [len(row.targets) for row in scored] == [16] * 3
    assert [row.sampling is not None for row in steps[-1].rows] == [True] * 3


def test_figures_stand_side_by_side() -> None:
    crew = Recorder(peak=300)
    told: list[tuple[int, int]] = []
    (rank,) = fill(crew, plan(40, 2, 16), 50, lambda done, total: told.append((done, total)))  # type: ignore[arg-type]
    assert told[-1] == (80, 80)
    assert len(crew.steps) == len(told)
    assert (rank.predicted_loaded, rank.loaded) == (150, 155)
    assert (rank.predicted, rank.peak) == (250, 300)
    assert rank.ratio == (300 - 150) / 100


def test_what_is_kept_names_the_device_and_its_conditions() -> None:
    device = Device("cpu", "cpu", "EPYC", 8, 8)
    made = plan(40, 2, 16)
    ranks = compared(made, {0: Measured(1, 1, 1.0)}, {0: Held(peak=300)})
    (kept,) = kept_figures(Rig((device,), os="Linux"), [device], made, ranks)
    assert (kept.device, kept.driver, kept.predicted, kept.measured) == ("EPYC", "Linux", 250, 300)
    assert kept.ratio == 1.5
    assert (kept.conditions.model, kept.conditions.context, kept.conditions.chunk) == ("m", 40, 16)


def test_what_is_held_after_loading() -> None:
    assert loaded_bytes(PREDICTED, processor=True) == 150
    assert loaded_bytes(PREDICTED, processor=False) == 200


def test_a_peak_below_the_weights_is_no_negative_ratio() -> None:
    (rank,) = compared(plan(40, 2, 16), {0: Measured(1, 1, 1.0)}, {0: Held(peak=90)})
    assert rank.ratio == 0.0


def test_the_table_is_in_mebibytes() -> None:
    mib = 1 << 20
    big = Placement(0, "cpu", 0, *[EMPTY] * 5, memory=Memory(weights=900 * mib, context=100 * mib))
    made = Plan("m", Goal(), (big,), "none", 8, 4, 8)
    held = {0: Held(peak=1250 * mib)}
    ranks = compared(made, {0: Measured(1, 1, 1.0, Held(now=990 * mib))}, held)
    line = memory_table(ranks).splitlines()[1].split()
    assert line == ["0", "cpu", "990", "1,000", "1,250", "1,000", "-250", "(-20.0%)"]
