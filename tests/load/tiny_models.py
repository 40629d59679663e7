"""Whole small models on disk in both layouts, and the numbers that a rank of them must hold."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from block_writer import quantized
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import save_file

from local_tp.core import Placement

Values = dict[str, np.ndarray]

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCAB = 3, 64, 8, 4, 32, 256, 320
FOLDER_HEADS, FOLDER_KV_HEADS, FOLDER_HEAD, FOLDER_FFN, FOLDER_VOCAB = 6, 2, 16, 72, 50

GGUF_NAMES = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "ffn_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
FOLDER_NAMES = {
    "embed": "embed_tokens.weight",
    "norm": "norm.weight",
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def shapes(
    heads: int, kv_heads: int, head_dim: int, ffn: int, vocab: int, hidden: int = HIDDEN
) -> dict[str, tuple[int, ...]]:
    """Shapes by canonical name, layers unrolled."""
    query, key = heads * head_dim, kv_heads * head_dim
    found: dict[str, tuple[int, ...]] = {"embed": (vocab, hidden), "norm": (hidden,)}
    for i in range(LAYERS):
        found |= {
            f"layers.{i}.attn_norm": (hidden,),
            f"layers.{i}.q": (query, hidden),
            f"layers.{i}.k": (key, hidden),
            f"layers.{i}.v": (key, hidden),
            f"layers.{i}.o": (hidden, query),
            f"layers.{i}.ffn_norm": (hidden,),
            f"layers.{i}.gate": (ffn, hidden),
            f"layers.{i}.up": (ffn, hidden),
            f"layers.{i}.down": (hidden, ffn),
        }
    return found


def stored_name(names: dict[str, str], canonical: str) -> tuple[str, str]:
    """(where it stands: "" or the layer's number, the file's name for it)."""
    *layer, part = canonical.split(".")
    return layer[-1] if layer else "", names[part]


def in_halves(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of rotary pairs one after another, put half a head apart: one row at a time."""
    out = np.empty_like(rows)
    for head in range(0, len(rows), head_dim):
        for pair in range(head_dim // 2):
            out[head + pair] = rows[head + 2 * pair]
            out[head + head_dim // 2 + pair] = rows[head + 2 * pair + 1]
    return out


def write_gguf(
    path: Path,
    matrices: str,
    changes: dict[str, str] | None = None,
    hidden: int = HIDDEN,
    ffn: int = FFN,
    size: float = 1.0,
    tied: bool = False,
) -> Values:
    """A GGUF llama with a head of its own; returns its numbers, rows of q and k in halves.

    `changes` gives some tensors, by the last part of their name, another format than `matrices`.
    Numbers of matrices are `size` large on average.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(hidden)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_feed_forward_length(ffn)
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([1] * VOCAB)
    random, values = np.random.default_rng(0), Values()
    wanted = shapes(HEADS, KV_HEADS, HEAD, ffn, VOCAB, hidden)
    wanted |= {} if tied else {"head": (VOCAB, hidden)}
    for canonical, shape in wanted.items():
        layer, name = stored_name(GGUF_NAMES, canonical)
        part = canonical.split(".")[-1]
        form = "F32" if len(shape) == 1 else (changes or {}).get(part, matrices)
        numbers = random.standard_normal(shape) * (size if len(shape) == 2 else 1.0)
        stored = quantized(numbers.astype(np.float32), form)
        full = f"blk.{layer}.{name}.weight" if layer else f"{name}.weight"
        writer.add_tensor(full, stored, raw_dtype=Kind[form])
        known = gguf.dequantize(stored, Kind[form]).astype(np.float32).reshape(shape)
        values[canonical] = in_halves(known, HEAD) if part in ("q", "k") else known
    values["rope_factors"] = np.linspace(1, 8, HEAD // 2, dtype=np.float32)
    writer.add_tensor("rope_freqs.weight", values["rope_factors"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def write_folder(folder: Path, dtype: torch.dtype) -> Values:
    """A model folder with biases and a tied head, in two files; returns its numbers."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": True,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": FOLDER_HEADS,
        "num_key_value_heads": FOLDER_KV_HEADS,
        "head_dim": FOLDER_HEAD,
        "intermediate_size": FOLDER_FFN,
        "vocab_size": FOLDER_VOCAB,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    random, values = torch.Generator().manual_seed(0), Values()
    files: list[dict[str, torch.Tensor]] = [{}, {}]
    wanted = shapes(FOLDER_HEADS, FOLDER_KV_HEADS, FOLDER_HEAD, FOLDER_FFN, FOLDER_VOCAB)
    for i in range(LAYERS):
        for part in ("q", "k", "v"):
            wanted[f"layers.{i}.{part}_bias"] = wanted[f"layers.{i}.{part}"][:1]
    for at, (canonical, shape) in enumerate(wanted.items()):
        layer, name = stored_name(FOLDER_NAMES, canonical)
        stored = torch.randn(shape, generator=random).to(dtype)
        full = f"model.layers.{layer}.{name}" if layer else f"model.{name}"
        files[at % 2][full] = stored
        values[canonical] = stored.float().numpy()
    index = {name: f"part-{i}.safetensors" for i, file in enumerate(files) for name in file}
    for i, file in enumerate(files):
        save_file(file, folder / f"part-{i}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return values


def expected(values: Values, p: Placement, head_dim: int) -> Values:
    """The parameters of one rank, cut from the whole model's numbers."""
    heads, keys, ffn = p.query_heads, p.kv_heads, slice(*p.ffn)
    query = slice(heads.start * head_dim, heads.stop * head_dim)
    key = slice(keys.start * head_dim, keys.stop * head_dim)
    found = Values()
    if "rope_factors" in values:
        found["rope_factors"] = values["rope_factors"]
    if p.layers.start == 0 and p.vocab.size:
        found["embed"] = values["embed"][slice(*p.vocab)]
    for i in range(*p.layers):
        v = {k.split(".")[-1]: x for k, x in values.items() if k.startswith(f"layers.{i}.")}
        at = f"layers.{i}."
        if heads.size:
            found[at + "attn_norm"] = v["attn_norm"]
            found[at + "qkv"] = np.concatenate((v["q"][query], v["k"][key], v["v"][key]))
            found[at + "o"] = v["o"][:, query]
            if "q_bias" in v:
                biases = (v["q_bias"][query], v["k_bias"][key], v["v_bias"][key])
                found[at + "qkv_bias"] = np.concatenate(biases)
        if p.ffn.size:
            found[at + "ffn_norm"] = v["ffn_norm"]
            found[at + "gate_up"] = np.concatenate((v["gate"][ffn], v["up"][ffn]))
            found[at + "down"] = v["down"][:, ffn]
    if p.layers.stop == LAYERS:
        found["norm"] = values["norm"]
        if p.vocab.size and ("head" in values or p.layers.start > 0):
            found["head"] = values.get("head", values["embed"])[slice(*p.vocab)]
    return found
