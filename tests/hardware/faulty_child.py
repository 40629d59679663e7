"""Measuring children that misbehave in the ways that drivers do. Run as a script, with a way.

Each takes its request as a real child does, so that only its behaviour is false.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(way: str, *arguments: str) -> int:
    request = json.loads(sys.stdin.readline())
    if way == "deaf":  # never gets as far as its work
        time.sleep(600)
    print(json.dumps({"what": "ready"}), flush=True)
    if way == "hang":
        print(json.dumps({"what": "peer", "value": 1.0}), flush=True)
        if arguments:
            Path(arguments[0]).write_text(str(os.getpid()))
        time.sleep(600)
    if way == "crash":
        print("all is well so far\nCUDA error: an illegal memory access", file=sys.stderr)
        return 7
    if way == "die":
        os.kill(os.getpid(), 11)
    if way == "babble":
        print("NCCL version 2.30")
    if way == "one-hangs" and request["rank"] == 1:
        time.sleep(600)
    if way == "one-crashes":
        if request["rank"] == 1:
            raise ValueError("rank 1 has had enough")
        time.sleep(600)
    if way == "copy":  # with two rates that tell the directions apart
        for line in (
            {"what": "peer", "value": 1.0},
            {"what": "wrong", "detail": "forth", "correct": True},
            {"what": "forth", "value": 30e9},
            {"what": "wrong", "detail": "back", "correct": True},
            {"what": "back", "value": 20e9},
        ):
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
