"""A GGUF file, or its numbered parts, as a `ModelSpec` and a `TextSpec`.

Knows nothing of bytes (`gguf_header` reads them) nor of what a tensor is for (`families`). Metadata
keys are those of the GGUF specification.
"""

from __future__ import annotations

import re
from pathlib import Path

from local_tp.checkpoint.families import Family, arrange, check_dimensions, gguf_family
from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.gguf_header import GgufHeader, read_header
from local_tp.checkpoint.gguf_text import read_gguf_text
from local_tp.core import Dimensions, ModelSpec, RopeScaling, TensorInfo, Traits
from local_tp.errors import CheckpointError
from local_tp.text import TextSpec

_PART = re.compile(r"-\d{5}-of-(?P<count>\d{5})$")

_MOST_PARTS = 1000


def read_gguf(path: Path) -> tuple[ModelSpec, TextSpec]:
    """Reads the header of `path` and of the parts beside it.

    Raises `CheckpointError`; `OSError` passes through.
    """
    headers = parts(path)
    metadata = headers[0].metadata
    architecture = metadata.text("general.architecture")
    if architecture is None:
        raise CheckpointError(f"{path} does not say general.architecture: it holds no model")
    family = gguf_family(str(path), architecture)
    stored = _merged(headers)
    spec = _model(path, family, metadata, stored)
    return spec, read_gguf_text(metadata, spec.dimensions.vocab)


def model_name(path: Path) -> str:
    """A GGUF file's name without its ending and its part number."""
    return _PART.sub("", path.stem)


# ------------------------------------------------------------------------------- the parts


def parts(path: Path) -> list[GgufHeader]:
    """The headers of every part of a model, first part first, whichever part was given."""
    header = read_header(path)
    count = header.metadata.integer("split.count", default=1, least=0)
    if count <= 1:
        return [header]
    match = _PART.search(path.stem)
    if match is None or int(match["count"]) != count or count > _MOST_PARTS:
        raise CheckpointError(
            f"{path} is one of {count} parts: give all of them the names they were downloaded "
            f"with, ending in -00001-of-{count:05}.gguf"
        )
    stem = path.stem[: match.start()]
    files = [path.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{file} is missing: download all {count} parts into one folder")
    return [header if file == path else read_header(file) for file in files]


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
    path: Path, family: Family, metadata: Fields, stored: dict[str, TensorInfo]
) -> ModelSpec:
    names = family.gguf_names
    embed = stored.get(names["embed"])
    if embed is None:
        raise CheckpointError(
            f"{path} has no tensor {names['embed']!r}: it holds no language model"
        )
    dimensions = check_dimensions(str(path), _dimensions(family, metadata, vocab=embed.shape[0]))
    traits = Traits(
        norm_eps=metadata.real(f"{family.gguf}.attention.layer_norm_rms_epsilon"),
        rope_theta=metadata.real(f"{family.gguf}.rope.freq_base", default=10000.0),
        rope_scaling=_rope_scaling(family, metadata),
        qkv_bias=names["layers.{i}.q_bias"].format(i=0) in stored,
        tied_head=names["head"] not in stored,
    )
    tensors = arrange(str(path), family, "gguf", stored, dimensions, traits)
    return ModelSpec(model_name(path), str(path), family.name, dimensions, traits, tensors)


def _dimensions(family: Family, metadata: Fields, vocab: int) -> Dimensions:
    prefix = family.gguf
    if metadata.integer(f"{prefix}.expert_count", default=0, least=0):
        raise CheckpointError(
            f"{metadata.source} is a mixture of experts, which is not supported yet: "
            "choose a dense model"
        )
    hidden = metadata.integer(f"{prefix}.embedding_length")
    heads = metadata.integer(f"{prefix}.attention.head_count")
    rotary = metadata.integer(f"{prefix}.rope.dimension_count", default=max(1, hidden // heads))
    head_dim = metadata.integer(f"{prefix}.attention.key_length", default=rotary)
    value_dim = metadata.integer(f"{prefix}.attention.value_length", default=head_dim)
    if not head_dim == rotary == value_dim:
        raise CheckpointError(
            f"{metadata.source} has heads of {head_dim} for keys, {value_dim} for values and "
            f"{rotary} rotated, which is not supported: choose another model"
        )
    return Dimensions(
        layers=metadata.integer(f"{prefix}.block_count"),
        hidden=hidden,
        query_heads=heads,
        kv_heads=metadata.integer(f"{prefix}.attention.head_count_kv", default=heads),
        head_dim=head_dim,
        ffn=metadata.integer(f"{prefix}.feed_forward_length"),
        vocab=vocab,
        context=metadata.integer(f"{prefix}.context_length"),
    )


def _rope_scaling(family: Family, metadata: Fields) -> RopeScaling | None:
    """Linear scaling. (llama3's comes as a tensor, `rope_factors`, and needs nothing here.)"""
    kind = metadata.text(f"{family.gguf}.rope.scaling.type")
    older = metadata.real(f"{family.gguf}.rope.scale_linear", default=1.0)
    factor = metadata.real(f"{family.gguf}.rope.scaling.factor", default=older)
    if kind not in (None, "none", "linear"):
        raise CheckpointError(
            f"{metadata.source} scales its rotary embedding by {shown(kind)}, which is not "
            "supported yet: choose a model with linear or llama3 scaling"
        )
    return RopeScaling("linear", factor) if kind != "none" and factor != 1.0 else None
