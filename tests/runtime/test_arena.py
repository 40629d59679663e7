"""The cut of shared memory: every exchange has its own bytes, and enough of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tp.core import EMPTY, Dimensions, Goal, ModelSpec, Placement, Plan, Span
from local_tp.model.region import FLAG_BYTES, FLOAT_BYTES, SLOTS, Region
from local_tp.runtime.arena import SharedMemory, cut_arena
from local_tp.traits import Traits

HIDDEN, VOCAB, CHUNK = 24, 4096, 16
SPEC = ModelSpec("t", "", "llama", Dimensions(9, HIDDEN, 1, 1, 1, 1, VOCAB, 64), Traits(), {})


def plan_of(stages: list[list[int]], chunk: int = CHUNK) -> Plan:
    """A plan with these vocabulary rows a rank, stage by stage."""
    widths = [(stage, width) for stage, ranks in enumerate(stages) for width in ranks]
    placements = tuple(
        Placement(rank, "cpu", stage, Span(stage, stage + 1), EMPTY, EMPTY, EMPTY, Span(0, width))
        for rank, (stage, width) in enumerate(widths)
    )
    return Plan("t", Goal(chunk=chunk), placements, "shared-memory", 64, 16, 4)


def flag_bytes(region: Region) -> range:
    return range(region.offset, region.offset + region.members * FLAG_BYTES)


def slot_bytes(region: Region, index: int) -> range:
    start = region.slot(index)
    return range(start, start + region.lanes * region.capacity * FLOAT_BYTES)


STAGES = st.lists(st.lists(st.integers(0, VOCAB), min_size=1, max_size=4), min_size=1, max_size=5)


@given(STAGES, st.integers(1, 64))
def test_no_two_exchanges_share_a_byte_and_all_lie_in_the_file(
    stages: list[list[int]], chunk: int
) -> None:
    arena = cut_arena(SPEC, plan_of(stages, chunk))
    regions = arena.groups + arena.links
    parts = [flag_bytes(region) for region in regions]
    parts += [slot_bytes(region, index) for region in regions for index in range(SLOTS)]
    parts.sort(key=lambda part: part.start)
    assert parts[0].start == 0
    assert all(before.stop <= after.start for before, after in pairwise(parts))
    assert parts[-1].stop == arena.nbytes


@given(STAGES, st.integers(1, 64))
def test_each_region_holds_what_its_ranks_exchange(stages: list[list[int]], chunk: int) -> None:
    arena = cut_arena(SPEC, plan_of(stages, chunk))
    assert len(arena.groups) == len(stages)
    assert len(arena.links) == len(stages) - 1
    for region, widths in zip(arena.groups, stages, strict=True):
        assert (region.members, region.lanes) == (len(widths), len(widths))
        assert region.capacity == max(chunk * HIDDEN, *widths)
    for region, widths in zip(arena.links, stages[1:], strict=True):
        assert (region.members, region.lanes) == (1 + len(widths), 1), "a sender, all receivers"
        assert region.capacity == chunk * HIDDEN


@pytest.mark.parametrize("nbytes", [1, 5000, 1 << 20])
def test_the_memory_is_of_its_size_all_zero_and_gone_when_removed(nbytes: int) -> None:
    memories = [SharedMemory(nbytes), SharedMemory(nbytes)]
    paths = [Path(memory.path) for memory in memories]
    try:
        assert paths[0] != paths[1]
        for path in paths:
            assert path.read_bytes() == bytes(nbytes)
        paths[0].write_bytes(b"x")
        assert paths[1].read_bytes() == bytes(nbytes)
    finally:
        for memory in memories:
            memory.remove()
    assert not any(path.exists() for path in paths)
    memories[0].remove()
