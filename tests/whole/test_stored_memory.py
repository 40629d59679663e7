"""Predicted against measured memory of weights held as stored: Q3_K, for want of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import planned

from local_tp.checkpoint.read import read
from local_tp.core import Dimensions, Goal, Split
from local_tp.engine.fill import fill
from local_tp.runtime.crew import start_crew
from scripts.random_model import write_gguf

MIB = 1 << 20
SHAPE = Dimensions(4, 2048, 32, 8, 64, 8192, 24000, 32768)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random") / "stored.gguf"
    write_gguf(path, SHAPE, "Q3_K")
    return path


@pytest.mark.parametrize(
    ("split", "ranks", "context", "streams"),
    [("single", 1, 640, 2), ("tensor", 2, 600, 1), ("layer", 2, 600, 1)],
)
def test_the_peak_is_as_predicted(
    file: Path, split: Split, ranks: int, context: int, streams: int
) -> None:
    """Within 3 % or 32 MiB; the same of so small a process differs by 24 MiB from run to run."""
    checkpoint = read(file)
    goal = Goal(split=split, context=context, streams=streams, chunk=256)
    plan, devices = planned(checkpoint, ranks, goal)
    crew = start_crew(checkpoint.spec, plan, devices, 1, lambda done, total: None)
    try:
        held = [crew.measured[p.rank].weights for p in plan.placements]
        found = fill(crew, plan, checkpoint.spec.dimensions.vocab)
    finally:
        crew.close()
    assert held == [p.memory.weights for p in plan.placements]
    if split != "tensor":
        matrices = sum(i.nbytes for i in checkpoint.spec.tensors.values() if len(i.shape) == 2)
        assert matrices <= sum(held) < matrices + MIB, "not a block more than the file has"
    for rank in found:
        over = rank.predicted - rank.peak
        assert over <= max(0.03 * rank.peak, 32 * MIB), rank
        assert over >= -24 * MIB, rank
        assert abs(rank.predicted_loaded - rank.loaded) <= max(0.03 * rank.loaded, 32 * MIB), rank
