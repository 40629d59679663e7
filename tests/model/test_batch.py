"""A step's tensors, by hand for small pages: places, positions, masks and wanted rows."""

from __future__ import annotations

import torch

from local_tp.core import Row, Sampling, Step
from local_tp.model.batch import make_batch, wanted_rows

PAGE = 4
PLACES = torch.arange(64, dtype=torch.float32)[:, None, None].expand(-1, 1, 2)
GREEDY = Sampling()


def test_tokens_slots_and_positions_of_two_requests() -> None:
    step = Step(
        1,
        (
            Row(7, tokens=(10, 11, 12), position=3, pages=(5, 2), sampling=GREEDY),
            Row(8, tokens=(20,), position=8, pages=(6, 7, 8), sampling=GREEDY),
        ),
    )
    batch = make_batch(step, PAGE, PLACES, -PLACES)
    assert batch.tokens.tolist() == [10, 11, 12, 20]
    assert batch.slots.tolist() == [5 * PAGE + 3, 2 * PAGE, 2 * PAGE + 1, 8 * PAGE]
    assert batch.cosine[:, 0, 0].tolist() == [3, 4, 5, 8]
    assert batch.sine[:, 0, 0].tolist() == [-3, -4, -5, -8]
    first, second = batch.segments
    assert (first.start, first.stop, first.length) == (0, 3, 6)
    assert first.index is not None
    assert first.index.tolist() == [20, 21, 22, 23, 8, 9]
    assert first.mask is not None
    assert first.mask.tolist() == [
        [True, True, True, True, False, False],
        [True, True, True, True, True, False],
        [True, True, True, True, True, True],
    ]
    assert (second.start, second.stop, second.length) == (3, 4, 9)
    assert second.index is None  # its pages lie one after another
    assert second.first == 6 * PAGE
    assert second.mask is None


def test_a_prompt_from_its_start_needs_no_mask() -> None:
    (segment,) = make_batch(
        Step(0, (Row(1, tokens=(1, 2, 3), position=0, pages=(0,)),)), PAGE, PLACES, PLACES
    ).segments
    assert segment.mask is None
    assert segment.length == 3


def test_pages_beyond_the_last_token_are_not_looked_at() -> None:
    row = Row(1, tokens=(1, 2), position=2, pages=(3, 9, 1))
    (segment,) = make_batch(Step(0, (row,)), PAGE, PLACES, PLACES).segments
    assert segment.index is None
    assert (segment.first, segment.length) == (3 * PAGE, 4)


def test_places_read_the_same_from_consecutive_and_scattered_pages() -> None:
    cache = torch.randn(2, 64, 3, generator=torch.Generator().manual_seed(0))
    row = Row(1, tokens=(1,), position=9, pages=(9, 4, 6))
    (segment,) = make_batch(Step(0, (row,)), PAGE, PLACES, PLACES).segments
    expected = torch.cat((cache[:, 36:40], cache[:, 16:20], cache[:, 24:26]), 1)
    assert torch.equal(segment.places(cache), expected)


def test_wanted_rows() -> None:
    rows = (
        Row(1, tokens=(1, 2, 3), position=0, pages=(0,)),  # a chunk of a prompt: nothing
        Row(2, tokens=(4, 5), position=0, pages=(1,), sampling=GREEDY),  # its last
        Row(3, tokens=(6, 7), position=0, pages=(2,), targets=(7, 8), score=0),  # all
        Row(4, tokens=(8, 9), position=0, pages=(3,), logits=True),  # its last
    )
    assert wanted_rows(Step(0, rows)) == [4, 5, 6, 8]
    batch = make_batch(Step(0, rows), PAGE, PLACES, PLACES)
    assert batch.wanted is not None
    assert batch.wanted.tolist() == [4, 5, 6, 8]


def test_where_every_row_is_wanted_none_are_picked() -> None:
    row = Row(1, tokens=(1,), position=0, pages=(0,), sampling=GREEDY)
    assert make_batch(Step(0, (row, row)), PAGE, PLACES, PLACES).wanted is None


def test_where_no_row_is_wanted_an_empty_choice_remains() -> None:
    row = Row(1, tokens=(1,), position=0, pages=(0,))
    wanted = make_batch(Step(0, (row,)), PAGE, PLACES, PLACES).wanted
    assert wanted is not None
    assert wanted.tolist() == []
