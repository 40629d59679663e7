"""A GGUF file is read as what was written into it, or refused in one line that says why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, dequantize
from tiny_checkpoints import BIG, MERGES, TEMPLATE, TOKENS, TYPES, VOCAB, gguf_values, write_gguf

from local_tp.checkpoint.gguf_header import KINDS
from local_tp.checkpoint.read import read
from local_tp.core import Dimensions, TensorInfo
from local_tp.errors import CheckpointError
from local_tp.traits import RopeScaling

SIX_KINDS = {
    "token_embd.weight": Kind.Q8_0,
    "blk.0.attn_q.weight": Kind.F16,
    "blk.0.attn_k.weight": Kind.BF16,
    "blk.0.ffn_up.weight": Kind.Q4_0,
    "blk.1.ffn_down.weight": Kind.Q4_1,
}


def stored_values(tensor: TensorInfo) -> np.ndarray:
    """The numbers at a tensor's place in its file, by the gguf package's own dequantizer."""
    with open(tensor.file, "rb") as file:
        file.seek(tensor.offset)
        raw = np.frombuffer(file.read(tensor.nbytes), dtype=np.uint8)
    kind = Kind[tensor.format]
    if kind in (Kind.F32, Kind.F16):
        dtype = np.float32 if kind == Kind.F32 else np.float16
        return raw.view(dtype).astype(np.float32).reshape(tensor.shape)
    rows = raw.reshape(*tensor.shape[:-1], -1)
    return dequantize(rows, kind).reshape(tensor.shape)


def test_dimensions_traits_and_text_are_those_of_the_metadata(tmp_path: Path) -> None:
    checkpoint = read(write_gguf(tmp_path / "tiny.Q4.gguf"))
    spec, text = checkpoint.spec, checkpoint.text
    assert (spec.name, spec.family) == ("tiny.Q4", "llama")
    assert spec.path == str(tmp_path / "tiny.Q4.gguf")
    assert spec.dimensions == Dimensions(2, 32, 4, 2, 8, 64, VOCAB, 256)
    assert spec.traits.norm_eps == pytest.approx(1e-5)
    assert spec.traits.ropes[0].theta == 500000.0
    assert spec.traits.ropes[0].scaling is None
    assert spec.traits.tied_head
    assert not spec.traits.qkv_bias
    assert (text.kind, text.pre, text.bos, text.eos) == ("gpt2", "smollm", 1, 2)
    assert (text.tokens, text.token_types) == (tuple(TOKENS), tuple(TYPES))
    assert (text.merges, text.chat_template) == (tuple(MERGES), TEMPLATE)
    assert text.stop_ids == (2, 0)
    assert not text.add_bos


def test_every_format_is_found_at_its_place(tmp_path: Path) -> None:
    values = gguf_values()
    spec = read(write_gguf(tmp_path / "tiny.gguf", kinds=SIX_KINDS)).spec
    places = {
        "embed": ("token_embd.weight", "Q8_0", 0.02),
        "layers.0.q": ("blk.0.attn_q.weight", "F16", 0.002),
        "layers.0.k": ("blk.0.attn_k.weight", "BF16", 0.02),
        "layers.0.up": ("blk.0.ffn_up.weight", "Q4_0", 0.4),
        "layers.1.down": ("blk.1.ffn_down.weight", "Q4_1", 0.4),
        "layers.1.v": ("blk.1.attn_v.weight", "F32", 0.0),
        "norm": ("output_norm.weight", "F32", 0.0),
    }
    for canonical, (name, stored, tolerance) in places.items():
        tensor = spec.tensors[canonical]
        assert (tensor.format, tensor.shape) == (stored, values[name].shape)
        np.testing.assert_allclose(stored_values(tensor), values[name], atol=tolerance, rtol=0)


def test_places_are_those_the_gguf_library_finds(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", kinds=SIX_KINDS)
    ours = {(t.offset, t.nbytes, t.format) for t in read(path).spec.tensors.values()}
    theirs = {(t.data_offset, t.n_bytes, t.tensor_type.name) for t in GGUFReader(path).tensors}
    assert ours == theirs


def test_only_q_and_k_are_paired(tmp_path: Path) -> None:
    tensors = read(write_gguf(tmp_path / "tiny.gguf")).spec.tensors
    paired = {name for name, tensor in tensors.items() if tensor.paired}
    assert paired == {"layers.0.q", "layers.0.k", "layers.1.q", "layers.1.k"}


def test_head_biases_and_rope_factors_are_found(tmp_path: Path) -> None:
    values = gguf_values()
    values["output.weight"] = np.ones((VOCAB, 32), np.float32)
    values["rope_freqs.weight"] = np.array([1, 2, 4, 8], np.float32)
    for i in range(2):
        for name, rows in (("q", 32), ("k", 16), ("v", 16)):
            values[f"blk.{i}.attn_{name}.bias"] = np.full(rows, i, np.float32)
    spec = read(write_gguf(tmp_path / "tiny.gguf", values=values)).spec
    assert spec.traits.qkv_bias
    assert not spec.traits.tied_head
    assert spec.tensors["head"].shape == (VOCAB, 32)
    assert stored_values(spec.tensors["rope_factors"]).tolist() == [1, 2, 4, 8]
    assert stored_values(spec.tensors["layers.1.k_bias"]).tolist() == [1] * 16
    assert spec.tensors["layers.1.q_bias"].paired
    assert spec.tensors["layers.1.k_bias"].paired
    assert not spec.tensors["layers.1.v_bias"].paired


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scale_linear": 2.0}, 2.0),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, None),
    ],
)
def test_linear_rope_scaling(
    tmp_path: Path, changes: dict[str, Any], expected: float | None
) -> None:
    scaling = read(write_gguf(tmp_path / "tiny.gguf", changes)).spec.traits.ropes[0].scaling
    assert scaling == (None if expected is None else RopeScaling("linear", expected))


def test_a_sentencepiece_vocabulary_has_its_own_defaults(tmp_path: Path) -> None:
    changes = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": [-float(n) for n in range(len(TOKENS))],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": None,
        "tokenizer.ggml.eos_token_id": None,
        "tokenizer.ggml.add_bos_token": None,
        "tokenizer.chat_template": None,
    }
    text = read(write_gguf(tmp_path / "tiny.gguf", changes)).text
    assert (text.kind, text.bos, text.eos, text.unknown) == ("llama", 1, 2, 0)
    assert text.add_bos
    assert text.add_space_prefix
    assert text.scores[3] == -3.0
    assert text.chat_template is None


def test_without_a_bos_token_none_is_added(tmp_path: Path) -> None:
    changes = {"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.add_bos_token": True}
    text = read(write_gguf(tmp_path / "tiny.gguf", changes)).text
    assert text.bos is None
    assert not text.add_bos


def test_llama3_vocabularies_start_with_bos_without_saying_so(tmp_path: Path) -> None:
    changes = {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": None}
    assert read(write_gguf(tmp_path / "tiny.gguf", changes)).text.add_bos


@pytest.mark.parametrize("given", [1, 2, 3])
def test_parts_are_one_model_whichever_is_given(tmp_path: Path, given: int) -> None:
    whole = read(write_gguf(tmp_path / "whole.gguf"))
    write_gguf(tmp_path / "parts.gguf", split_max_tensors=7)
    names = sorted(path.name for path in tmp_path.glob("parts-*"))
    assert names == [f"parts-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    parts = read(tmp_path / names[given - 1])
    assert (parts.spec.name, parts.text) == ("parts", whole.text)
    assert len({tensor.file for tensor in parts.spec.tensors.values()}) == 3
    for name, tensor in whole.spec.tensors.items():
        np.testing.assert_array_equal(
            stored_values(parts.spec.tensors[name]), stored_values(tensor)
        )


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "parts.gguf", split_max_tensors=7)
    (tmp_path / "parts-00002-of-00003.gguf").unlink()
    with pytest.raises(CheckpointError, match=r"parts-00002-of-00003\.gguf is missing"):
        read(tmp_path / "parts-00001-of-00003.gguf")


def test_renamed_parts_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "parts.gguf", split_max_tensors=7)
    renamed = (tmp_path / "parts-00001-of-00003.gguf").rename(tmp_path / "first.gguf")
    with pytest.raises(CheckpointError, match="one of 3 parts"):
        read(renamed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count = 8 and its tensors have 0"),
        ({"llama.rope.scaling.type": "spiral"}, "'spiral', which is not supported yet"),
        ({"llama.attention.key_length": 16, "llama.rope.dimension_count": 8}, "key_length = 16"),
        ({"llama.attention.head_count_kv": 3}, "head_count_kv = 3 and its tensors have 2"),
        ({"llama.attention.head_count": 0}, "head_count = 0"),
        ({"llama.block_count": None}, "does not say llama.block_count"),
        ({"llama.block_count": 3}, "no tensor 'blk.2.attn_output.weight'"),
        ({"llama.block_count": 4_000_000_000}, "block_count"),
        ({"llama.block_count": 2_000_000_000}, "1 to 1,024 layers"),
        ({"llama.block_count": 1}, "tensor 'blk.1.attn_norm.weight'"),
        ({"llama.feed_forward_length": 96}, "feed_forward_length = 96 and its tensors have 64"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "a positive number"),
        ({"llama.rope.freq_base": "fast"}, "a number"),
        ({"tokenizer.ggml.model": "t5"}, "tokenizer of kind 't5'"),
        ({"tokenizer.ggml.eos_token_id": 4_000}, "a token below 29"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "2 token types for 29 tokens"),
        ({"tokenizer.ggml.tokens": ["a"] * 49}, "49 tokens for 48 rows"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "1 in tokenizer.ggml.tokens, where only str"),
        ({"tokenizer.ggml.merges": None}, "no merges"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", changes)
    with pytest.raises(CheckpointError, match=said) as refused:
        read(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_an_unknown_family_is_named_before_anything_else(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", {}, architecture="mamba")
    with pytest.raises(
        CheckpointError, match=r"family 'mamba', which is not supported yet: .* is llama"
    ):
        read(path)


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    data, name = path.read_bytes(), b"token_embd.weight"
    place = data.index(name) + len(name) + 4 + 2 * 8
    path.write_bytes(data[:place] + int(Kind.IQ3_S).to_bytes(4, "little") + data[place + 4 :])
    with pytest.raises(
        CheckpointError,
        match="stored as IQ3_S, which is not supported yet: choose a file of Q4_K_M",
    ):
        read(path)


def test_an_unused_tensor_is_refused(tmp_path: Path) -> None:
    values = gguf_values() | {"blk.0.post_attention_norm.weight": np.zeros(32, np.float32)}
    with pytest.raises(CheckpointError, match=r"'blk.0.post_attention_norm.weight'.*does not use"):
        read(write_gguf(tmp_path / "tiny.gguf", values=values))


def test_big_endian_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", endianess=BIG)
    with pytest.raises(CheckpointError, match="big-endian"):
        read(path)


def test_the_starter_is_read_quickly(starter: Path) -> None:
    started = time.perf_counter()
    checkpoint = read(starter)
    assert time.perf_counter() - started < 2.0
    assert checkpoint.spec.dimensions == Dimensions(30, 576, 9, 3, 64, 1536, 49152, 8192)
    assert checkpoint.spec.tensors["layers.29.down"].format == "Q4_1"
    assert checkpoint.spec.traits.tied_head
    assert checkpoint.text.tokens[2] == "<|im_end|>"
    assert checkpoint.text.stop_ids == (2, 0)
    norm = stored_values(checkpoint.spec.tensors["norm"])
    assert norm.shape == (576,)
    assert 0.1 < float(norm.mean()) < 20.0


def test_the_numbers_of_the_formats_are_those_of_the_library() -> None:
    assert {int(kind): kind.name for kind in Kind} == KINDS
