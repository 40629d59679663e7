"""Any model that is to be planned and not run: a config file, a GGUF header, a well-known name.

Knows nothing of what is in them. Whatever is given, the answer is a `ModelSpec` without a path or
a `CheckpointError` in one line.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from local_tp.checkpoint.config_shape import read_config, spec_from_config
from local_tp.checkpoint.gguf_shape import spec_from_gguf
from local_tp.checkpoint.known_models import DEFAULT, known_model
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError

CONFIG = "config.json"


def planned_model(model: str, quant: str = DEFAULT) -> ModelSpec:
    """The model that a file, a folder with a `config.json`, or a name stands for.

    A GGUF file has its own formats, and `quant` must be left open; "default" is for the others
    what a config or the table says of the maker's own weights. Raises `CheckpointError`.
    """
    try:
        path = Path(model).expanduser()
        if path.is_dir():
            path = path / CONFIG
        if not path.is_file():
            if path.suffix in (".json", ".gguf"):
                raise CheckpointError(f"there is no file {path}: check the path")
            return known_model(model, quant)
        if path.suffix == ".gguf":
            if quant != DEFAULT:
                raise CheckpointError(f"{path} has its own formats: leave {quant} out")
            return spec_from_gguf(path)
        spec = spec_from_config(read_config(path), str(path), quant)
        named = path.parent if path.name == CONFIG else path
        return replace(spec, name=named.stem if named is path else named.resolve().name)
    except OSError as error:
        raise CheckpointError(f"cannot read {model}: {error.strerror or error}") from error
    except RuntimeError as error:  # expanduser: no such user
        raise CheckpointError(f"cannot read {model}: {error}") from error
