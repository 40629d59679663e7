"""The models on this computer: what is in the user's model folder, and which one a name means.

Knows nothing of what is in the files: it looks at names and sizes. A name is the path within the
folder, without `.gguf` and part number, so that no two models have the same one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from local_tp import settings
from local_tp.checkpoint.gguf_file import model_name
from local_tp.checkpoint.safetensors_folder import CONFIG
from local_tp.checkpoint.starter import ensure_starter
from local_tp.errors import CheckpointError

STARTER_NAME = "starter"

_DEEPEST = 3  # folders below the model folder: publisher, model, quantization
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on disk. `path` is what `read` takes; `nbytes` is the size of its weight files."""

    name: str
    path: Path
    nbytes: int


def installed() -> tuple[LocalModel, ...]:
    """The models in `settings.models()`, by name; none where that folder does not exist.

    Files that disappear meanwhile and folders that may not be read are left out.
    """
    found: dict[str, LocalModel] = {}
    for model in _scan(settings.models()):
        first = found.get(model.name)
        size = model.nbytes + (first.nbytes if first else 0)
        found[model.name] = replace(first or model, nbytes=size)
    return tuple(found[name] for name in sorted(found, key=str.casefold))


def resolve(name_or_path: str | Path, report: Callable[[str], None] = lambda line: None) -> Path:
    """The path of a model: "starter", a name from `installed()`, or a path, in this order.

    The starter model is fetched if it is not there, with progress to `report`. Raises
    `CheckpointError` that lists what there is.
    """
    wanted = str(name_or_path)
    if wanted == STARTER_NAME:
        return ensure_starter(report)
    models = installed()
    for model in models:
        if wanted in (model.name, f"{model.name}.gguf"):
            return model.path
    path = Path(os.path.expanduser(wanted))
    if os.path.exists(path):
        return path
    raise CheckpointError(f"there is no model {wanted!r}: {_choices(models)}")


def _scan(root: Path) -> Iterator[LocalModel]:
    """Model folders and GGUF files; the parts of one model come in order, under one name."""
    for made, folders, files in os.walk(root, followlinks=True):
        folder = Path(made)
        inside = folder.relative_to(root)
        weights = [folder / file for file in files if file.endswith(".safetensors")]
        if CONFIG in files and weights and folder != root:
            folders.clear()
            yield LocalModel(inside.as_posix(), folder, sum(map(_size, weights)))
            continue
        deeper = len(inside.parts) < _DEEPEST  # links may also lead round in circles
        folders[:] = [name for name in folders if deeper and not name.startswith(".")]
        for file in sorted(files):
            if file.endswith(".gguf") and not file.startswith("."):
                name = (inside / model_name(Path(file))).as_posix()
                yield LocalModel(name, folder / file, _size(folder / file))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # a broken link or a file that is being replaced: it weighs nothing
        return 0


def _choices(models: tuple[LocalModel, ...]) -> str:
    names = [STARTER_NAME, *(model.name for model in models[:_MOST_NAMED])]
    more = len(models) - _MOST_NAMED
    rest = f" and {more} more" if more > 0 else ""
    return (
        f"use {', '.join(names)}{rest} (from {settings.models()}), or the path of a GGUF file "
        "or a Hugging Face model folder"
    )
