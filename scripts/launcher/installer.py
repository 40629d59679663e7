"""Running pip: its output as one line of progress, its failures as one sentence.

Knows nothing of which packages are wanted or why. The whole output goes to the log; which registry
is used is pip's own configuration, never decided here.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from launcher.environment import Environment, SetupError, pip_version, venv_remedy

RAW_PROGRESS = (24, 1)  # the first pip that can report bytes to a program
PIP_WHEEL = "pip-26.3-py3-none-any.whl"
PIP_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"

# The plainest first: the first one found in pip's output is the one a person is told.
LOST_CONNECTION = (
    "Connection refused",
    "Network is unreachable",
    "No route to host",
    "Name or service not known",
    "Temporary failure in name resolution",
    "getaddrinfo failed",
    "Read timed out",
    "timed out",
    "ProxyError",
    "NameResolutionError",
    "NewConnectionError",
    "ProtocolError",
    "Max retries exceeded",
)


class PipFailed(SetupError):
    """pip ended with an error; `str(error)` says which, what to do, and where its log is."""


def activity(line: str) -> str | None:
    """What pip is doing now, out of one line of its output; None where the line says nothing."""
    text = line.strip()
    package = r"(?:\S*[/\\])?([A-Za-z0-9_.]+?)-\d\S*"
    if found := re.match(rf"Downloading {package}\.metadata\b", text):
        return f"looking at {found[1]}"
    if found := re.match(rf"Downloading {package} \((.+)\)", text):
        return f"downloading {found[1]} ({found[2]})"
    if found := re.match(rf"(?:Using cached|Processing) {package}", text):
        return f"reading {found[1]}"
    if found := re.match(r"Collecting ([A-Za-z0-9_.-]+)", text):
        return f"looking for {found[1]}"
    if found := re.match(r"Installing collected packages: (.+)", text):
        return f"installing {found[1].count(',') + 1} packages"
    if found := re.match(r"Building (?:wheel|editable) for (\S+)", text):
        return f"building {found[1]}"
    return None


def received(line: str) -> str | None:
    """ "12 of 915 MB" out of a line "Progress 12000000 of 915000000"."""
    found = re.match(r"Progress (\d+) of (\d+)", line)
    if not found or found[2] == "0":
        return None
    return f"{int(found[1]) // 10**6} of {int(found[2]) // 10**6} MB"


def explain(lines: Sequence[str], log: Path) -> str:
    """One sentence on why pip failed and what to do, out of its output."""
    output = "\n".join(lines)
    lost = next((words for words in LOST_CONNECTION if words in output), None)
    if "No space left on device" in output or "Errno 28" in output:
        advice = "the disk is full: free about 10 GB and start again"
    elif "Long Path" in output:
        advice = r"the folder's path is too long: move it to a short one such as C:\local_tp"
    elif lost:
        advice = (
            "the package registry cannot be reached: check the network and the proxy settings, "
            "then start again"
        )
    else:
        advice = "pip failed: read its log, then start again"
    # After a lost connection pip's closing words are about versions and mislead.
    cause = lost or _last_error(lines)
    return f"{advice} (pip says: {cause}; its log: {log})"


def _last_error(lines: Sequence[str]) -> str:
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if re.match("error:(?! ResolutionImpossible)", line, re.I)]
    return (errors or said or ["nothing at all"])[-1]


class Progress:
    """One line that says what is going on and for how long: redrawn on a terminal, else sparse."""

    PERIOD = 10.0  # seconds between lines where there is no terminal

    def __init__(self, terminal: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal, self._clock = terminal, clock
        self._started = clock()
        self._printed = self._started
        self._doing, self._detail, self._drawn = "starting pip", "", ""

    def heard(self, line: str) -> None:
        """Take in one line of pip's output."""
        if doing := activity(line):
            self._doing, self._detail = doing, ""
        elif detail := received(line):
            self._detail = f", {detail}"

    def draw(self) -> None:
        """Show the state, if it is time to."""
        now = self._clock()
        text = f"  {self._doing}{self._detail}, {elapsed(now - self._started)}"
        if self._terminal:
            if text != self._drawn:
                print("\r" + text[:78].ljust(len(self._drawn)), end="", flush=True)
                self._drawn = text[:78]
        elif now - self._printed >= self.PERIOD:
            self._printed = now
            print(text, flush=True)

    def close(self) -> None:
        """Take the line off the terminal."""
        if self._drawn:
            print("\r" + " " * len(self._drawn), end="\r", flush=True)
            self._drawn = ""


def elapsed(seconds: float) -> str:
    """ "1 min 05 s"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def run_logged(command: Sequence[str], folder: Path, log: Path) -> tuple[int, list[str]]:
    """Run `command` in `folder`, showing progress; its exit code and its output, also in `log`."""
    lines: list[str] = []
    heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    progress = Progress(sys.stdout.isatty())
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as pipe:
            for line in pipe:
                heard.put(line)
        heard.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n")
            while (line := _next(heard)) is not None:
                if line and not received(line):
                    lines.append(line.rstrip())
                    file.write(line)
                progress.heard(line)
                progress.draw()
        return process.wait(), lines
    finally:
        # After Ctrl-C pip must be gone before anything else happens. What it leaves half done,
        # `environment.cut_short` finds at the next start.
        process.terminate()
        process.wait()
        reader.join(timeout=5)
        progress.close()


def _next(heard: queue.SimpleQueue[str | None]) -> str | None:
    """The next line, "" where there was none for half a second, None at the end."""
    try:
        return heard.get(timeout=0.5)
    except queue.Empty:
        return ""


def install(environment: Environment, arguments: Sequence[str]) -> None:
    """`pip install` with the pinned versions; raises PipFailed."""
    version = pip_version(environment) or (0, 0)
    style = "raw" if version >= RAW_PROGRESS else "off"
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar", style]
    pinned = ["-c", str(environment.constraints)]
    command = [str(environment.python), "-m", "pip", "install", *options, *pinned, *arguments]
    code, lines = run_logged(command, environment.root, environment.log)
    if code:
        raise PipFailed(explain(lines, environment.log))


def fetch_pip(environment: Environment) -> None:
    """Put pip into an environment whose Python lacks ensurepip, as Debian's and Ubuntu's may.

    pip's own wheel, from the configured registry, can install itself; its hash is pinned here.
    """
    registry = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
    wheel = environment.folder / PIP_WHEEL
    try:
        wheel.write_bytes(_download_pip(f"{registry.rstrip('/')}/pip/"))
    except (OSError, ValueError, LookupError) as error:
        raise SetupError(
            f"Python here has no pip and it cannot be fetched ({error}): {venv_remedy()}"
        ) from error
    command = [str(environment.python), str(wheel / "pip"), "install", "--no-index", str(wheel)]
    code, lines = run_logged(command, environment.root, environment.log)
    wheel.unlink()
    if code:
        raise PipFailed(explain(lines, environment.log))


def _download_pip(page: str) -> bytes:
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(page, headers=accept), timeout=15) as answer:
        files = json.load(answer)["files"]
    link = next((file["url"] for file in files if file["filename"] == PIP_WHEEL), None)
    if link is None:
        raise LookupError(f"{page} has no {PIP_WHEEL}")
    with urllib.request.urlopen(urllib.parse.urljoin(page, link), timeout=60) as answer:
        content: bytes = answer.read()
    if hashlib.sha256(content).hexdigest() != PIP_SHA256:
        raise ValueError(f"{link} is not the pip that was published")
    return content
