"""A GGUF file, or its numbered parts, as a `ModelSpec` and a `TextSpec`.

Knows nothing of bytes (`gguf_header` reads them) nor of what a tensor is for (`families`). Metadata
keys are those of the GGUF specification.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from local_tp.checkpoint.arrange import arrange
from local_tp.checkpoint.expert_tensors import gathered
from local_tp.checkpoint.families import Family, gguf_family
from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.gguf_header import GgufHeader
from local_tp.checkpoint.gguf_parts import model_name, parts
from local_tp.checkpoint.gguf_shape import shape_from_gguf
from local_tp.checkpoint.gguf_text import read_gguf_text
from local_tp.checkpoint.gguf_traits import gguf_traits
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import ModelSpec, TensorInfo
from local_tp.errors import CheckpointError
from local_tp.text import TextSpec

PREDICTOR = "its multi-token prediction is not loaded"  # as `arrange.text_part` says it


def read_gguf(path: Path) -> tuple[ModelSpec, TextSpec]:
    """Reads the header of `path` and of the parts beside it.

    Raises `CheckpointError`; `OSError` passes through.
    """
    headers = parts(path)
    metadata = headers[0].metadata
    architecture = metadata.text("general.architecture")
    if architecture is None:
        raise CheckpointError(f"{path} does not say general.architecture: it holds no model")
    names = (entry.name for header in headers for entry in header.entries)
    family = gguf_family(str(path), architecture, names)
    stored = _merged(headers)
    spec = _model(path, family, headers, stored)
    return spec, read_gguf_text(metadata, spec.dimensions.vocab)


def _merged(headers: list[GgufHeader]) -> dict[str, TensorInfo]:
    stored: dict[str, TensorInfo] = {}
    for header in headers:
        for name, tensor in header.tensors().items():
            if name in stored:
                raise CheckpointError(
                    f"{header.metadata.source} has tensor {shown(name)} again, which another part "
                    "has too: the parts are of different models, download them again"
                )
            stored[name] = tensor
    return stored


# ------------------------------------------------------------------------------- the model


def _model(
    path: Path, family: Family, headers: list[GgufHeader], stored: dict[str, TensorInfo]
) -> ModelSpec:
    metadata, source = headers[0].metadata, str(path)
    if family.gguf.names["embed"] not in stored:
        raise CheckpointError(
            f"{path} has no tensor {family.gguf.names['embed']!r}: it holds no language model"
        )
    prefix = metadata.text("general.architecture") or ""
    shape = shape_from_gguf(source, metadata, [e for h in headers for e in h.entries])
    stored = gathered(source, family.gguf, stored)
    left_out: tuple[str, ...] = ()
    if metadata.integer(f"{prefix}.nextn_predict_layers", default=0, least=0):
        stored, left_out = _own_layers(stored, shape.layers), (PREDICTOR,)
    _check_stated(metadata, prefix, shape)
    traits = gguf_traits(metadata, prefix, family, shape)
    wanted = spec_of(shape, model_name(path), family.name, mix("F32"))
    wanted = replace(wanted, path=source, traits=traits)
    tensors = arrange(source, family, family.gguf, stored, wanted)
    return replace(wanted, tensors=tensors, left_out=left_out)


def _own_layers(stored: dict[str, TensorInfo], layers: int) -> dict[str, TensorInfo]:
    """Without those behind a model's layers, which predict tokens after the next."""
    behind = re.compile(r"blk\.(\d{1,9})\.")
    return {
        name: tensor
        for name, tensor in stored.items()
        if (match := behind.match(name)) is None or int(match[1]) < layers
    }


def _check_stated(metadata: Fields, prefix: str, shape: Shape) -> None:
    """Refuses sizes in the metadata that are not those of the tensors."""
    sizes = {
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.ffn or None,
        "attention.head_count_kv": None if shape.kv_rank else shape.kv_heads,
        "attention.key_length": None if shape.kv_rank else shape.full_head_dim or shape.head_dim,
        "expert_count": shape.experts,
        "rope.dimension_count": shape.rope_dim or None,
    }
    for key, found in sizes.items():
        stated = metadata.get(f"{prefix}.{key}")
        if type(stated) is int and found is not None and stated != found:
            raise CheckpointError(
                f"{metadata.source} is damaged: it says {prefix}.{key} = {stated} and its tensors "
                f"have {found}; download it again"
            )
