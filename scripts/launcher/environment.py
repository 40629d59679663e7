"""The folder `.venv`: where things lie in it, whether it can be used, how it is made and locked.

Knows nothing of pip's work or of hardware. The stamp exists only while everything it names is
installed; the lock lies inside the folder and survives its remaking.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OLDEST, NEWEST = (3, 11), (3, 14)

Say = Callable[[str], None]


class SetupError(Exception):
    """Set-up cannot go on; `str(error)` is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What was installed: from which files, where, with which Python, for which machine."""

    inputs: str
    folder: str
    python: str
    machine: str
    torch: str
    extras: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    """The paths of the environment that belongs to the checkout at `root` (absolute)."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        inside = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
        return self.folder / inside

    @property
    def config(self) -> Path:
        return self.folder / "pyvenv.cfg"

    @property
    def stamp(self) -> Path:
        return self.folder / "installed.json"

    @property
    def log(self) -> Path:
        return self.folder / "install.log"

    @property
    def lock(self) -> Path:
        return self.folder / "setup.lock"

    @property
    def project(self) -> Path:
        return self.root / "pyproject.toml"

    @property
    def constraints(self) -> Path:
        return self.root / "scripts" / "constraints.txt"


# ---------------------------------------------------------------------- what is to be installed


def inputs(environment: Environment) -> str:
    """A hash of the files that say what to install."""
    content = environment.project.read_bytes() + b"\0" + environment.constraints.read_bytes()
    return hashlib.sha256(content).hexdigest()


def torch_version(environment: Environment) -> str:
    """The version that pyproject.toml pins torch to."""
    for dependency in _project_table(environment)["dependencies"]:
        if found := re.fullmatch(r"torch==([\w.]+)", dependency):
            return found[1]
    raise SetupError("pyproject.toml does not pin torch: restore it from the repository")


def check_extras(environment: Environment, extras: tuple[str, ...]) -> None:
    """Raise SetupError for an extra that pyproject.toml does not have."""
    known = list(_project_table(environment).get("optional-dependencies", ()))
    for extra in extras:
        if extra not in known:
            raise SetupError(f"there are no extras '{extra}': choose from {', '.join(known)}")


def _project_table(environment: Environment) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(environment.project.read_text("utf-8"))["project"]
    return table


# -------------------------------------------------------------------------- what is there already


def read_stamp(environment: Environment) -> Stamp | None:
    """The stamp, or None where there is none or it is not whole."""
    try:
        values = json.loads(environment.stamp.read_text("utf-8"))
        return Stamp(**{**values, "extras": tuple(values["extras"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_stamp(environment: Environment, stamp: Stamp) -> None:
    """Write the stamp in one step: it is whole or absent."""
    draft = environment.stamp.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(stamp)), "utf-8")
    draft.replace(environment.stamp)


def read_config(environment: Environment) -> dict[str, str]:
    """pyvenv.cfg as a dictionary, empty where there is none."""
    try:
        lines = environment.config.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def python_version(environment: Environment) -> str:
    """The version of the environment's Python as its pyvenv.cfg has it, "" where it has none."""
    config = read_config(environment)
    return config.get("version", config.get("version_info", ""))


def is_ready(environment: Environment, machine: str, extras: tuple[str, ...]) -> bool:
    """Whether nothing needs to be done: only reads a few small files."""
    stamp = read_stamp(environment)
    return (
        stamp is not None
        and stamp.inputs == inputs(environment)
        and stamp.folder == str(environment.folder)
        and stamp.python == python_version(environment)
        and stamp.machine == machine
        and set(extras) <= set(stamp.extras)
        and environment.python.exists()
    )


def fault(environment: Environment) -> str | None:
    """Why the folder cannot be built upon, in words; None when it can."""
    config = read_config(environment)
    if not config:
        return "it is not finished"
    if not environment.python.exists() or not Path(config.get("home", "")).is_dir():
        return "the Python it was made with is gone"
    version = python_version(environment)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= numbers <= NEWEST:
        return f"it was made with Python {version or 'of an unknown version'}"
    command = config.get("command", "")
    if command and not os.path.normcase(command).endswith(os.path.normcase(environment.folder)):
        return "the folder was moved"
    if cut := cut_short(environment):
        return f"the installation of {cut} was cut short"
    if pip_version(environment) is None:
        return "it has no working pip"
    return None


def cut_short(environment: Environment) -> str | None:
    """The name of a package that pip was stopped in the middle of, if there is one."""
    inside = "Lib" if sys.platform == "win32" else "lib/python*"
    for entry in sorted(environment.folder.glob(f"{inside}/site-packages/*")):
        # pip writes INSTALLER after a package's files, and renames to ~ what it takes away.
        half = entry.suffix == ".dist-info" and not (entry / "INSTALLER").exists()
        if half or entry.name.startswith("~"):
            return entry.name.strip("~").partition("-")[0]
    return None


def pip_version(environment: Environment) -> tuple[int, int] | None:
    """pip's version in the environment, None where it does not run."""
    try:
        command = [str(environment.python), "-m", "pip", "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"pip (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found and done.returncode == 0 else None


# -------------------------------------------------------------------------------------- making it


def clear(environment: Environment) -> None:
    """Empty the folder, save for the lock that the caller holds."""
    for entry in environment.folder.iterdir():
        if entry == environment.lock:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def make(environment: Environment, add_pip: Callable[[Environment], None]) -> None:
    """A fresh environment; `add_pip` is asked where this Python cannot bring pip itself."""
    clear(environment)
    alone = importlib.util.find_spec("ensurepip") is not None
    command = [base_python(), "-m", "venv", *([] if alone else ["--without-pip"])]
    done = subprocess.run(
        [*command, str(environment.folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise SetupError(
            f"Python cannot make the environment ({lines[-1] if lines else 'it says nothing'}): "
            f"{venv_remedy()}"
        )
    if not alone:
        add_pip(environment)


def base_python() -> str:
    """The Python under the running one, which may be the environment that is to be emptied."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    inside = "python.exe" if sys.platform == "win32" else f"bin/python{version}"
    base = Path(sys.base_prefix, inside)
    return str(base) if base.exists() else sys.executable


def venv_remedy(os_release: Path = Path("/etc/os-release")) -> str:
    """What to do on this system when Python's venv or ensurepip is missing."""
    try:
        debian = "debian" in os_release.read_text("utf-8").lower()
    except OSError:
        debian = False
    if debian:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        return f"run 'sudo apt install {package}' and start again"
    return "install a complete Python from https://www.python.org/downloads/ and start again"


@contextlib.contextmanager
def locked(environment: Environment, say: Say) -> Iterator[None]:
    """Hold the environment's lock, waiting for another start to finish first.

    The system drops the lock with the process that holds it, so it is never stale.
    """
    environment.folder.mkdir(exist_ok=True)
    with environment.lock.open("a+b") as file:
        waiting = False
        while not _try_lock(file.fileno()):
            if not waiting:
                say("another start is setting up; waiting for it")
                waiting = True
            time.sleep(0.2)
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
