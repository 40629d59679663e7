"""One worker process, held by its standard streams.

Knows how to start, address and end a worker on every system, and nothing of what it computes. Its
log is an unnamed temporary file, read when it dies.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
from typing import Any

from local_tp import settings
from local_tp.core import Device
from local_tp.runtime import wire

LOG_TAIL_BYTES = 4096
OPENMP_SPINS = "30000"  # the default spins for so long that one busy neighbour stops all threads


class WorkerProcess:
    """A running `local_tp.runtime.worker`."""

    def __init__(self, rank: int, device: Device, threads: int) -> None:
        self.device = device.id
        log = tempfile.TemporaryFile(prefix=f"local_tp-worker-{rank}-")  # noqa: SIM115  `release` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "local_tp.runtime.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(device, threads),
            **_apart(),
        )
        assert isinstance(self._process.stdin, io.BufferedWriter)
        assert isinstance(self._process.stdout, io.BufferedReader)
        self._commands, self._answers, self._log = self._process.stdin, self._process.stdout, log
        self._sending = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: wire.Command) -> None:
        """Pass a message on. A worker that no longer reads is gone, which `receive` tells."""
        with contextlib.suppress(BrokenPipeError), self._sending:
            wire.write(self._commands, message)

    def ask_to_stop(self) -> None:
        """Let it leave by itself, also while it is loading."""
        self.send(wire.Stop())

    def receive(self) -> wire.Answer | None:
        """The next answer, blocking; `None` once the worker is gone."""
        answer = wire.read(self._answers)
        assert not isinstance(answer, wire.Command)
        return answer

    def wait(self, seconds: float) -> int | None:
        """The exit code (negative for a signal), or `None` if it is still running by then."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it now, whatever it is doing."""
        self._process.kill()

    def end(self, seconds: float) -> None:
        """Wait for it to leave, and kill it if it does not."""
        if self.wait(seconds) is None:
            self.kill()
            self._process.wait()

    def release(self) -> None:
        """Close its streams and log, once nobody listens any more."""
        for stream in (self._commands, self._answers, self._log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def log_tail(self) -> str:
        """The last lines that it, or a library inside it, wrote."""
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace")


def _environment(device: Device, threads: int) -> dict[str, str]:
    """Only the worker's own card is visible to it, by its stable name, whatever CUDA's order is."""
    environment = settings.child_environment()
    source = str(settings.source())
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = source if not before else os.pathsep.join((source, before))
    environment["OMP_NUM_THREADS"] = str(threads)
    environment.setdefault("GOMP_SPINCOUNT", OPENMP_SPINS)
    if device.kind == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif device.uuid is not None:
        environment["CUDA_VISIBLE_DEVICES"] = device.uuid
    return environment


def _apart() -> dict[str, Any]:
    """Ctrl+C in a terminal is for the parent alone, which decides what becomes of its workers."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
