"""The models on this computer: in the person's model folder, the hub's cache, other programs'
folders, and which one a name means.

Knows nothing of what is in the files: it looks at names, sizes and first bytes. They are used where
they lie. No two models have the same name, and every name that is listed resolves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from local_tp import settings
from local_tp.checkpoint.hub import ollama, programs
from local_tp.checkpoint.hub.found import YOURS, LocalModel, scan
from local_tp.checkpoint.hub.hub_cache import SOURCE as HUB_CACHE
from local_tp.checkpoint.hub.hub_cache import cached_models
from local_tp.checkpoint.hub.names import parse_reference, quant_label
from local_tp.checkpoint.starter import ensure_starter
from local_tp.errors import CheckpointError

STARTER_NAME = "starter"
MORE = "more folders"

_MOST_NAMED = 10


class NoSuchModel(CheckpointError):
    """A name that means nothing here; whether what it means elsewhere is known is not said."""


def installed() -> tuple[LocalModel, ...]:
    """Every model that is found, the person's own first, then by source; by name in each.

    A file that several folders lead to counts where it is found first. A name that is taken gets
    its source before it.
    """
    return _found(once=True)


def _found(once: bool) -> tuple[LocalModel, ...]:
    found: dict[str, LocalModel] = {}
    paths: set[Path] = set()
    for source, models in _sources():
        for model in sorted(models, key=lambda model: model.name.casefold()):
            place = _real(model.path)
            if once and place in paths:
                continue
            paths.add(place)
            name = _free(model.name, source, found)
            found[name] = replace(model, name=name)
    return tuple(found.values())


def own_models() -> tuple[LocalModel, ...]:
    """The models in `settings.models()`, by name; none where that folder does not exist."""
    found = {model.name: model for model in scan(settings.models(), YOURS)}
    return tuple(found[name] for name in sorted(found, key=str.casefold))


def resolve(name_or_path: str | Path, report: Callable[[str], None] = lambda line: None) -> Path:
    """The path of a model: "starter", a name of the person's own, a path, or any other name.

    The starter model is fetched if it is not there, with progress to `report`. Raises
    `NoSuchModel` that lists what there is, or `CheckpointError` for what a model lacks.
    """
    wanted = str(name_or_path)
    if wanted == STARTER_NAME:
        return ensure_starter(report)
    model = named(wanted, own_models())
    if model is None:
        path = Path(os.path.expanduser(wanted))
        if os.path.exists(path):
            return path
        models = installed()
        model = named(wanted, models) or named(wanted, _found(once=False))
        if model is None:
            raise NoSuchModel(f"there is no model {wanted!r}: {_choices(wanted, models)}")
    if model.problem is not None:
        raise CheckpointError(
            f"{model.name} in {model.source} cannot be used ({model.problem}): fetch it again, or "
            "see `local-tp models`"
        )
    return model.path


def named(wanted: str, models: Iterable[LocalModel]) -> LocalModel | None:
    """The model that a name means: its own name, or another that means no other of them.

    Raises `CheckpointError` where a repository has several and none is named.
    """
    models = tuple(models)
    for model in models:
        if wanted in (model.name, f"{model.name}.gguf", model.name.removesuffix(ollama.LATEST)):
            return model
    reference = parse_reference(wanted)
    if reference is None:
        return None
    inside = [m for m in models if _of_repository(m, reference.repository)]
    if reference.quant is not None:
        quant = reference.quant.lower()
        inside = [m for m in inside if quant in _quants(m)]
    found = [m for m in inside if m.problem is None] or inside
    if len(found) > 1 and len({m.source for m in found}) == len(found):
        return found[0]  # the same in several places
    if len(found) > 1:
        names = ", ".join(model.name for model in found[:_MOST_NAMED])
        raise CheckpointError(f"{wanted} is {len(found)} models here: name one of {names}")
    return found[0] if found else None


def _sources() -> Iterator[tuple[str, Iterable[LocalModel]]]:
    home = Path.home()
    yield YOURS, own_models()
    yield HUB_CACHE, cached_models(settings.hub_cache())
    for folder in programs.lm_studio_folders(home):
        yield programs.LM_STUDIO, scan(folder, programs.LM_STUDIO)
    for folder in settings.ollama_models():
        yield ollama.SOURCE, ollama.ollama_models(folder)
    for folder in programs.web_ui_folders(home):
        yield programs.WEB_UI, scan(folder, programs.WEB_UI)
    for folder in settings.more_model_folders():
        yield MORE, scan(folder, MORE)


def _free(name: str, source: str, taken: Iterable[str]) -> str:
    """A name that no other model has, nor the starter model."""
    if name != STARTER_NAME and name not in taken:
        return name
    before = source.lower().replace(" ", "-")
    names = (f"{before}/{name}" + (f"-{n}" if n else "") for n in range(1 << 20))
    return next(candidate for candidate in names if candidate not in taken)


def _of_repository(model: LocalModel, repository: str) -> bool:
    plain = model.name.partition(":")[0]
    return plain == repository or plain.startswith(f"{repository}/")


def _quants(model: LocalModel) -> set[str]:
    """What may stand after a colon: the quantization, or the file's name."""
    after, stem = model.name.partition(":")[2], model.name.rpartition("/")[2]
    label = quant_label(f"{stem}.gguf") or ""
    return {text.lower() for text in (after, stem, label) if text}


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return path


def _choices(wanted: str, models: tuple[LocalModel, ...]) -> str:
    usable = [model.name for model in models if model.problem is None]
    names = [STARTER_NAME, *usable[:_MOST_NAMED]]
    more = len(usable) - _MOST_NAMED
    rest = f" and {more} more" if more > 0 else ""
    fetch = ""
    if parse_reference(wanted) is not None and not wanted.endswith((".gguf", ".safetensors")):
        fetch = f"fetch it with `local-tp models pull {wanted}`, or "
    return (
        f"{fetch}use {', '.join(names)}{rest} (from {settings.models()} and other programs' "
        "folders), or the path of a GGUF file or a Hugging Face model folder"
    )
