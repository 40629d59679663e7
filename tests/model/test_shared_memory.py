"""Exchange between real processes over shared memory, checked by value, and its time limit."""

from __future__ import annotations

import re

import pytest
import torch
from rank_process import (
    GATHER_ROWS,
    LINK_ROWS,
    SIZES,
    TURNS,
    WIDTHS,
    Received,
    part,
    turn_part,
)
from torch import Tensor

from local_tp.errors import CollectiveTimeout
from local_tp.model.region import Region
from local_tp.model.shared_memory import SharedGroup, SharedLink


def test_sums_are_taken_in_rank_order_and_equal_on_every_rank(received: list[Received]) -> None:
    ranks = range(len(received))
    for i, shape in enumerate(SIZES):
        expected = torch.zeros(shape)
        for rank in ranks:
            expected += part(rank, *shape)
        for rank in ranks:
            assert torch.equal(received[rank]["sums"][i], expected), (rank, shape)


def test_two_hundred_turns_never_mix(received: list[Received]) -> None:
    ranks = range(len(received))
    expected = torch.stack(
        [sum((turn_part(rank, turn) for rank in ranks), torch.zeros(97)) for turn in range(TURNS)]
    )
    for rank in ranks:
        assert torch.equal(received[rank]["turns"], expected)


def test_uneven_and_empty_shares_are_gathered_on_the_leader(received: list[Received]) -> None:
    widths = WIDTHS[len(received)]
    for i, rows in enumerate(GATHER_ROWS):
        expected = torch.cat([part(rank, rows, width) for rank, width in enumerate(widths)], 1)
        found = received[0]["gathered"][i]
        assert found is not None
        assert torch.equal(found, expected)
        assert all(other["gathered"][i] is None for other in received[1:])


def test_every_receiver_of_a_link_gets_what_was_sent(received: list[Received]) -> None:
    for receiver in received[1:]:
        for rows, found in zip(LINK_ROWS, receiver["passed"], strict=True):
            assert torch.equal(found, part(9, rows, 64))


def test_gloo_finds_the_same(received: list[Received]) -> None:
    for rank in received:
        for ours, theirs in zip(rank["sums"], rank["torch_sums"], strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)


# -------------------------------------------------------------------------- a peer that is gone

REGION = Region(0, 2, 2, 64)
LINE = Region(0, 3, 1, 64)


def memory(region: Region) -> memoryview:
    return memoryview(bytearray(region.stop))


def assert_says_what_to_do(error: CollectiveTimeout, member: int) -> None:
    assert re.fullmatch(
        rf"a worker waited \d+ s for rank {member} of its stage: "
        "another program may hold the processor; close it or use fewer ranks",
        str(error),
    )


@pytest.mark.parametrize("spins", [1, 4000])
def test_a_group_does_not_wait_for_ever(spins: int) -> None:
    group = SharedGroup(memory(REGION), REGION, 0, (4, 4), spins, timeout=0.1)
    with pytest.raises(CollectiveTimeout) as caught:
        group.all_reduce(torch.ones(8))
    assert_says_what_to_do(caught.value, 1)


def test_gathering_does_not_wait_for_ever() -> None:
    group = SharedGroup(memory(REGION), REGION, 1, (4, 4), 1, timeout=0.1)
    with pytest.raises(CollectiveTimeout) as caught:
        group.gather_columns(torch.ones(2, 4), 8)
    assert_says_what_to_do(caught.value, 0)


def test_a_receiver_does_not_wait_for_ever() -> None:
    link = SharedLink(memory(LINE), LINE, 1, 16, 1, timeout=0.1)
    with pytest.raises(CollectiveTimeout):
        link.receive(1)


def test_a_sender_is_two_parts_ahead_at_most() -> None:
    """A receiver that has taken nothing would lose what a third part overwrote."""
    shared = memory(LINE)
    link = SharedLink(shared, LINE, 0, 16, 1, timeout=0.1)
    sent: list[Tensor] = [torch.full((1, 16), float(i)) for i in range(3)]
    link.send(sent[0])
    link.send(sent[1])
    with pytest.raises(CollectiveTimeout) as caught:
        link.send(sent[2])
    assert_says_what_to_do(caught.value, 1)
    receiver = SharedLink(shared, LINE, 1, 16, 1, timeout=0.1)
    assert torch.equal(torch.cat([receiver.receive(1), receiver.receive(1)]), torch.cat(sent[:2]))


def test_regions_of_one_memory_do_not_touch() -> None:
    assert REGION.flags_stop == 2 * 128
    assert [REGION.slot(0), REGION.slot(1)] == [256, 256 + 2 * 64 * 4]
    assert REGION.stop == 256 + 2 * 2 * 64 * 4
    after = Region(REGION.stop, 3, 1, 64)
    assert after.slot(0) == REGION.stop + 3 * 128
