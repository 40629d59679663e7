"""A model that lies on this disk, and how to find such in a folder of any program.

Knows nothing of whose folder it is, and little of what is in the files: it looks at names, sizes
and first bytes. Parts of one model are one model; what is incomplete or damaged is found, too, and
says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local_tp.checkpoint.hub.names import INDEX, PART, part_of

CONFIG = "config.json"
YOURS = "yours"
DEEPEST = 3  # folders below the model folder: publisher, model, quantization
MOST_FILES = 20_000
_LARGEST_INDEX = 1 << 24
_MB, _GB = 1_000_000, 1_000_000_000
_UNFINISHED = (PART, ".incomplete", ".crdownload", ".download", ".aria2")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on disk. `path` is what `read` takes; `nbytes` is the size of its weight files.

    `source` says whose folder it is in, `files` are all its weight files, and `problem` is why it
    cannot be used, in words.
    """

    name: str
    path: Path
    nbytes: int
    source: str = YOURS
    files: tuple[Path, ...] = ()
    problem: str | None = None


def scan(root: Path, source: str, itself: bool = False) -> Iterator[LocalModel]:
    """The models below `root`, named by their path in it; none where there is no such folder.

    `itself` says that `root` may be a model, whose name is then ".". Files that disappear
    meanwhile and folders that may not be read are left out.
    """
    seen: set[str] = set()
    left = MOST_FILES
    for made, folders, files in os.walk(root, followlinks=True):
        folder = Path(made)
        inside = folder.relative_to(root)
        real = os.path.realpath(made)
        left -= len(files)
        if real in seen or left < 0:  # links may lead round in circles
            folders.clear()
            continue
        seen.add(real)
        if (itself or folder != root) and _is_folder_model(files):
            folders.clear()
            yield folder_model(folder, files, inside.as_posix(), source)
            continue
        deeper = len(inside.parts) < DEEPEST
        folders[:] = sorted(name for name in folders if deeper and not name.startswith("."))
        yield from gguf_models(folder, files, inside.as_posix(), source)


def gguf_models(folder: Path, files: list[str], inside: str, source: str) -> Iterator[LocalModel]:
    """The GGUF models among the `files` of one folder, and what is on its way to be one."""
    groups: dict[tuple[str, int], list[str]] = {}
    for file in sorted(files):
        if file.startswith(".") or not _is_language_model(file):
            continue
        if file.endswith(".gguf"):
            stem, _, count = part_of(file.removesuffix(".gguf"))
            groups.setdefault((stem, count), []).append(file)
        elif ".gguf" in file and file.endswith(_UNFINISHED):
            stem, _, count = part_of(file.partition(".gguf")[0])
            groups.setdefault((stem, count), [])
    for (stem, count), parts in groups.items():
        paths = tuple(folder / part for part in parts)
        name = stem if inside in ("", ".") else f"{inside}/{stem}"
        yield LocalModel(
            name=name,
            path=paths[0] if paths else folder / f"{stem}.gguf",
            nbytes=sum(map(size_of, paths)),
            source=source,
            files=paths,
            problem=_gguf_problem(paths, count),
        )


def folder_model(folder: Path, files: list[str], name: str, source: str) -> LocalModel:
    """A safetensors model, whole or not."""
    paths = tuple(folder / file for file in sorted(files) if file.endswith(".safetensors"))
    problem = _folder_problem(folder, files, paths)
    return LocalModel(name, folder, sum(map(size_of, paths)), source, paths, problem)


def size_of(file: Path) -> int:
    """Bytes of a file; none where it is a broken link or being replaced."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def size_text(nbytes: int) -> str:
    """Bytes for people, in the units in which files are offered."""
    if nbytes >= _GB:
        return f"{nbytes / _GB:,.1f} GB"
    return f"{round(nbytes / _MB)} MB" if nbytes >= _MB else f"{-(-nbytes // 1000)} kB"


def damage(file: Path) -> str | None:
    """What the first bytes of a weight file give away: that it is empty, gone, or another kind."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            first = opened.read(8)
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror or error})"
    if not first:
        return f"{file.name} is empty"
    if file.suffix == ".safetensors":
        length = int.from_bytes(first, "little")
        return None if 2 <= length <= size - 8 else f"{file.name} is damaged or incomplete"
    return None if first[:4] == b"GGUF" else f"{file.name} is no GGUF file"


def _is_folder_model(files: list[str]) -> bool:
    weights = any(file.endswith(".safetensors") for file in files)
    coming = any(".safetensors" in file and file.endswith(_UNFINISHED) for file in files)
    return CONFIG in files and (weights or coming or INDEX in files)


def _is_language_model(file: str) -> bool:
    return "mmproj" not in file.lower()


def _gguf_problem(paths: tuple[Path, ...], count: int) -> str | None:
    if len(paths) < count:
        return f"{len(paths)} of {count} parts are here" if count > 1 else "not fetched to its end"
    return next(filter(None, map(damage, paths)), None)


def _folder_problem(folder: Path, files: list[str], paths: tuple[Path, ...]) -> str | None:
    if INDEX in files:
        named = _indexed(folder / INDEX)
        if named is None:
            return f"{INDEX} is damaged"
        here = named & {path.name for path in paths}
        if here != named:
            return f"{len(here)} of {len(named)} weight files are here"
    if not paths or any(file.endswith(_UNFINISHED) for file in files):
        return "not fetched to its end"
    return next(filter(None, map(damage, paths)), None)


def _indexed(index: Path) -> set[str] | None:
    """The names of weight files in an index, or `None` where it is none."""
    try:
        with index.open("rb") as file:
            raw = file.read(_LARGEST_INDEX + 1)
        places = json.loads(raw)["weight_map"] if len(raw) <= _LARGEST_INDEX else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(places, dict) or not places:
        return None
    return {str(name) for name in places.values()}
