"""Small whole checkpoints on disk, for the tests of this folder: a GGUF file and a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFEndian, GGUFWriter, quantize

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, LAYERS, VOCAB = 32, 4, 2, 8, 64, 2, 48
TEMPLATE = "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(chr(97 + n) for n in range(26))]
TYPES = [3, 3, 3, *([1] * 26)]
MERGES = ["a b", "c d"]


def gguf_values(seed: int = 0) -> dict[str, np.ndarray]:
    """A value for every tensor of the tiny model, by its name in GGUF."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HEADS * HEAD, HIDDEN),
            f"blk.{i}.attn_k.weight": (KV_HEADS * HEAD, HIDDEN),
            f"blk.{i}.attn_v.weight": (KV_HEADS * HEAD, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HEADS * HEAD),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FFN),
        }
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def gguf_metadata() -> dict[str, Any]:
    """The metadata of the tiny model; a test changes what it is about."""
    return {
        "llama.block_count": LAYERS,
        "llama.context_length": 256,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 500000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def write_gguf(
    path: Path,
    changes: dict[str, Any] | None = None,
    values: dict[str, np.ndarray] | None = None,
    kinds: dict[str, Kind] | None = None,
    architecture: str = "llama",
    **writer_options: Any,
) -> Path:
    """Writes the tiny model. A change to None removes the key; `kinds` are F32 by default."""
    writer = GGUFWriter(path, architecture, **writer_options)
    metadata = gguf_metadata() | (changes or {})
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, value in (gguf_values() if values is None else values).items():
        kind = (kinds or {}).get(name, Kind.F32)
        if kind == Kind.F32:
            writer.add_tensor(name, value)
        else:
            writer.add_tensor(name, quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)


BIG = GGUFEndian.BIG


def edit_json(path: Path, **changes: Any) -> None:
    """Sets keys of a JSON file; None removes one."""
    values = json.loads(path.read_text()) if path.exists() else {}
    values |= changes
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
