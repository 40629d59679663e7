"""A conversation in a terminal: Ctrl+C stops an answer, and the workers live on."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path


class Terminal:
    """A command on a terminal of its own, as a person would have it."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0
        )
        os.close(theirs)
        self._seen = ""

    def wait_for(self, text: str, seconds: float = 60.0) -> str:
        """All that was shown up to and including `text`, which is then behind us."""
        deadline = time.monotonic() + seconds
        while text not in self._seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come, only {self._seen!r}"
            if select.select([self._ours], [], [], left)[0]:
                self._seen += os.read(self._ours, 4096).decode(errors="replace")
        before, _, self._seen = self._seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """What Ctrl+C does: every process of the terminal's foreground group is signalled."""
        os.killpg(self._process.pid, signal.SIGINT)

    def leave(self) -> int:
        code = self._process.wait(20)
        os.close(self._ours)
        return code


def test_an_interrupted_answer_is_followed_by_another(starter: Path) -> None:
    terminal = Terminal(
        sys.executable,
        "-m",
        "local_tp",
        "chat",
        "--model",
        str(starter),
        "--devices",
        "cpu,cpu",
        "--temperature",
        "0",
        "--context",
        "1024",
    )
    terminal.wait_for("Ctrl+D leaves.")
    terminal.wait_for("> ")
    terminal.type("Write a long story about a fox.\n")
    terminal.wait_for("fox.\r\n")
    terminal.wait_for(" ")
    terminal.interrupt()
    terminal.wait_for("> ")
    terminal.type("What is the capital of France?\n")
    terminal.wait_for("France?\r\n")
    assert terminal.wait_for("> ").strip("> \r\n")
    terminal.type("\x04")
    assert terminal.leave() == 0
