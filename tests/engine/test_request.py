"""A request alone: which rows it asks for, and how it accounts for what comes back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from small_engine import END, ids, request

from local_tp.core import FinishReason, RowResult, Sampling, TokenLogprob
from local_tp.engine.generation import Completion
from local_tp.engine.request import Request

PAGES = (3, 1)


def feed(one: Request, tokens: Sequence[int | None]) -> FinishReason | None:
    """Rows until it ends or `tokens` are used up; each row's result is the next token."""
    ended = None
    for token in tokens:
        assert ended is None, "it went on after its end"
        ended = one.take(one.next_row(100, PAGES), RowResult(one.id, token))
    return ended


def said(one: Request) -> Completion:
    one.generation.finish("stop")
    return one.generation.result()


def test_a_prompt_goes_in_chunks_and_only_the_last_is_sampled() -> None:
    one = request(7, range(10), max_tokens=3)
    rows = []
    for token in (None, None, 42, 43):
        rows.append(one.next_row(4, PAGES))
        one.take(rows[-1], RowResult(7, token))
    assert [row.tokens for row in rows] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9), (42,)]
    assert [row.position for row in rows] == [0, 4, 8, 10]
    assert [row.sampling is not None for row in rows] == [False, False, True, True]
    assert {(row.request, row.pages, row.prompt_length) for row in rows} == {(7, PAGES, 10)}
    assert one.output == [42, 43]
    assert one.decoding
    assert one.hoped == 13


def test_the_last_chunk_may_be_a_whole_one() -> None:
    one = request(1, range(8), max_tokens=3)
    one.take(one.next_row(4, PAGES), RowResult(1))
    assert not one.decoding
    row = one.next_row(4, PAGES)
    assert row.tokens == (4, 5, 6, 7)
    assert row.sampling is not None


def test_history_comes_with_the_rows_that_a_penalty_needs_it_for() -> None:
    one = request(1, range(6), max_tokens=3, sampling=Sampling(repetition_penalty=1.1))
    histories = []
    for token in (None, 9, 8):
        row = one.next_row(4, PAGES)
        histories.append(row.history)
        one.take(row, RowResult(1, token))
    assert histories == [(), (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 9)]
    assert request(2, range(6), max_tokens=3).next_row(9, PAGES).history == ()


def test_every_prompt_token_but_the_first_is_a_target_once() -> None:
    one = request(1, range(9), max_tokens=2, scored=5)
    rows = []
    for token in (None, None, 42, 43):
        rows.append(one.next_row(4, PAGES))
        scores = tuple(TokenLogprob(t, -float(t)) for t in rows[-1].targets)
        one.take(rows[-1], RowResult(1, token, scores=scores))
    assert [row.targets for row in rows] == [(1, 2, 3, 4), (5, 6, 7, 8), (), ()]
    assert [row.score for row in rows] == [5, 5, 5, None]
    assert [s.token for s in one.generation.prompt_scores] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("computed_rows", [1, 2, 3, 4])
def test_after_losing_its_pages_it_asks_for_everything_again(computed_rows: int) -> None:
    one = request(1, range(9), max_tokens=4, scored=0)

    def advance(token: int | None) -> None:
        row = one.next_row(4, PAGES)
        scores = tuple(TokenLogprob(t, 0.0) for t in row.targets)
        one.take(row, RowResult(1, token if row.sampling else None, scores=scores))

    for token in range(40, 40 + computed_rows):
        advance(token)
    one.forget()
    assert not one.decoding
    row = one.next_row(100, PAGES)
    assert row.tokens == (*range(9), *one.output)
    assert row.position == 0
    assert (row.score is None) is bool(one.output), "scored again only if not scored to the end"
    one.forget()  # that row was only looked at
    while len(one.output) < 3:
        advance(50)
    assert [s.token for s in one.generation.prompt_scores] == list(range(1, 9))


def test_no_tokens_wanted_ends_with_the_prompt() -> None:
    one = request(1, range(5), max_tokens=0)
    first = one.next_row(4, PAGES)
    assert one.take(first, RowResult(1)) is None
    last = one.next_row(4, PAGES)
    assert last.sampling is None
    assert one.take(last, RowResult(1)) == "length"
    assert said(one).tokens == ()


@pytest.mark.parametrize(
    ("answer", "stop", "limit", "reason", "text", "used"),
    [
        ("hello", (), 5, "length", "hello", 5),
        ("hello", (), 9, None, "hello", 5),
        ("hello", ("ll",), 9, "stop", "he", 4),
        ("hello", ("lo",), 5, "stop", "hel", 5),  # completed by the last token allowed
        ("help!", ("lo", "elf"), 5, "length", "help!", 5),  # held back, then let go
        ("hell", ("lo",), 4, "length", "hell", 4),  # still held back at the limit
        ("aab", ("aab", "ab"), 9, "stop", "", 3),  # the match that begins first
    ],
)
def test_ends_of_text(
    answer: str, stop: tuple[str, ...], limit: int, reason: str | None, text: str, used: int
) -> None:
    one = request(1, [0], limit, stop=stop)
    tokens = ids(answer)[:used]
    assert feed(one, tokens) == reason
    whole = said(one)
    assert whole.text == text
    assert list(whole.tokens) == tokens


def test_half_a_character_waits_and_is_replaced_at_the_end() -> None:
    euro = ids("€")
    assert len(euro) == 3
    one = request(1, [0], max_tokens=5)
    assert feed(one, [*euro, *euro[:2]]) == "length"
    one.generation.finish("length")
    chunks = list(one.generation)
    assert [chunk.text for chunk in chunks] == ["", "", "€", "", "�"]
    assert [chunk.tokens for chunk in chunks] == [(t,) for t in (*euro, *euro[:2])]


def test_a_stop_token_ends_the_turn_counts_and_says_nothing() -> None:
    one = request(1, [0], max_tokens=9, stop=("lo",))
    assert feed(one, [*ids("hel"), END]) == "stop"
    whole = said(one)
    assert whole.text == "hel", "what was held back for a stop string is let go"
    assert whole.tokens == (*ids("hel"), END)
    assert whole.timings.completion_tokens == 4


def test_logprobs_come_with_their_tokens_but_not_for_the_stop_token() -> None:
    one = request(1, [0], max_tokens=9, sampling=Sampling(logprobs=1))
    found = [TokenLogprob(t, -float(t), ((t, 0.0),)) for t in (*ids("hi"), END)]
    for logprob in found:
        one.take(one.next_row(9, PAGES), RowResult(1, logprob.token, logprob))
    one.generation.finish("stop")
    chunks = list(one.generation)
    assert [chunk.logprobs for chunk in chunks] == [(found[0],), (found[1],), ()]
