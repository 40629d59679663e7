"""What removing a model would delete and free, and the deleting.

Knows nothing of people: whoever calls it has asked. Only what lies in the person's own model folder
or in the hub's cache is ever deleted; a link is, but never what it leads to elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local_tp.checkpoint.hub import ollama, programs
from local_tp.checkpoint.hub.found import YOURS, LocalModel
from local_tp.checkpoint.hub.hub_cache import SOURCE as HUB_CACHE
from local_tp.checkpoint.hub.names import LOCK, PART, WEIGHTS, part_of
from local_tp.errors import CheckpointError

_THERE = {
    ollama.SOURCE: "run `ollama rm {name}`",
    programs.LM_STUDIO: "delete it under My Models there",
    programs.WEB_UI: "delete it from {folder} yourself",
}


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to delete, a whole folder of the cache, and the bytes that this frees.

    Folders between `files` and `root` that become empty go too; `root` stays.
    """

    root: Path
    files: tuple[Path, ...]
    nbytes: int
    tree: Path | None = None


def removal(model: LocalModel, own: Path, cache: Path) -> Removal:
    """What to delete for one model. Raises `CheckpointError` for other programs' models."""
    try:
        if model.source == YOURS:
            _check_inside(model, own)
            files = tuple(_own(model))
            return Removal(own, files, _freed(files))
        if model.source == HUB_CACHE:
            return _cached(model, cache)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {error.filename} ({error.strerror or error}): check who may"
        ) from error
    there = _THERE.get(model.source, "delete it from {folder} yourself")
    raise CheckpointError(
        f"{model.name} belongs to {model.source}, whose folder is left alone: "
        f"{there.format(name=model.name, folder=model.path.parent)}"
    )


def remove(what: Removal) -> None:
    """Deletes. Raises `CheckpointError` where the system does not let it."""
    try:
        for file in what.files:
            file.unlink(missing_ok=True)
        if what.tree is not None:
            shutil.rmtree(what.tree)
        for file in what.files:
            _without_empty(file.parent, what.root)
    except OSError as error:
        raise CheckpointError(
            f"cannot delete {error.filename} ({error.strerror or error}): end what uses it, and "
            "try again"
        ) from error


def _check_inside(model: LocalModel, own: Path) -> None:
    folder = os.path.realpath(model.path if model.path.is_dir() else model.path.parent)
    real = os.path.realpath(own)
    if os.path.commonpath((folder, real)) != real:
        raise CheckpointError(
            f"{model.name} lies in {folder}, where a link in your model folder leads: delete it "
            "there yourself"
        )


def _own(model: LocalModel) -> Iterator[Path]:
    """The files of a model folder, not those of folders in it; or the parts of a GGUF."""
    if model.path.is_dir():
        yield from sorted(Path(e.path) for e in os.scandir(model.path) if not e.is_dir())
        return
    yield from model.files
    stem = part_of(model.path.name.removesuffix(".gguf"))[0]
    for entry in sorted(os.scandir(model.path.parent), key=lambda entry: entry.name):
        unfinished = entry.name.endswith((PART, PART + LOCK)) and ".gguf" in entry.name
        if unfinished and part_of(entry.name.partition(".gguf")[0])[0] == stem:
            yield Path(entry.path)


def _cached(model: LocalModel, cache: Path) -> Removal:
    """One model of a repository; all of it where no other model is in it."""
    repository = cache / model.path.relative_to(cache).parts[0]
    every = [
        Path(made) / file for made, _, files in os.walk(repository / "snapshots") for file in files
    ]
    chosen = [path for path in every if _belongs(path, model, repository / "snapshots")]
    kept = {path for path in every if path not in set(chosen)}
    if not any(path.name.endswith(WEIGHTS) for path in kept):
        blobs = [path for path in repository.rglob("*") if path.is_file()]
        return Removal(cache, (), _freed(tuple(blobs)), repository)
    needed = {os.path.realpath(path) for path in kept}
    inside = os.path.realpath(repository) + os.sep
    targets = {os.path.realpath(path) for path in chosen}
    blobs = [Path(t) for t in sorted(targets) if t.startswith(inside) and t not in needed]
    files = tuple(dict.fromkeys((*chosen, *blobs)))
    return Removal(repository, files, _freed(files))


def _belongs(path: Path, model: LocalModel, snapshots: Path) -> bool:
    """Whether a file of any commit is one of the model's."""
    inside = path.relative_to(snapshots).parts[1:]
    if model.path.suffix == ".gguf":
        names = {file.relative_to(snapshots).parts[1:] for file in model.files}
        return inside in names
    return len(inside) == 1 and not path.name.endswith(".gguf")


def _freed(files: tuple[Path, ...]) -> int:
    """Bytes of the files that nothing else leads to."""
    facts = [file.lstat() for file in files if not file.is_symlink()]
    return sum(fact.st_size for fact in facts if fact.st_nlink == 1)


def _without_empty(folder: Path, root: Path) -> None:
    while folder != root and root in folder.parents and folder.is_dir():
        if any(folder.iterdir()):
            return
        folder.rmdir()
        folder = folder.parent
