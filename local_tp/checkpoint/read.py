"""Any checkpoint on disk, read from its headers alone.

Knows nothing of layouts: it looks only at whether a path is a file (GGUF) or a folder (Hugging
Face). Whatever stands there, the answer is a `Checkpoint` or a `CheckpointError` in one line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from local_tp.checkpoint.folder_text import read_folder_text
from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError
from local_tp.text import TextSpec


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model and its text side, as the files state them."""

    spec: ModelSpec
    text: TextSpec


def read(path: str | Path) -> Checkpoint:
    """Reads the headers of a GGUF file or a model folder; tensor data is left alone.

    Paths in the result are absolute. Raises `CheckpointError`.
    """
    try:
        place = Path(os.path.abspath(Path(path).expanduser()))
        if place.is_dir():
            spec = read_folder(place)
            return Checkpoint(spec, read_folder_text(place, spec.dimensions.vocab))
        if place.is_file():
            return Checkpoint(*read_gguf(place))
        exists = place.exists()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except RuntimeError as error:  # expanduser: no such user
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if exists:
        raise CheckpointError(f"{place} is neither a file nor a folder: give one of these")
    raise CheckpointError(f"there is no file or folder {place}: check the path of the model")
