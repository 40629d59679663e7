"""The server as a process: asked to stop in the middle of a stream, and killed while it loads."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

SHARED = Path("/dev/shm")


@contextmanager
def serving(starter: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `local-tp serve` and its address."""
    command = [sys.executable, "-m", "local_tp", "serve", "--port", "0", "--devices", "cpu,cpu"]
    process = subprocess.Popen(
        [*command, "--model", str(starter), "--context", "1024"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "is ready: chat at " in line:
                yield process, line.split("chat at ")[1].split(",")[0]
                break
        else:
            pytest.fail("the server did not start")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_stop_ends_streams_and_workers_at_once(
    starter: Path, number: signal.Signals, code: int
) -> None:
    body = {"model": "default", "prompt": "Once", "max_tokens": 1000, "stream": True}
    with serving(starter) as (process, address):
        workers = children(process)
        assert len(workers) >= 2
        events = []
        asked: float | None = None
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=30) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                if len(events) == 3 and asked is None:
                    process.send_signal(number)
                    asked = time.monotonic()
        assert "error" in events[-1]
        assert process.wait(10) == code
        assert asked is not None
        assert time.monotonic() - asked < 8.0
        assert not any(worker.is_running() for worker in workers)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.skipif(not SHARED.is_dir(), reason="only Linux has this folder")
def test_a_kill_while_loading_leaves_nothing(starter: Path) -> None:
    before = set(SHARED.iterdir())
    command = [sys.executable, "-m", "local_tp", "complete", "--prompt", "x"]
    process = subprocess.Popen(
        [*command, "--devices", "cpu,cpu", "--model", str(starter)], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while not (workers := psutil.Process(process.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    gone, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive
    assert gone
    assert set(SHARED.iterdir()) <= before
