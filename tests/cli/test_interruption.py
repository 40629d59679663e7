"""Ctrl+C amid the imports, and the system's request to end while something is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from command_line import ROOT, marked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def hears_interruptions() -> None:
    """A child of a shell's background job is born deaf to them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("program", [["-m", "local_tp"], ["app.py"]], ids=["module", "app"])
def test_ctrl_c_amid_the_imports_is_one_line(program: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *program, "--no-such-option"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_interruptions,
    )
    assert process.stderr is not None
    for line in process.stderr:  # one for each module that was imported
        if line.rstrip().endswith("numpy.version"):
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    said = [line for line in rest.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, said) == (130, ["local-tp: stopped"])


def test_a_process_deaf_to_ctrl_c_stays_so() -> None:
    """As `local-tp serve &` in a script: its shell's Ctrl+C is not for it."""
    program = (
        "import signal\n"
        "from local_tp.cli.main import main\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "main(['models'])\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_doctor_that_is_told_to_end_leaves_no_child(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "local_tp", "doctor", "--measure", "--again"],
        cwd=ROOT,
        env=os.environ | {"LOCAL_TP_HOME": str(tmp_path), "LOCAL_TP_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not measuring(process) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert measuring(process)
        process.terminate()
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    # A child whose start was under way is not killed but ends by itself, with its input.
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark) == []


def measuring(process: subprocess.Popen[str]) -> bool:
    children = psutil.Process(process.pid).children()
    return any("local_tp.hardware.measuring.child_device" in c.cmdline() for c in children)
