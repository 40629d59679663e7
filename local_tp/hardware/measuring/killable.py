"""Runs measuring child processes, several at once, and ends them by a deadline whatever they do.

Knows nothing of what they measure. None outlives `run`: not by a time limit, not by Ctrl-C, and not
the parent either, since a child sees its input end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

from local_tp import codec, settings
from local_tp.errors import InputError
from local_tp.hardware.measuring.readings import READY, Reading, Request

Ending = Literal["done", "hangs", "failed"]

POLL = 0.01
UNKILLABLE = 5.0  # seconds to wait for a killed process
GRACE = 0.5  # seconds for the other ranks to leave once one has failed


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and its limits in seconds: to get ready, and then from one reading to the next.

    Counting from the last reading tells a slow or busy machine from one that hangs.
    """

    command: tuple[str, ...]
    seconds: float
    start_seconds: float = 120.0  # a first import of torch from a slow disk takes a minute


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one child answered, and how it ended; `reason` is its last line where it failed."""

    readings: tuple[Reading, ...]
    ending: Ending
    reason: str = ""


def module(name: str) -> tuple[str, ...]:
    """The command that runs a module of this program."""
    return (sys.executable, "-m", name)


def run(
    program: Program,
    requests: Sequence[Request],
    environments: Sequence[dict[str, str]],
) -> list[Outcome]:
    """One child a request, all at once.

    A child that is ready but falls silent "hangs". One that dies, cannot be started or does
    not get ready "failed", and the others with it, for they would wait for it.
    """
    children: list[_Child] = []
    try:
        for request, environment in zip(requests, environments, strict=True):
            children.append(_Child(program, environment))
            children[-1].ask(request)  # apart: whatever interrupts it finds the child in the list
        _wait(children)
        return [child.outcome() for child in children]
    finally:
        for child in children:
            child.end()


def _wait(children: Sequence[_Child]) -> None:
    """Until all have ended, one is late, or one has failed and the others had time to follow."""
    failed_at: float | None = None
    while any(child.running for child in children):
        now = time.monotonic()
        if any(child.running and child.late(now) for child in children):
            return
        if failed_at is None and any(child.failed for child in children):
            failed_at = now
        if failed_at is not None and now > failed_at + GRACE:
            return
        time.sleep(POLL)


class _Child:
    """One running process and what it has said so far."""

    def __init__(self, program: Program, environment: dict[str, str]) -> None:
        self._program = program
        self._readings: list[Reading] = []
        self._heard: float | None = None  # when it was ready, or answered last
        self._nonsense = ""
        self._log = tempfile.TemporaryFile(prefix="local_tp-measure-")  # noqa: SIM115  `end` closes it
        try:
            self._process = subprocess.Popen(
                program.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                **_apart(),
            )
        except OSError:
            self._log.close()
            raise
        self._started = time.monotonic()
        self._reader: threading.Thread | None = None

    def ask(self, request: Request) -> None:
        """Say what to measure, and listen."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        reader.start()
        self._reader = reader
        with contextlib.suppress(BrokenPipeError):  # it is gone already, which `outcome` tells
            self._process.stdin.write(json.dumps(codec.encode(request)).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def failed(self) -> bool:
        return self._process.poll() not in (None, 0)

    def late(self, now: float) -> bool:
        if self._heard is None:
            return now > self._started + self._program.start_seconds
        return now > self._heard + self._program.seconds

    def outcome(self) -> Outcome:
        """What it said, once nobody waits for more."""
        running = self.running
        if not running and self._reader is not None:
            self._reader.join()
        readings = tuple(self._readings)
        if self._nonsense:
            return Outcome(readings, "failed", f"it answered {self._nonsense!r}")
        if not running:
            code = self._process.returncode
            return Outcome(readings, "done") if code == 0 else self._death(readings, code)
        if self._heard is None:
            limit = self._program.start_seconds
            return Outcome(readings, "failed", f"it was not ready after {limit:.0f} s")
        return Outcome(readings, "hangs", f"no answer for {self._program.seconds:.1f} s")

    def end(self) -> None:
        """Kill it and its own children, if any are left, and close what it held."""
        _kill(self._process)
        try:
            self._process.wait(UNKILLABLE)
        except subprocess.TimeoutExpired:
            return  # stuck inside a driver, where no signal reaches: the system ends it when it can
        if self._reader is not None:
            self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _read(self, answers: IO[bytes]) -> None:
        for line in answers:
            try:
                reading = codec.decode(Reading, json.loads(line))
            except (ValueError, InputError):
                self._nonsense = line[:80].decode(errors="replace").strip()
                continue
            self._heard = time.monotonic()
            if reading.what != READY:
                self._readings.append(reading)

    def _death(self, readings: tuple[Reading, ...], code: int) -> Outcome:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Outcome(readings, "failed", f"{last} ({how})")


def environment(visible: Sequence[str] | None) -> dict[str, str]:
    """This program's environment, from which a child imports the same code.

    `visible` are the identifiers of the only NVIDIA cards that it may see: none of the others
    gets a context. None leaves all visible, for a card without an identifier.
    """
    values = settings.child_environment()
    source, before = str(settings.source()), values.get("PYTHONPATH")
    values["PYTHONPATH"] = source if not before else os.pathsep.join((source, before))
    if visible is not None:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    return values


def _apart() -> dict[str, Any]:
    """A group of its own: Ctrl-C is for the parent, and a kill reaches the whole group."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
