"""GGUF files of transformers' models, as llama.cpp's converter would write them, in float32.

Names are those of the gguf package's own map; what else a converter does to a family's tensors
(their order, norms plus one) is a `Change`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import gguf
import torch
from family_models import Reference
from safetensors.torch import load_file
from torch import Tensor

Value = bool | int | float | str | list[int] | list[float] | list[bool]
Change = Callable[[str, Tensor], Iterable[tuple[str, Tensor]]]  # transformers' names


def unchanged(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    yield name, tensor


def in_pairs(rows: Tensor, heads: int) -> Tensor:
    """Rows (or a bias) of heads in halves, put in interleaved rotary pairs."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def write_gguf(
    path: Path,
    architecture: gguf.MODEL_ARCH,
    reference: Reference,
    metadata: Mapping[str, Value],
    change: Change = unchanged,
    extra: Mapping[str, Tensor] | None = None,
) -> Path:
    """The reference's model; keys of `metadata` lack the architecture's name and come first.

    `extra` are tensors by their GGUF names. Tensors whose transformers name the map does not know
    are an error.
    """
    config = reference.model.config.get_text_config()
    name = gguf.MODEL_ARCH_NAMES[architecture]
    writer = gguf.GGUFWriter(path, name)
    common: dict[str, Value] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
    }
    for key, value in (common | dict(metadata)).items():
        _add(writer, f"{name}.{key}", value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_token_types([1] * config.vocab_size)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for stored, tensor in load_file(reference.folder / "model.safetensors").items():
        for changed, value in change(stored, tensor):
            given = names.get_name(changed, try_suffixes=(".weight", ".bias"))
            assert given is not None, changed
            writer.add_tensor(given, value.contiguous().numpy())
    for given, value in (extra or {}).items():
        writer.add_tensor(given, value.to(torch.float32).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
