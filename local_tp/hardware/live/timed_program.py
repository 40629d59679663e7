"""A program that is given a time, and killed where it takes longer.

Knows nothing of what it runs. Its output goes to unnamed files, not pipes: nobody waits for a
program that hangs inside the kernel and so outlives even its killing.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SECONDS_TO_DIE = 1.0


class Ended(NamedTuple):
    """`code` is None for a program that had to be killed, and negative for a signal."""

    code: int | None
    output: bytes
    last_words: str  # the last line of its error stream

    @property
    def how(self) -> str:
        """A failed program's end in words."""
        if self.code is None:
            return "it took too long"
        way = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{way}: {self.last_words or 'nothing was said'}"


def run_for(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a program to its end or for `seconds`. Raises `OSError` where it does not start."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=None if environment is None else dict(environment),
            **_without_window(),
        )
        try:
            code: int | None = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(SECONDS_TO_DIE)
        finally:
            if child.poll() is None:  # an interruption from the keyboard
                child.kill()
        output.seek(0)
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()
        return Ended(code, output.read(), words[-1].strip() if words else "")


def _without_window() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NO_WINDOW}
    return {}
