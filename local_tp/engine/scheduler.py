"""Chooses what runs next: a chunk of one prompt, or the next token of every running request.

The two alternate and are never mixed, so that a row meets the same kernels in any company: a
request gets the text it would have had alone. A step may be asked for while others are under way:
it then has nothing that depends on their tokens. When pages run out the youngest request gives up
its own and waits; nothing is refused once it was accepted. Knows nothing of workers.
"""

from __future__ import annotations

from collections import deque

from local_tp.core import Row, Step
from local_tp.engine.pages import PagePool
from local_tp.engine.request import Request

DECODE_ROWS = 31  # one below where matrices are unpacked, which rounds differently


class Scheduler:
    """`streams` requests at most run at once; a prompt goes through in chunks of `chunk` tokens."""

    def __init__(self, pool: PagePool, streams: int, chunk: int) -> None:
        self.pool, self._streams, self._chunk = pool, streams, chunk
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._number = 0
        self._prefilled_last = False

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def next(self, idle: bool = True) -> Step | None:
        """The next step, or `None` if nobody wants anything now.

        `idle` is whether no step is under way: only then can a request lose its pages. All who
        write do so in one step, so there is one such step at a time.
        """
        self._admit()
        decoding = self._longest_unserved([r for r in self.running if r.decoding])
        if any(request.awaiting for request in self.running):
            decoding = []
        prefill = next((request for request in self.running if request.unread), None)
        chosen = decoding
        if prefill is not None and (not decoding or not self._prefilled_last):
            chosen = [prefill]
        if not idle and not all(map(self._has_room, chosen)):
            return None
        rows = self._rows(chosen)
        if not rows:
            return None
        self._prefilled_last = chosen is not decoding
        self._number += 1
        for row in rows:
            self._by_id(row.request).served = self._number
        return Step(self._number, rows)

    def _longest_unserved(self, decoding: list[Request]) -> list[Request]:
        """The rows of a decode step, oldest first; of too many those that waited longest."""
        if len(decoding) > DECODE_ROWS:
            decoding = sorted(decoding, key=lambda request: request.served)[:DECODE_ROWS]
            decoding.sort(key=self.running.index)
        return decoding

    def remove(self, request: Request) -> None:
        """Forget a request, finished or cancelled; its pages are free at once."""
        self.pool.release(request.id)
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def _by_id(self, id: int) -> Request:
        return next(request for request in self.running if request.id == id)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._streams:
            request = self.waiting[0]
            if not self._has_room(request):
                return
            taken = {running.stream for running in self.running}
            request.stream = next(n for n in range(self._streams) if n not in taken)
            self.running.append(self.waiting.popleft())

    def _rows(self, requests: list[Request]) -> tuple[Row, ...]:
        rows = []
        for request in requests:  # the oldest first: only who comes later can lose pages to it
            if request in self.running and self._make_room(request):
                rows.append(request.next_row(self._chunk, self.pool.pages(request.id)))
        return tuple(rows)

    def _make_room(self, request: Request) -> bool:
        """Pages for all tokens so far, at the cost of the youngest; false if that is itself."""
        while not self._has_room(request):
            youngest = self.running.pop()
            self.pool.release(youngest.id)
            youngest.forget()
            self.waiting.appendleft(youngest)
            if youngest is request:
                return False
        return True

    def _has_room(self, request: Request) -> bool:
        return self.pool.grow(request.id, request.length, request.hoped)
