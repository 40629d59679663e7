"""A Hugging Face model folder (`config.json` and `*.safetensors`) as a `ModelSpec`.

Knows nothing of text (`folder_text` reads that). The `safetensors` library does not give a tensor's
place in the file, which loading needs, so the header is read here: 8 bytes of length, then JSON of
{name: dtype, shape, data_offsets}. No length is believed before the file is seen to hold it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

from local_tp.checkpoint.arrange import arrange, stored_shapes, text_part
from local_tp.checkpoint.config_shape import shape_from_config
from local_tp.checkpoint.config_traits import config_traits, layer_kinds
from local_tp.checkpoint.expert_tensors import gathered
from local_tp.checkpoint.families import Family, folder_family
from local_tp.checkpoint.fields import LARGEST_COUNT, Fields, shown
from local_tp.checkpoint.formats import FORMATS, RAW_BYTES
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.quantized_folder import assembled, quantization
from local_tp.checkpoint.shapes import spec_of
from local_tp.core import ModelSpec, Span, TensorInfo
from local_tp.errors import CheckpointError

CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_DTYPES = ("F32", "F16", "BF16", *RAW_BYTES)
_LARGEST_CONFIG = 1 << 20
_LARGEST_HEADER = 1 << 24  # of one file: about 100,000 tensors


def read_folder(folder: Path) -> ModelSpec:
    """Reads the config and the headers in `folder`.

    Raises `CheckpointError`; `OSError` passes through.
    """
    if not (folder / CONFIG).is_file():
        otherwise = "give a .gguf file or a Hugging Face model folder"
        raise CheckpointError(f"{folder} has no {CONFIG}: {_instead(folder, otherwise)}")
    whole = Fields.from_json(folder / CONFIG, _LARGEST_CONFIG)
    config = whole.inner("text_config") or whole
    model_type = config.text("model_type") or whole.text("model_type")
    family = folder_family(whole.source, model_type, lambda: _names(folder))
    shape, _ = shape_from_config(whole.values, whole.source)
    traits = config_traits(config, family, shape)
    wanted = replace(
        spec_of(shape, folder.name, family.name, mix("F32")),
        path=str(folder),
        traits=traits,
        kinds=layer_kinds(config, shape),
    )
    stored, left_out = text_part(_stored(folder, family), _predictors(config, shape.layers))
    stated = quantization(folder, whole) or quantization(folder, config)
    stored = assembled(stated, stored, stored_shapes(family.folder, wanted))
    stored = gathered(str(folder), family.folder, stored)
    tensors = arrange(str(folder), family, family.folder, stored, wanted)
    return replace(wanted, tensors=tensors, left_out=left_out)


def _predictors(config: Fields, layers: int) -> Span:
    """The numbers of the layers behind a model's own."""
    older = config.integer("num_nextn_predict_layers", default=0, least=0)
    return Span(layers, layers + config.integer("num_mtp_layers", default=older, least=0))


def _instead(folder: Path, otherwise: str) -> str:
    gguf = sorted(file.name for file in folder.glob("*.gguf"))
    if gguf:
        return f"to run a GGUF file in it, give its path, such as {folder / gguf[0]}"
    return otherwise


# ------------------------------------------------------------------------------ the config


# ----------------------------------------------------------------------------- the tensors


def _stored(folder: Path, family: Family) -> dict[str, TensorInfo]:
    stored: dict[str, TensorInfo] = {}
    for file in _files(folder):
        for name, tensor in _header(file, family.folder.unused).items():
            if name in stored:
                raise CheckpointError(
                    f"{file} has tensor {shown(name)} again, which another file has too: keep the "
                    "files of one model in the folder"
                )
            stored[name] = tensor
    return stored


def _names(folder: Path) -> tuple[str, ...]:
    """The names of the text part's tensors, or of none where the files cannot be read."""
    try:
        stored = {name: info for file in _files(folder) for name, info in _header(file, ()).items()}
    except CheckpointError:
        return ()
    return tuple(text_part(stored)[0])


def _files(folder: Path) -> list[Path]:
    """The files the index names, or the single file, or all there are."""
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        otherwise = "download them with the model (other weight files are not read)"
        raise CheckpointError(f"{folder} has no .safetensors files: {_instead(folder, otherwise)}")
    return files


def _indexed(folder: Path) -> list[Path]:
    index = Fields.from_json(folder / _INDEX, _LARGEST_HEADER)
    places = index.inner("weight_map")
    if places is None or not places.values:
        raise CheckpointError(f"{index.source} is damaged: it has no weight_map; download it again")
    names = sorted({places.text(key) or "" for key in places.values})
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index.source} is damaged: it names a file {shown(name)}")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name} is missing: download all {len(names)} files")
    return [folder / name for name in names]


def _header(file: Path, unused: tuple[str, ...]) -> dict[str, TensorInfo]:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(0)
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or not 2 <= length <= min(_LARGEST_HEADER, size - 8):
            raise CheckpointError(f"{file} is not a whole safetensors file: download it again")
        header = Fields.from_bytes(str(file), opened.read(length))
    tensors = {}
    for name in header.values:
        if name == "__metadata__" or name.endswith(unused):
            continue
        entry = header.inner(name)
        if entry is not None:
            tensors[name] = _tensor(file, name, entry, 8 + length, size)
    return tensors


def _tensor(file: Path, name: str, entry: Fields, start: int, size: int) -> TensorInfo:
    """The tensor's place in the file, which must hold all of it."""
    tensor, dtype = f"{file}: tensor {shown(name)}", entry.text("dtype")
    if dtype not in _DTYPES:
        raise CheckpointError(
            f"{tensor} is stored as {shown(dtype)}, which is not supported yet: "
            "use F32, F16 or BF16, or a GGUF file"
        )
    shape, offsets = entry.integers("shape") or (1,), entry.integers("data_offsets")
    if not all(0 < extent <= LARGEST_COUNT for extent in shape):
        raise entry.wrong("shape", "sizes of 1 or more")
    nbytes = FORMATS[dtype].nbytes(prod(shape[:-1]), shape[-1])
    if len(offsets) != 2 or offsets[0] < 0 or offsets[1] - offsets[0] != nbytes:
        raise entry.wrong("data_offsets", f"two places {nbytes} bytes apart")
    if start + offsets[1] > size:
        raise CheckpointError(
            f"{tensor} ends at byte {start + offsets[1]:,} and the file has {size:,}: "
            "the file is incomplete; download it again"
        )
    return TensorInfo(shape, dtype, nbytes, str(file), start + offsets[0])
