"""A Hugging Face model folder (`config.json` and `*.safetensors`) as a `ModelSpec`.

Knows nothing of text (`folder_text` reads that). The `safetensors` library does not give a tensor's
place in the file, which loading needs, so the header is read here: 8 bytes of length, then JSON of
{name: dtype, shape, data_offsets}. No length is believed before the file is seen to hold it.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

from local_tp.checkpoint.families import Family, arrange, check_dimensions, folder_family
from local_tp.checkpoint.fields import LARGEST_COUNT, Fields, shown
from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Dimensions, ModelSpec, RopeScaling, TensorInfo, Traits
from local_tp.errors import CheckpointError

CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_DTYPES = ("F32", "F16", "BF16")
_LARGEST_CONFIG = 1 << 20
_LARGEST_HEADER = 1 << 24  # of one file: about 100,000 tensors


def read_folder(folder: Path) -> ModelSpec:
    """Reads the config and the headers in `folder`.

    Raises `CheckpointError`; `OSError` passes through.
    """
    if not (folder / CONFIG).is_file():
        otherwise = "give a .gguf file or a Hugging Face model folder"
        raise CheckpointError(f"{folder} has no {CONFIG}: {_instead(folder, otherwise)}")
    config = Fields.from_json(folder / CONFIG, _LARGEST_CONFIG)
    architectures = config.texts("architectures")
    family = folder_family(
        config.source, architectures[0] if architectures else None, config.text("model_type")
    )
    _refuse_variants(config)
    dimensions = check_dimensions(config.source, _dimensions(config))
    traits = Traits(
        norm_eps=config.real("rms_norm_eps", default=1e-6),
        rope_theta=_rope_theta(config),
        rope_scaling=_rope_scaling(config),
        qkv_bias=config.flag("attention_bias", default=False),
        tied_head=config.flag("tie_word_embeddings", default=False),
    )
    stored = _stored(folder, family)
    tensors = arrange(str(folder), family, "folder", stored, dimensions, traits)
    return ModelSpec(folder.name, str(folder), family.name, dimensions, traits, tensors)


def _instead(folder: Path, otherwise: str) -> str:
    gguf = sorted(file.name for file in folder.glob("*.gguf"))
    if gguf:
        return f"to run a GGUF file in it, give its path, such as {folder / gguf[0]}"
    return otherwise


# ------------------------------------------------------------------------------ the config


def _refuse_variants(config: Fields) -> None:
    """Refuses what a config can ask for beyond the decoder's maths."""
    if config.get("quantization_config") is not None:
        raise CheckpointError(
            f"{config.source} says that the weights are quantized, which is supported only in GGUF "
            "files: choose a GGUF or the unquantized model"
        )
    if config.flag("mlp_bias", default=False):
        raise config.wrong("mlp_bias", "false (biases in the MLP are not supported yet)")
    if config.text("hidden_act") not in (None, "silu"):
        raise config.wrong("hidden_act", "'silu'")


def _dimensions(config: Fields) -> Dimensions:
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    return Dimensions(
        layers=config.integer("num_hidden_layers"),
        hidden=hidden,
        query_heads=heads,
        kv_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=config.integer("head_dim", default=max(1, hidden // heads)),
        ffn=config.integer("intermediate_size"),
        vocab=config.integer("vocab_size"),
        context=config.integer("max_position_embeddings", default=2048),
    )


def _rope_theta(config: Fields) -> float:
    """`rope_theta` stands in `rope_parameters` since transformers 5, and beside it before."""
    older = config.real("rope_theta", default=10000.0)
    inner = config.inner("rope_parameters")
    return older if inner is None else inner.real("rope_theta", default=older)


def _rope_scaling(config: Fields) -> RopeScaling | None:
    """From `rope_parameters`, or from the older `rope_scaling`, whose kind may stand in `type`."""
    rope = config.inner("rope_parameters") or config.inner("rope_scaling")
    if rope is None:
        return None
    if rope.real("partial_rotary_factor", default=1.0) != 1.0:
        raise rope.wrong("partial_rotary_factor", "1")
    kind = rope.text("rope_type") or rope.text("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", rope.real("factor"))
    if kind == "llama3":
        return _llama3(config, rope)
    raise CheckpointError(
        f"{rope.source} scales the rotary embedding by {shown(kind)}, which is not supported yet: "
        "choose a model with linear or llama3 scaling"
    )


def _llama3(config: Fields, rope: Fields) -> RopeScaling:
    low, high = rope.real("low_freq_factor"), rope.real("high_freq_factor")
    if low >= high:  # the blend between them divides by their difference
        raise rope.wrong("high_freq_factor", f"a number above low_freq_factor ({low})")
    context = config.integer("max_position_embeddings", default=2048)
    original = rope.integer("original_max_position_embeddings", default=context)
    return RopeScaling("llama3", rope.real("factor"), low, high, original)


# ----------------------------------------------------------------------------- the tensors


def _stored(folder: Path, family: Family) -> dict[str, TensorInfo]:
    stored: dict[str, TensorInfo] = {}
    for file in _files(folder):
        for name, tensor in _header(file, family.unused).items():
            if name in stored:
                raise CheckpointError(
                    f"{file} has tensor {shown(name)} again, which another file has too: keep the "
                    "files of one model in the folder"
                )
            stored[name] = tensor
    return stored


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
    shape, offsets = entry.integers("shape"), entry.integers("data_offsets")
    if not shape or not all(0 < extent <= LARGEST_COUNT for extent in shape):
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
