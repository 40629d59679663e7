"""From whatever is there to an environment that is ready: the order of the steps, and the words.

Knows nothing of how a step is done. When nothing has changed it reads a few small files and does
no more: no pip, no network, no child process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher import environment as place
from launcher import installer, torch_build
from launcher.environment import Environment, Say, Stamp
from launcher.torch_build import Build, Hardware


@dataclass(frozen=True, slots=True)
class Outside:
    """All that preparing asks of the machine and does to it."""

    signature: Callable[[], str]
    hardware: Callable[[], Hardware]
    answers: Callable[[str], bool]
    make: Callable[[Environment], None]
    install: Callable[[Environment, Sequence[str]], None]


def this_machine() -> Outside:
    """The real machine."""
    root = torch_build.system_root(sys.platform)
    return Outside(
        signature=lambda: torch_build.signature(root),
        hardware=lambda: torch_build.read_hardware(sys.platform, root),
        answers=torch_build.answers,
        make=lambda environment: place.make(environment, installer.fetch_pip),
        install=installer.install,
    )


def prepare(root: Path, extras: tuple[str, ...], say: Say, outside: Outside) -> Environment:
    """Make the environment of the checkout at `root` ready with `extras`; raises SetupError."""
    environment = Environment(root)
    machine = outside.signature()
    if place.is_ready(environment, machine, extras):
        return environment
    place.check_extras(environment, extras)
    with place.locked(environment, say):
        if not place.is_ready(environment, machine, extras):
            _build(environment, machine, extras, say, outside)
    return environment


def _build(
    environment: Environment, machine: str, extras: tuple[str, ...], say: Say, outside: Outside
) -> None:
    started = time.monotonic()
    had = place.read_stamp(environment)
    hardware = outside.hardware()
    build = torch_build.choose(hardware)
    fault = place.fault(environment)
    if fault is None and had is not None and had.torch != build.tag:
        fault = "the hardware has changed"
    environment.stamp.unlink(missing_ok=True)
    if fault is not None:
        _remake(environment, fault, say, outside)
        had = None
    if had is None:
        say(f"PyTorch: {build.why}")
    wanted = tuple(sorted({*extras, *(had.extras if had else ())}))
    inputs = place.inputs(environment)
    if had is None or had.inputs != inputs or not set(wanted) <= set(had.extras):
        environment.log.unlink(missing_ok=True)
        if had is None or had.inputs != inputs:
            _install_torch(environment, build, hardware.system, say, outside)
        say("installing what local_tp needs")
        selection = f"[{','.join(wanted)}]" if wanted else ""
        outside.install(environment, ["-e", f".{selection}"])
        say(f"installed in {installer.elapsed(time.monotonic() - started)}")
    python = place.python_version(environment)
    folder = str(environment.folder)
    place.write_stamp(environment, Stamp(inputs, folder, python, machine, build.tag, wanted))


def _remake(environment: Environment, fault: str, say: Say, outside: Outside) -> None:
    if environment.config.exists():
        say(f"making the environment .venv again: {fault}")
    else:
        say("setting up local_tp in the folder .venv: some minutes, this once")
    outside.make(environment)


def _install_torch(
    environment: Environment, build: Build, system: str, say: Say, outside: Outside
) -> None:
    version = place.torch_version(environment)
    if build.index is not None:
        if outside.answers(f"{build.index}/torch/"):
            say(f"installing PyTorch {version} from {build.index}")
            try:
                exact = f"torch=={version}+{build.tag}"
                outside.install(environment, [exact, "--extra-index-url", build.index])
                return
            except installer.PipFailed as error:
                say(f"that index answers but does not deliver: {error}")
        say(torch_build.ordinary_registry_note(build, system))
    say(f"installing PyTorch {version} from the ordinary registry")
    outside.install(environment, [f"torch=={version}"])
