"""The hub's own cache: its layout and the models in it.

Knows nothing of the network. A repository is `models--owner--name` with `blobs` by checksum and, in
`snapshots`, a folder for each commit: links to blobs, or files where there can be no links.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from local_tp.checkpoint.hub.found import LocalModel, scan
from local_tp.checkpoint.hub.names import Reference, quant_label

SOURCE = "Hugging Face cache"
_LONGEST_REF = 100


def snapshot(cache: Path, reference: Reference, commit: str) -> Path:
    """Where the cache keeps, or would keep, a repository's files of one commit."""
    return cache / f"models--{reference.owner}--{reference.name}" / "snapshots" / commit


def cached_models(cache: Path) -> Iterator[LocalModel]:
    """The models of every repository in the cache, each of its newest commit that has it."""
    try:
        folders = sorted(entry.name for entry in os.scandir(cache) if entry.is_dir())
    except OSError:  # there is no cache, or it is somebody else's
        return
    for folder in folders:
        kind, _, rest = folder.partition("--")
        if kind == "models" and rest:
            yield from _repository(cache / folder, "/".join(rest.split("--", 1)))


def _repository(folder: Path, name: str) -> Iterator[LocalModel]:
    seen: set[str] = set()
    for commit in _commits(folder):
        for model in scan(commit, SOURCE, itself=True):
            if model.name not in seen:
                seen.add(model.name)
                yield replace(model, name=_name(name, model.name))
    blobs = folder / "blobs"
    if not seen and any(blobs.glob("*.incomplete")):
        yield LocalModel(name, folder, 0, SOURCE, (), "not fetched to its end")


def _name(repository: str, rest: str) -> str:
    """A folder is the repository; a GGUF is its quantization, as people name it."""
    if rest == ".":
        return repository
    label = quant_label(f"{rest}.gguf")
    return f"{repository}:{label}" if label else f"{repository}/{rest}"


def _commits(folder: Path) -> list[Path]:
    """Folders of commits, that of `main` first and then the newest."""
    try:
        with (folder / "refs" / "main").open("rb") as file:
            main = file.read(_LONGEST_REF).decode(errors="replace").strip()
    except OSError:
        main = ""
    try:
        entries = [entry for entry in os.scandir(folder / "snapshots") if entry.is_dir()]
        ages = {entry.path: -entry.stat().st_mtime for entry in entries}
    except OSError:
        return []
    return sorted(map(Path, ages), key=lambda path: (path.name != main, ages[str(path)]))
