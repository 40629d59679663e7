"""A step's tensors, by hand for small pages and rings: places, positions, masks, wanted rows."""

from __future__ import annotations

import torch
from torch import Tensor

from local_tp.core import Row, Sampling, Step
from local_tp.model.batch import Places, Segment, make_batch, wanted_rows

PAGE = 4
NUMBERS = torch.arange(64, dtype=torch.float32)[:, None, None].expand(-1, 1, 2)
PLACES = Places(PAGE, ((NUMBERS, -NUMBERS),))
GREEDY = Sampling()


def test_tokens_slots_and_positions_of_two_requests() -> None:
    step = Step(
        1,
        (
            Row(7, tokens=(10, 11, 12), position=3, pages=(5, 2), sampling=GREEDY),
            Row(8, tokens=(20,), position=8, pages=(6, 7, 8), sampling=GREEDY),
        ),
    )
    batch = make_batch(step, PLACES)
    assert batch.tokens.tolist() == [10, 11, 12, 20]
    assert batch.full.slots.tolist() == [5 * PAGE + 3, 2 * PAGE, 2 * PAGE + 1, 8 * PAGE]
    assert batch.rotations[0][0][:, 0, 0].tolist() == [3, 4, 5, 8]
    assert batch.rotations[0][1][:, 0, 0].tolist() == [-3, -4, -5, -8]
    first, second = batch.full.segments
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
        Step(0, (Row(1, tokens=(1, 2, 3), position=0, pages=(0,)),)), PLACES
    ).full.segments
    assert segment.mask is None
    assert segment.length == 3


def test_pages_beyond_the_last_token_are_not_looked_at() -> None:
    row = Row(1, tokens=(1, 2), position=2, pages=(3, 9, 1))
    (segment,) = make_batch(Step(0, (row,)), PLACES).full.segments
    assert segment.index is None
    assert (segment.first, segment.length) == (3 * PAGE, 4)


def test_places_read_the_same_from_consecutive_and_scattered_pages() -> None:
    cache = torch.randn(2, 64, 3, generator=torch.Generator().manual_seed(0))
    row = Row(1, tokens=(1,), position=9, pages=(9, 4, 6))
    (segment,) = make_batch(Step(0, (row,)), PLACES).full.segments
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
    batch = make_batch(Step(0, rows), PLACES)
    assert batch.wanted is not None
    assert batch.wanted.tolist() == [4, 5, 6, 8]


def test_where_every_row_is_wanted_none_are_picked() -> None:
    row = Row(1, tokens=(1,), position=0, pages=(0,), sampling=GREEDY)
    assert make_batch(Step(0, (row, row)), PLACES).wanted is None


def test_where_no_row_is_wanted_an_empty_choice_remains() -> None:
    row = Row(1, tokens=(1,), position=0, pages=(0,))
    wanted = make_batch(Step(0, (row,)), PLACES).wanted
    assert wanted is not None
    assert wanted.tolist() == []


# ------------------------------------------------------------------------------------- rings

WINDOW, CHUNK, RING = 5, 6, 12  # a ring holds the window and the chunk being read
RINGS = Places(PAGE, ((NUMBERS, -NUMBERS),), window=WINDOW, ring=RING)


def read(stream: int, position: int, count: int) -> Row:
    """A row whose tokens tell stream and place; its pages are for layers without a window."""
    tokens = tuple(100 * stream + at for at in range(position, position + count))
    pages = tuple(range(16 * stream, 16 * stream + 16))
    return Row(stream, tokens, position, pages, stream=stream)


def seen(cache: Tensor, step: Step) -> list[list[list[int]]]:
    """Writes a step's tokens as attention does; what each token of each row then sees."""
    batch = make_batch(step, RINGS)
    cache.index_copy_(1, batch.sliding.slots, batch.tokens.view(1, -1, 1).expand(2, -1, 1))
    found = []
    for row, segment in zip(step.rows, batch.sliding.segments, strict=True):
        places = segment.places(cache)[0, :, 0]
        mask = segment.mask
        if mask is None:
            causal = torch.ones(len(row.tokens), len(places), dtype=torch.bool).tril_()
            mask = causal if len(row.tokens) > 1 else torch.ones_like(causal)
        found.append([places[line].tolist() for line in mask])
    return found


def window_of(row: Row) -> list[list[int]]:
    """What each token of a row must see: itself and the window before it, of its own text."""
    first = 100 * row.stream
    return [
        [first + at for at in range(max(0, last - WINDOW + 1), last + 1)]
        for last in range(row.position, row.position + len(row.tokens))
    ]


def test_each_token_sees_its_window_wherever_a_ring_begins_anew() -> None:
    """Chunks larger and smaller than the window, then tokens one by one, three times around."""
    cache = torch.full((2, 3 * RING, 1), -1)
    position = 0
    for count in (CHUNK, 1, 2, CHUNK, CHUNK, 1, 1, 1, 5, CHUNK, *[1] * 2 * RING):
        row = read(1, position, count)
        assert seen(cache, Step(0, (row,))) == [window_of(row)]
        position += count
    assert (cache[:, :RING] == -1).all()  # other streams' places are as they were
    assert (cache[:, 2 * RING :] == -1).all()


def test_streams_have_a_ring_each_in_any_order() -> None:
    cache = torch.full((2, 3 * RING, 1), -1)
    at = [0, 0, 0]
    for counts in ((CHUNK, 0, 0), (0, 3, 0), (1, 1, 0), (0, 0, CHUNK), *[(1, 1, 1)] * RING):
        rows = [read(stream, at[stream], n) for stream, n in enumerate(counts) if n]
        rows.reverse()
        assert seen(cache, Step(0, tuple(rows))) == [window_of(row) for row in rows]
        at = [place + n for place, n in zip(at, counts, strict=True)]


def test_the_next_text_of_a_stream_sees_nothing_of_the_last() -> None:
    cache = torch.full((2, RING, 1), 7777)
    for position in range(0, 3 * CHUNK, CHUNK):
        row = read(0, position, CHUNK)
        assert seen(cache, Step(0, (row,))) == [window_of(row)]


def test_a_ring_is_read_in_place_unless_it_begins_anew() -> None:
    def segment(position: int, count: int) -> Segment:
        return make_batch(Step(0, (read(1, position, count),)), RINGS).sliding.segments[0]

    within, around = segment(8, 2), segment(13, 1)
    assert (within.index, within.first, within.length) == (None, RING + 4, 6)
    assert around.index is not None
    assert around.index.tolist() == [RING + 9, RING + 10, RING + 11, RING, RING + 1]


def test_layers_without_a_window_keep_their_pages_beside_rings() -> None:
    batch = make_batch(Step(0, (read(1, 13, 1),)), RINGS)
    assert batch.full.slots.tolist() == [16 * PAGE + 13]
    assert batch.full.segments[0].length == 14
    assert batch.sliding.slots.tolist() == [RING + 1]


def test_windows_on_pages_see_what_rings_see() -> None:
    paged = Places(PAGE, ((NUMBERS, -NUMBERS),), window=WINDOW)
    for position, count in ((0, CHUNK), (0, WINDOW), (3, 4), (13, 1), (20, CHUNK)):
        step = Step(0, (read(1, position, count),))
        (ring,) = make_batch(step, RINGS).sliding.segments
        (page,) = make_batch(step, paged).sliding.segments
        assert (page.length, page.start, page.stop) == (ring.length, ring.start, ring.stop)
        assert (page.mask is None) == (ring.mask is None)
        assert page.mask is None or torch.equal(page.mask, ring.mask)  # type: ignore[arg-type]
