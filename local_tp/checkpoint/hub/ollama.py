"""The models that Ollama keeps, by the names that its own commands take.

Knows nothing of what is in them. A manifest, `manifests/HOST/NAMESPACE/MODEL/TAG`, is JSON that
names blobs by SHA-256; that of the kind `model` is a GGUF file. Nothing is changed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

from local_tp.checkpoint.fields import Fields
from local_tp.checkpoint.hub.found import LocalModel, damage, size_of
from local_tp.errors import CheckpointError

SOURCE = "Ollama"
LATEST = ":latest"
_HOST, _NAMESPACE = "registry.ollama.ai", "library"
_MANIFESTS = ("manifests", "manifests-v2")
_MODEL = "application/vnd.ollama.image.model"
_TENSOR = "application/vnd.ollama.image.tensor"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_LARGEST_MANIFEST = 1 << 20
_MOST_MANIFESTS = 2_000


def ollama_models(root: Path) -> Iterator[LocalModel]:
    """Every model with a manifest below `root`; none where there is no such folder."""
    left = _MOST_MANIFESTS
    for kind in _MANIFESTS:
        manifests = root / kind
        for made, folders, files in os.walk(manifests):
            folders.sort()
            inside = Path(made).relative_to(manifests)
            if len(inside.parts) != 3:
                continue
            folders.clear()
            for tag in sorted(files)[:left]:
                left -= 1
                yield _model(root, Path(made) / tag, _name(inside, tag))


def _name(inside: PurePath, tag: str) -> str:
    host, namespace, model = inside.parts
    if host != _HOST:
        return f"{host}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == _NAMESPACE else f"{namespace}/{model}:{tag}"


def _model(root: Path, manifest: Path, name: str) -> LocalModel:
    try:
        layers = Fields.from_json(manifest, _LARGEST_MANIFEST).inners("layers")
        kinds = [layer.text("mediaType") or "" for layer in layers]
        chosen = [layer for layer, kind in zip(layers, kinds, strict=True) if kind == _MODEL]
        digests = [_DIGEST.fullmatch(layer.text("digest") or "") for layer in chosen]
        sizes = [layer.get("size") for layer in chosen]
    except (CheckpointError, OSError):
        return LocalModel(name, manifest, 0, SOURCE, (), "its manifest cannot be read")
    if not chosen:
        why = "it is no GGUF file" if _TENSOR in kinds else "its manifest names no model"
        return LocalModel(name, manifest, 0, SOURCE, (), why)
    hexes = [match[1] for match in digests if match is not None]
    if len(hexes) != len(chosen):
        return LocalModel(name, manifest, 0, SOURCE, (), "its manifest cannot be read")
    files = tuple(root / "blobs" / f"sha256-{digits}" for digits in hexes)
    return LocalModel(name, files[0], sum(map(size_of, files)), SOURCE, files, _why(files, sizes))


def _why(files: tuple[Path, ...], sizes: list[object]) -> str | None:
    if len(files) > 1:
        return f"it is in {len(files)} files, which only Ollama can put together"
    if not files[0].exists():
        return "not fetched to its end"
    if type(sizes[0]) is int and size_of(files[0]) != sizes[0]:
        return "incomplete: its file is not as large as its manifest says"
    return damage(files[0])
