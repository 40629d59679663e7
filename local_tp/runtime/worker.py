"""A worker process: one rank of a plan, from its first message to its last.

Started as `python -m local_tp.runtime.worker`, it speaks on its standard streams and knows nothing
of requests, text or HTTP. It leaves at once when its parent does, whatever it is doing: the reader
thread sees the stream end.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import sys
import threading
import traceback
from typing import BinaryIO

from local_tp.errors import Cancelled
from local_tp.runtime import wire

ORPHANED = 3  # exit code of a worker whose parent is gone


class Commands:
    """Messages from the parent, read ahead by a thread of their own."""

    def __init__(self, stream: BinaryIO) -> None:
        self._queue: queue.SimpleQueue[wire.Command] = queue.SimpleQueue()
        self._stream = stream
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def next(self) -> wire.Command:
        return self._queue.get()

    def raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise Cancelled("the parent stopped this worker")

    def _read(self) -> None:
        while True:
            message = wire.read(self._stream)
            if message is None:
                os._exit(ORPHANED)
            assert isinstance(message, wire.Command)
            if isinstance(message, wire.Stop):
                self._stopped.set()
            self._queue.put(message)


def main() -> int:
    """Serve the parent until it says stop."""
    faulthandler.enable()
    answers = _take_stdout()
    commands = Commands(os.fdopen(os.dup(0), "rb"))
    try:
        _serve(commands, answers)
    except Cancelled:
        return 0
    except BrokenPipeError:
        return ORPHANED
    except BaseException as error:  # noqa: BLE001  the boundary: whatever it is, the parent is told
        summary = traceback.format_exception_only(error)[-1].strip()
        unreadable = isinstance(error, OSError) and error.filename is not None
        wire.write(answers, wire.Fault(summary, traceback.format_exc(), unreadable))
        traceback.print_exc()
        return 1
    return 0


def _serve(commands: Commands, answers: BinaryIO) -> None:
    from local_tp.runtime.worker_rank import Rank

    load = commands.next()
    if isinstance(load, wire.Stop):
        return
    assert isinstance(load, wire.Load)
    rank = Rank(load)
    for progress in rank.load():
        commands.raise_if_stopped()
        wire.write(answers, wire.Loaded(progress.done, progress.total))
    wire.write(answers, wire.Ready(rank.measured))
    while not isinstance(command := commands.next(), wire.Stop):
        if isinstance(command, wire.Measure):
            wire.write(answers, wire.Taken(rank.held()))
            continue
        assert isinstance(command, wire.Run)
        results = rank.run(command.step)
        if results is not None:
            wire.write(answers, wire.Done(command.step.number, results))


def _take_stdout() -> BinaryIO:
    """Standard output becomes ours alone; whatever a library prints goes to the log instead."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


if __name__ == "__main__":
    sys.exit(main())
