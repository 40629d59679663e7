"""Which model a command is about: one on this disk, one known by its shape, or a bare config.

Knows nothing of machines. What lies on this disk comes before what is only known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from local_tp.checkpoint import known_models
from local_tp.checkpoint.local_models import STARTER_NAME, NoSuchModel, resolve
from local_tp.checkpoint.planned import planned_model
from local_tp.checkpoint.read import Checkpoint, read
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError, InputError

Report = Callable[[str], None]


def checkpoint_of(parsed: argparse.Namespace, report: Report) -> Checkpoint:
    """The model that is to run. Raises `CheckpointError`, also for one known by shape alone."""
    name = parsed.model or STARTER_NAME
    try:
        path = resolve(name, report)
    except NoSuchModel as error:
        if known_models.find(name) is None:
            raise
        raise CheckpointError(
            f"{name} is not on this machine, only its shape is known: download a GGUF file of it "
            f"and name that, or plan it with `local-tp plan {name}`"
        ) from error
    checkpoint = read(path)
    return replace(checkpoint, spec=_called(checkpoint.spec, name, path))


def _called(spec: ModelSpec, name: str, path: Path) -> ModelSpec:
    """A file that is named by its checksum, as Ollama's are, gets the name that people know."""
    return replace(spec, name=name) if path.name.startswith("sha256-") else spec


def spec_of(parsed: argparse.Namespace, report: Report) -> ModelSpec:
    """The model that is to be planned; one that is not here has no path. Raises `InputError`."""
    given = [word for word in (parsed.name, parsed.model, parsed.model_config) if word is not None]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} are two models: name one")
    if parsed.model_config is not None:
        return planned_model(parsed.model_config, parsed.quant or known_models.DEFAULT)
    name = given[0] if given else STARTER_NAME
    if parsed.quant is not None:
        if Path(name).exists():
            raise InputError(f"{name} says its own format: leave out --quant")
        return known_models.known_model(name, parsed.quant)
    try:
        path = resolve(name, report)
    except NoSuchModel as error:
        if known_models.find(name) is not None:
            return known_models.known_model(name, known_models.DEFAULT)
        if "/" in name or name.endswith((".gguf", ".safetensors")):
            raise
        raise CheckpointError(
            f"{error}; {len(known_models.names())} models are known by shape, such as "
            f"{known_models.names()[0]} and {known_models.names()[-1]}"
        ) from error
    return _called(read(path).spec, name, path)
