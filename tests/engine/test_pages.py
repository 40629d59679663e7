"""The page pool against a model of itself, under any order of growing and releasing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from local_tp.engine.pages import PagePool

SIZE = 4


class Pool(RuleBasedStateMachine):
    """Keeps each request's tokens and hopes, and the room that was kept for it when it came.

    `orderly` holds from an empty pool until a request comes for which no room is left: as long as
    it does, every request must lie in one run, within its room.
    """

    @initialize(count=st.integers(1, 24))
    def start(self, count: int) -> None:
        self.pool = PagePool(count, SIZE)
        self.tokens: dict[int, int] = {}
        self.hoped: dict[int, int] = {}
        self.room: dict[int, range] = {}
        self.orderly = True
        self.next_id = 0

    @rule(tokens=st.integers(1, 40), more=st.integers(0, 40))
    def arrive(self, tokens: int, more: int) -> None:
        number, self.next_id = self.next_id, self.next_id + 1
        if not self._grow(number, tokens, tokens + more):
            return
        pages = self.pool.needed(tokens + more)
        if not self._has_room(pages):
            self.orderly = False
        elif self.orderly:
            first = self.pool.pages(number)[0]
            self.room[number] = range(first, first + pages)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.tokens)))
        tokens = data.draw(st.integers(1, self.hoped[number]))
        self._grow(number, tokens, self.hoped[number])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.tokens)))
        self.pool.release(number)
        for kept in (self.tokens, self.hoped, self.room):
            kept.pop(number, None)
        if not self.tokens:
            self.orderly = True

    @rule()
    def leave_without_having_come(self) -> None:
        free = self.pool.free
        self.pool.release(-1)
        assert self.pool.free == free

    @invariant()
    def every_page_is_free_or_owned_once(self) -> None:
        self.pool.check()
        owned = [page for number in self.tokens for page in self.pool.pages(number)]
        assert len(owned) == len(set(owned))
        assert set(owned) <= set(range(self.pool.count))
        assert len(owned) + self.pool.free == self.pool.count

    @invariant()
    def everybody_has_what_they_asked_for(self) -> None:
        for number, tokens in self.tokens.items():
            assert len(self.pool.pages(number)) == -(-tokens // SIZE)
        assert self.pool._hoped.keys() == self.tokens.keys(), "it remembers who left"

    @invariant()
    def runs_are_consecutive_where_there_was_room(self) -> None:
        if not self.orderly:
            return
        for number, room in self.room.items():
            pages = self.pool.pages(number)
            assert pages == tuple(room[: len(pages)])

    def _grow(self, number: int, tokens: int, hoped: int) -> bool:
        before = {one: self.pool.pages(one) for one in (*self.tokens, number)}
        missing = -(-tokens // SIZE) - len(before[number])
        fits = missing <= self.pool.free
        assert self.pool.grow(number, tokens, hoped) is fits
        if not fits:
            assert {one: self.pool.pages(one) for one in before} == before
            return False
        self.tokens[number] = max(tokens, self.tokens.get(number, 0))
        self.hoped[number] = hoped
        assert self.pool.pages(number)[: len(before[number])] == before[number]
        return True

    def _has_room(self, pages: int) -> bool:
        """Whether a run of `pages` lies within the pool and outside all rooms, by trying all."""
        taken = {page for room in self.room.values() for page in room}
        return any(
            taken.isdisjoint(range(first, first + pages))
            for first in range(self.pool.count - pages + 1)
        )


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_each_starts_behind_the_hopes_of_the_one_before() -> None:
    pool = PagePool(count=12, size=SIZE)
    assert pool.grow(1, tokens=5, hoped=16)
    assert pool.grow(2, tokens=1, hoped=12)
    assert pool.grow(1, tokens=16, hoped=16)
    assert pool.pages(1) == (0, 1, 2, 3)
    assert pool.pages(2) == (4,)
    assert pool.free == 7


def test_without_room_the_start_is_the_middle_of_the_longest_gap() -> None:
    pool = PagePool(count=10, size=SIZE)
    assert pool.grow(1, tokens=4, hoped=40)
    assert pool.grow(2, tokens=4, hoped=40)
    assert pool.pages(2) == (5,)
    assert pool.grow(2, tokens=28, hoped=40)
    assert pool.pages(2) == (5, 6, 7, 8, 9, 1, 2), "the pages in front serve when none follow"


def test_a_growth_that_fails_changes_nothing() -> None:
    pool = PagePool(count=4, size=SIZE)
    assert pool.grow(1, tokens=12, hoped=16)
    assert not pool.grow(2, tokens=5, hoped=5)
    assert pool.pages(2) == ()
    assert pool.free == 1
    assert not pool.grow(1, tokens=17, hoped=17)
    assert pool.pages(1) == (0, 1, 2)
    assert pool.grow(2, tokens=4, hoped=4)
    assert pool.pages(2) == (3,)


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_pages_needed(tokens: int, pages: int) -> None:
    assert PagePool(count=1, size=SIZE).needed(tokens) == pages


def test_check_finds_a_page_owned_twice() -> None:
    pool = PagePool(count=4, size=SIZE)
    pool.grow(1, tokens=4, hoped=4)
    pool._pages[2] = [0]
    with pytest.raises(AssertionError):
        pool.check()
