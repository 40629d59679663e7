"""A process that is one rank of one small model after another; started as a script.

Speaks as a worker does, with two differences that make a test session cheap: a `Load` ends the
model before it, and a fault is told and survived.
"""

from __future__ import annotations

import os
import traceback
from functools import cache

from local_tp.model.processor import learn_processor
from local_tp.runtime import wire, worker_rank


def answer(rank: worker_rank.Rank | None, command: wire.Command) -> wire.Answer:
    assert rank is not None
    if isinstance(command, wire.Load):
        for _ in rank.load():
            pass
        return wire.Ready(rank.measured)
    assert isinstance(command, wire.Run)
    return wire.Done(command.step.number, rank.run(command.step) or ())


def main() -> None:
    answers, commands = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    worker_rank.learn_processor = cache(learn_processor)  # type: ignore[attr-defined]
    rank = None
    while (command := wire.read(commands)) is not None:
        assert isinstance(command, wire.Load | wire.Run)
        try:
            if isinstance(command, wire.Load):
                rank = worker_rank.Rank(command)
            said = answer(rank, command)
        except Exception as error:  # noqa: BLE001  the boundary: whatever it is, the test is told
            said = wire.Fault(f"{type(error).__name__}: {error}", traceback.format_exc())
        wire.write(answers, said)


if __name__ == "__main__":
    main()
