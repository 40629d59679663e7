"""The group of one rank, and torch.distributed's group and link in real processes."""

from __future__ import annotations

import torch
from rank_process import GATHER_ROWS, HIDDEN, LINK_ROWS, SIZES, WIDTHS, Received, part

from local_tp.model.collectives import Solo


def test_a_rank_alone_exchanges_nothing() -> None:
    x = torch.ones(2, 3)
    assert Solo().all_reduce(x) is x
    assert Solo().gather_columns(x, 3) is x


def test_sums_over_gloo_are_equal_bit_for_bit_on_every_rank(received: list[Received]) -> None:
    for i, shape in enumerate(SIZES):
        expected = sum((part(rank, *shape) for rank in range(len(received))), torch.zeros(shape))
        for rank in received:
            assert torch.equal(rank["torch_sums"][i], received[0]["torch_sums"][i])
            assert torch.allclose(rank["torch_sums"][i], expected, rtol=0, atol=1e-6)


def test_shares_gathered_over_gloo_lose_their_padding(received: list[Received]) -> None:
    widths = WIDTHS[len(received)]
    for i, rows in enumerate(GATHER_ROWS):
        expected = torch.cat([part(rank, rows, width) for rank, width in enumerate(widths)], 1)
        found = received[0]["torch_gathered"][i]
        assert found is not None
        assert torch.equal(found, expected)
        assert all(other["torch_gathered"][i] is None for other in received[1:])


def test_a_gloo_link_passes_what_was_sent(received: list[Received]) -> None:
    for receiver in received[1:]:
        for rows, found in zip(LINK_ROWS, receiver["torch_passed"], strict=True):
            assert torch.equal(found, part(9, rows, HIDDEN))


def test_ranks_that_go_through_the_host_meet_those_that_need_not(received: list[Received]) -> None:
    for rank in received:
        assert all(map(torch.equal, rank["staged_sums"], rank["torch_sums"]))
        assert all(map(torch.equal, rank["staged_passed"], rank["torch_passed"]))
    pairs = zip(received[0]["staged_gathered"], received[0]["torch_gathered"], strict=True)
    for staged, direct in pairs:
        assert staged is not None
        assert direct is not None
        assert torch.equal(staged, direct)
