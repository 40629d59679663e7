"""The `local-tp` command as a person runs it: a process of its own, and what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """`seconds` is wall time; `left` are the processes that outlived the command."""

    code: int
    out: str
    err: str
    seconds: float
    left: list[str]

    def refusal(self) -> str:
        """The one line by which it refused what was asked for."""
        assert self.code == 2, self
        assert self.out == "", self
        assert self.left == [], self
        (line,) = self.err.splitlines()
        return line


def local_tp(*arguments: str | Path, **environment: str) -> Ran:
    """Run one command to its end."""
    mark = uuid.uuid4().hex
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "local_tp", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | environment | {"LOCAL_TP_TEST_MARK": mark},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    seconds = time.monotonic() - started
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return Ran(done.returncode, out, err, seconds, marked(mark))


def marked(mark: str) -> list[str]:
    """Command lines of the processes that inherited `mark`, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("LOCAL_TP_TEST_MARK") == mark:
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):  # another user's, or just gone
            continue
    return found
