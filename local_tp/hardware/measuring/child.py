"""The child's side of a measurement: a request on standard input, readings on standard output.

Knows nothing of what is measured and nothing of torch. A child leaves at once when its parent
does: the input stream ends. Whatever a library prints goes to the error stream.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import BinaryIO, TypeVar

from local_tp import codec
from local_tp.hardware.measuring.readings import Reading

R = TypeVar("R")

ORPHANED = 3  # exit code of a child whose parent is gone


def serve(kind: type[R], measure: Callable[[R], Iterable[Reading]]) -> int:
    """Answer the one request, a reading a line; returns the exit code.

    `measure` yields its readings as they come, so that a later hang or crash loses none of them.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb")
    request = codec.decode(kind, json.loads(requests.readline()))
    threading.Thread(target=_leave_with_parent, args=(requests,), daemon=True).start()
    try:
        for reading in measure(request):
            print(json.dumps(codec.encode(reading)), file=answers, flush=True)
    except BrokenPipeError:
        return ORPHANED
    except Exception as error:  # noqa: BLE001  the boundary: whatever it is, the parent is told
        traceback.print_exc()
        first = str(error).strip().partition("\n")[0]
        print(f"{type(error).__name__}: {first}", file=sys.stderr, flush=True)
        return 1
    return 0


def _leave_with_parent(requests: BinaryIO) -> None:
    while requests.read(1):
        pass
    os._exit(ORPHANED)
