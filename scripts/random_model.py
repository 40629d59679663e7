"""Writes llama models of random numbers, of any size: for measurements that ask nothing of text.

A GGUF file in any format that is read or a mix of them, or a folder of safetensors. A block of
random bytes is used again and again, so that gigabytes take seconds. The tokenizer knows no words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf
import numpy

from local_tp.checkpoint.families import gguf_family
from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.mixes import Place, mix
from local_tp.core import Dimensions

RANDOM_BYTES = 1 << 22
# Where the float16 scales and minima of a block lie, and what makes its numbers small.
SCALES: Mapping[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 3e-3),),
    "Q4_1": ((0, 3e-3), (2, -0.02)),
    "Q5_0": ((0, 1.5e-3),),
    "Q5_1": ((0, 1.5e-3), (2, -0.023)),
    "Q8_0": ((0, 3e-3),),
    "IQ4_NL": ((0, 3e-4),),
    "IQ4_XS": ((0, 2e-5),),
    "Q2_K": ((80, 1e-3), (82, 1.5e-3)),
    "Q3_K": ((108, 5e-4),),
    "Q4_K": ((0, 1e-4), (2, 7.5e-4)),
    "Q5_K": ((0, 5e-5), (2, 7.5e-4)),
    "Q6_K": ((208, 1.5e-5),),
}
TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def write_gguf(path: Path, d: Dimensions, form: str, tied: bool = False) -> None:
    """One file whose matrices are all stored as `form`, or as a mix of that name has them."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(d.layers)
    writer.add_embedding_length(d.hidden)
    writer.add_head_count(d.query_heads)
    writer.add_head_count_kv(d.kv_heads)
    writer.add_key_length(d.head_dim)
    writer.add_value_length(d.head_dim)
    writer.add_feed_forward_length(d.ffn)
    writer.add_context_length(d.context)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(d.vocab)])
    writer.add_token_scores([0.0] * d.vocab)
    writer.add_token_types([1] * d.vocab)
    names = gguf_family("a random model", "llama").gguf.names
    tensors = []
    for layer, name, shape in _shapes(d, tied):
        stored = "F32" if len(shape) == 1 else form
        if stored not in FORMATS:
            groups = d.query_heads // d.kv_heads
            place = Place(name, layer or 0, d.layers, shape[1], groups)
            stored = mix(form).format_of(place, tied)
        data = _values(stored, shape)
        kind = gguf.GGMLQuantizationType[stored]
        full = _stored_name(names, layer, name)
        writer.add_tensor_info(full, data.shape, data.dtype, data.nbytes, raw_dtype=kind)
        tensors.append((stored, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for stored, shape in tensors:
        writer.write_tensor_data(_values(stored, shape))
    writer.close()


def write_folder(folder: Path, d: Dimensions, form: str, tied: bool = False) -> None:
    """A Hugging Face folder whose tensors are all stored as `form` (F32, F16 or BF16)."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": d.hidden,
        "num_attention_heads": d.query_heads,
        "num_key_value_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "num_hidden_layers": d.layers,
        "intermediate_size": d.ffn,
        "vocab_size": d.vocab,
        "max_position_embeddings": d.context,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
        "torch_dtype": TORCH_NAMES[form],
    }
    vocabulary = {f"t{i}": i for i in range(d.vocab)}
    tokenizer = {"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    names = gguf_family("a random model", "llama").folder.names
    header: dict[str, object] = {}
    shapes, at = [], 0
    for layer, name, shape in _shapes(d, tied):
        nbytes = FORMATS[form].nbytes(*(shape if len(shape) == 2 else (shape[0], 1)))
        entry = {"dtype": form, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        header[_stored_name(names, layer, name)] = entry
        shapes.append(shape)
        at += nbytes
    written = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(written).to_bytes(8, "little") + written)
        for shape in shapes:
            _values(form, shape).tofile(file)


def _stored_name(names: Mapping[str, str], layer: int | None, name: str) -> str:
    """What a family's row calls a tensor of a layer, or one outside them."""
    return names[name] if layer is None else names[f"layers.{{i}}.{name}"].format(i=layer)


def _shapes(d: Dimensions, tied: bool) -> Iterator[tuple[int | None, str, tuple[int, ...]]]:
    """(layer, canonical name, shape) of every tensor."""
    query, key = d.query_heads * d.head_dim, d.kv_heads * d.head_dim
    yield None, "embed", (d.vocab, d.hidden)
    for layer in range(d.layers):
        yield layer, "attn_norm", (d.hidden,)
        yield layer, "q", (query, d.hidden)
        yield layer, "k", (key, d.hidden)
        yield layer, "v", (key, d.hidden)
        yield layer, "o", (d.hidden, query)
        yield layer, "ffn_norm", (d.hidden,)
        yield layer, "gate", (d.ffn, d.hidden)
        yield layer, "up", (d.ffn, d.hidden)
        yield layer, "down", (d.hidden, d.ffn)
    yield None, "norm", (d.hidden,)
    if not tied:
        yield None, "head", (d.vocab, d.hidden)


def _values(form: str, shape: tuple[int, ...]) -> numpy.ndarray:
    """A tensor as stored: rows of bytes for a quantized form, small numbers for a plain one."""
    random = numpy.random.default_rng(len(shape))
    if not FORMATS[form].quantized:
        scale = 0.02 if len(shape) == 2 else 1.0
        numbers = (random.standard_normal(RANDOM_BYTES // 4) * scale).astype(numpy.float32)
        if form == "BF16":
            return numpy.resize((numbers.view(numpy.uint32) >> 16).astype(numpy.uint16), shape)
        return numpy.resize(
            numbers.astype(numpy.float16 if form == "F16" else numpy.float32), shape
        )
    block = FORMATS[form].block_bytes
    blocks = random.integers(0, 256, (RANDOM_BYTES // block, block), dtype=numpy.uint8)
    for at, small in SCALES[form]:
        blocks[:, at : at + 2] = numpy.array([small], "<f2").view(numpy.uint8)
    return numpy.resize(blocks, (shape[0], FORMATS[form].nbytes(1, shape[1])))
