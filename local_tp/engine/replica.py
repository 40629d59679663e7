"""One replica at work: its crew, its scheduler, and the thread that schedules, runs and accounts.

Requests come in and are cancelled from any thread; everything else happens on the replica's own.
Knows nothing of text before it is tokens. Where the plan has several stages, as many steps are
under way at once, so that no stage waits while another works.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from local_tp.core import FinishReason, Plan, Step
from local_tp.engine.pages import PagePool
from local_tp.engine.request import Request
from local_tp.engine.scheduler import Scheduler
from local_tp.errors import LocalTpError
from local_tp.runtime.crew import Crew, WorkerHealth
from local_tp.runtime.wire import Measured


@dataclass(frozen=True, slots=True)
class _Cancel:
    request: int


@dataclass(frozen=True, slots=True)
class _Wake:
    pass


@dataclass(frozen=True, slots=True)
class _Close:
    pass


class Replica:
    """`on_failure` is told, on the replica's thread, what ended its workers."""

    def __init__(self, plan: Plan, crew: Crew, on_failure: Callable[[LocalTpError], None]) -> None:
        self._crew = crew
        self._scheduler = Scheduler(
            PagePool(plan.pages, plan.page_size), plan.goal.streams, plan.goal.chunk
        )
        self._chunk, self._depth = plan.goal.chunk, plan.stages
        self._requests: dict[int, Request] = {}
        self._under_way: deque[Step] = deque()
        self._inbox: queue.SimpleQueue[Request | _Cancel | _Wake | _Close] = queue.SimpleQueue()
        self._failure: LocalTpError | None = None
        self._on_failure = on_failure
        self.closed = False
        self._door = threading.Lock()  # what was let in before closing is in the inbox by then
        crew.watch(lambda: self._inbox.put(_Wake()))
        self._inbox.put(_Wake())  # a worker may have died before anybody watched
        self._thread = threading.Thread(target=self._work, name="replica", daemon=True)
        self._thread.start()

    @property
    def measured(self) -> dict[int, Measured]:
        """What each rank really took."""
        return self._crew.measured

    @property
    def failure(self) -> LocalTpError | None:
        """What ended the workers, as soon as it is known."""
        return self._failure or self._crew.failure()

    @property
    def waiting_tokens(self) -> int:
        """How much stands before a new request: unread tokens, and a chunk for each request.

        A chunk, because reading and writing take turns.
        """
        return sum(
            request.length - request.computed + self._chunk
            for request in list(self._requests.values())
        )

    @property
    def running(self) -> int:
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        return len(self._scheduler.waiting)

    def workers(self) -> tuple[WorkerHealth, ...]:
        """Every worker, dead or alive."""
        return self._crew.health()

    def submit(self, request: Request) -> None:
        """Take a request in. Raises `LocalTpError` once the replica is closed."""
        with self._door:
            if self.closed:
                raise LocalTpError("the engine is closed: start local-tp again")
            self._requests[request.id] = request
            self._inbox.put(request)

    def cancel(self, request: int) -> None:
        """End a request, if it is one of this replica's."""
        self._inbox.put(_Cancel(request))

    def stop(self) -> None:
        """Begin to close, without waiting: safe in a signal handler."""
        self._inbox.put(_Close())

    def join(self) -> None:
        """Wait until every request has ended and every worker is gone."""
        self._thread.join()

    def _work(self) -> None:
        while not self.closed:
            try:
                self._receive(block=not self._busy)
                if not self.closed and self._failure is None:
                    self._step()
            except LocalTpError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001  a fault of ours must not leave readers waiting
                traceback.print_exc()
                self._fail(LocalTpError(f"the engine failed ({error!r}): start local-tp again"))
        self._crew.close()
        self._receive(block=False)

    @property
    def _busy(self) -> bool:
        return bool(self._requests) and self._failure is None

    def _receive(self, block: bool) -> None:
        """Take in what was submitted, cancelled or reported since the last step."""
        while True:
            try:
                item = self._inbox.get(block)
            except queue.Empty:
                return
            block = False
            if isinstance(item, Request):
                self._accept(item)
            elif isinstance(item, _Cancel) and item.request in self._requests:
                self._finish(self._requests[item.request], "cancelled")
            elif isinstance(item, _Close):
                with self._door:
                    self.closed = True
                for request in list(self._requests.values()):
                    self._finish(request, "cancelled")
            elif isinstance(item, _Wake) and self._failure is None and not self.closed:
                self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._crew.failure()
        if failure is not None:
            raise failure

    def _accept(self, request: Request) -> None:
        """Schedule a request, unless a failure or the end has come before it."""
        if request.id not in self._requests:
            return
        if self._failure is not None:
            self._finish(request, "error", self._failure)
        else:
            self._scheduler.add(request)

    def _step(self) -> None:
        """Send what can be sent and account for the oldest step under way."""
        while len(self._under_way) < self._depth:
            step = self._scheduler.next(idle=not self._under_way)
            if step is None:
                break
            self._crew.send(step)
            self._under_way.append(step)
        if not self._under_way:
            return
        done = self._under_way.popleft()
        for row, result in zip(done.rows, self._crew.receive(), strict=True):
            request = self._requests.get(row.request)  # none where it was cancelled meanwhile
            ended = None if request is None else request.take(row, result)
            if request is not None and ended is not None:
                self._finish(request, ended)

    def _finish(
        self, request: Request, reason: FinishReason, error: LocalTpError | None = None
    ) -> None:
        self._scheduler.remove(request)
        del self._requests[request.id]
        request.generation.finish(reason, error)

    def _fail(self, error: LocalTpError) -> None:
        """End every request by `error`; the crew is gone and its memory free."""
        self._failure = error
        self._under_way.clear()
        self._on_failure(error)
        self._crew.close()
        for request in list(self._requests.values()):
            self._finish(request, "error", error)
