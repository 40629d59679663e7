"""A checkout and a machine for the launcher's tests, on which nothing is ever installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launcher import environment as place
from launcher import installer, prepare
from launcher.environment import Environment
from launcher.torch_build import Hardware

PROJECT = """
[project]
dependencies = ["torch==2.13.0", "numpy==2.4.6"]
[project.optional-dependencies]
test = ["pytest"]
bench = ["llama-cpp-python"]
"""


def put(root: Path, name: str, content: str = "x") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content, "utf-8")


class FakeOutside:
    """A machine on which `make` and `install` only write down that they ran."""

    def __init__(self) -> None:
        self.hardware = Hardware("linux")
        self.mark = "none"
        self.reachable = True
        self.failing: tuple[str, ...] = ()
        self.calls: list[str] = []
        self.said: list[str] = []

    def outside(self) -> prepare.Outside:
        return prepare.Outside(
            signature=lambda: self.mark,
            hardware=lambda: self.hardware,
            answers=self._answers,
            make=self._make,
            install=self._install,
        )

    def run(self, environment: Environment, *extras: str) -> list[str]:
        """Prepare, and return what had to be done for it."""
        self.calls.clear()
        prepare.prepare(environment.root, extras, self.said.append, self.outside())
        return list(self.calls)

    def _answers(self, url: str) -> bool:
        self.calls.append(f"ask {url}")
        return self.reachable

    def _make(self, environment: Environment) -> None:
        self.calls.append("make")
        place.clear(environment)
        fill(environment)

    def _install(self, environment: Environment, arguments: Sequence[str]) -> None:
        assert not environment.stamp.exists()
        self.calls.append(f"pip {' '.join(arguments)}")
        if any(word in self.failing for word in arguments):
            raise installer.PipFailed("it fails")


def fill(environment: Environment) -> None:
    """What `python -m venv` leaves, with a pip that says its version."""
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text("#!/bin/sh\necho pip 24.2 from here\n", "utf-8")
    environment.python.chmod(0o755)
    lines = [
        f"home = {environment.python.parent}",
        "version = 3.12.1",
        f"command = python -m venv {environment.folder}",
    ]
    environment.config.write_text("\n".join(lines), "utf-8")
