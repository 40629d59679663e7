"""Which pages of the KV cache belong to which request.

Pages are handed out on demand. Any set of pages is correct; a run of consecutive ones is read in
place instead of gathered, so a new request starts where it has room to grow and where it leaves the
others theirs. Invariant: free pages plus owned pages are all pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class PagePool:
    """`count` pages of `size` tokens."""

    count: int
    size: int
    _owner: list[int | None] = field(init=False)
    _pages: dict[int, list[int]] = field(default_factory=dict)
    _hoped: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._owner = [None] * self.count

    @property
    def free(self) -> int:
        return self._owner.count(None)

    def needed(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.size)

    def pages(self, request: int) -> tuple[int, ...]:
        """A request's pages, in the order of its tokens."""
        return tuple(self._pages.get(request, ()))

    def grow(self, request: int, tokens: int, hoped: int) -> bool:
        """Give `request` room for `tokens` in all; it may come to need `hoped`.

        False, and nothing changes, if there are too few free pages.
        """
        mine = self._pages.get(request, [])
        missing = self.needed(tokens) - len(mine)
        if missing > self.free:
            return False
        if missing > 0:
            self._hoped[request] = max(self.needed(hoped), len(mine) + missing)
            for _ in range(missing):
                self._take(request)
        return True

    def release(self, request: int) -> None:
        """Give all pages of `request` back."""
        for page in self._pages.pop(request, ()):
            self._owner[page] = None
        self._hoped.pop(request, None)

    def check(self) -> None:
        """Every page is free or owned once."""
        owned = sorted(page for pages in self._pages.values() for page in pages)
        assert len(owned) == len(set(owned))
        assert len(owned) + self.free == self.count

    def _take(self, request: int) -> None:
        mine = self._pages.setdefault(request, [])
        page = mine[-1] + 1 if mine else self._start(self._hoped[request])
        if page >= self.count or self._owner[page] is not None:
            page = self._owner.index(None)
        self._owner[page] = request
        mine.append(page)

    def _start(self, hoped: int) -> int:
        """The first page of a new run: room for `hoped` behind every neighbour's own hopes.

        Failing that, the middle of the longest gap.
        """
        best, longest = self._owner.index(None), 0
        for first, stop in self._gaps():
            start = first + self._growth_before(first)
            if stop - start >= hoped:
                return start
            if stop - first > longest:
                longest = stop - first
                best = first if first == 0 else first + longest // 2
        return best

    def _growth_before(self, page: int) -> int:
        """How many more pages the request that ends before `page` may come to need."""
        owner = self._owner[page - 1] if page else None
        return 0 if owner is None else self._hoped[owner] - len(self._pages[owner])

    def _gaps(self) -> list[tuple[int, int]]:
        gaps, at = [], 0
        while at < self.count:
            if self._owner[at] is None:
                stop = at
                while stop < self.count and self._owner[stop] is None:
                    stop += 1
                gaps.append((at, stop))
                at = stop
            else:
                at += 1
        return gaps
