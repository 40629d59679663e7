"""A model folder as transformers saves it is read as what it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_checkpoints import edit_json
from tokenizers import Tokenizer, models, processors
from transformers import LlamaConfig

from local_tp.checkpoint.read import read
from local_tp.core import Dimensions, TensorInfo
from local_tp.errors import CheckpointError
from local_tp.traits import RopeScaling

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCAB = 24, 3, 1, 16, 40, 50
LAYER_SHAPES = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN),
    "self_attn.k_proj.weight": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.v_proj.weight": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_proj.weight": (FFN, HIDDEN),
    "mlp.up_proj.weight": (FFN, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FFN),
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}<|eot_id|>{% endfor %}"


def weights(layers: int = 2) -> dict[str, np.ndarray]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for i in range(layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in LAYER_SHAPES.items()}
    random = np.random.default_rng(1)
    return {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model folder called `tiny`."""
    folder = tmp_path / "tiny"
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 20000.0},
        bos_token_id=0,
        eos_token_id=1,
    ).save_pretrained(folder)
    save_file(weights(), folder / "model.safetensors")
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def special_id(folder: Path, text: str) -> int:
    number = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(text)
    assert number is not None
    return int(number)


def stored_values(tensor: TensorInfo) -> np.ndarray:
    dtype = {"F32": "<f4", "F16": "<f2"}[tensor.format]
    raw = Path(tensor.file).read_bytes()[tensor.offset : tensor.offset + tensor.nbytes]
    return np.frombuffer(raw, dtype).reshape(tensor.shape)


def test_dimensions_and_traits_are_those_of_the_config(folder: Path) -> None:
    spec = read(folder).spec
    assert (spec.name, spec.path, spec.family) == ("tiny", str(folder), "llama")
    assert spec.dimensions == Dimensions(2, HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCAB, 512)
    assert (spec.traits.norm_eps, spec.traits.ropes[0].theta) == (1e-5, 20000.0)
    assert spec.traits.ropes[0].scaling is None
    assert not spec.traits.tied_head
    assert not any(tensor.paired for tensor in spec.tensors.values())


def test_tensors_are_where_the_file_says(folder: Path) -> None:
    spec = read(folder).spec
    values = load_file(folder / "model.safetensors")
    assert len(spec.tensors) == len(values)
    for canonical, name in (
        ("embed", "model.embed_tokens.weight"),
        ("layers.0.q", "model.layers.0.self_attn.q_proj.weight"),
        ("layers.1.down", "model.layers.1.mlp.down_proj.weight"),
        ("layers.1.ffn_norm", "model.layers.1.post_attention_layernorm.weight"),
        ("head", "lm_head.weight"),
    ):
        np.testing.assert_array_equal(stored_values(spec.tensors[canonical]), values[name])


@pytest.mark.parametrize("with_index", [True, False])
def test_several_files_are_one_model(folder: Path, with_index: bool) -> None:
    values = weights()
    halves = [dict(list(values.items())[0::2]), dict(list(values.items())[1::2])]
    files = [f"model-{n:05}-of-00002.safetensors" for n in (1, 2)]
    (folder / "model.safetensors").unlink()
    for file, half in zip(files, halves, strict=True):
        save_file({n: v.astype("f2") for n, v in half.items()}, folder / file)
    if with_index:
        places = {n: file for file, half in zip(files, halves, strict=True) for n in half}
        edit_json(folder / "model.safetensors.index.json", weight_map=places)
    tensors = read(folder).spec.tensors
    assert {Path(tensor.file).name for tensor in tensors.values()} == set(files)
    expected = values["model.layers.1.mlp.up_proj.weight"].astype("f2")
    np.testing.assert_array_equal(stored_values(tensors["layers.1.up"]), expected)
    (folder / files[1]).unlink()
    with pytest.raises(CheckpointError, match=r"missing|has no tensor"):
        read(folder)


def test_an_index_cannot_lead_out_of_the_folder(folder: Path) -> None:
    save_file(weights(), folder.parent / "outside.safetensors")
    edit_json(folder / "model.safetensors.index.json", weight_map={"a": "../outside.safetensors"})
    with pytest.raises(CheckpointError, match="it names a file"):
        read(folder)


def test_a_tied_head_is_the_embedding_even_where_both_are_stored(folder: Path) -> None:
    edit_json(folder / "config.json", tie_word_embeddings=True)
    spec = read(folder).spec
    assert spec.traits.tied_head
    assert "head" not in spec.tensors


def test_biases_of_q_k_and_v(folder: Path) -> None:
    edit_json(folder / "config.json", attention_bias=True)
    with pytest.raises(CheckpointError, match=r"no tensor 'model.layers.0.self_attn.q_proj.bias'"):
        read(folder)
    values = weights()
    for i in range(2):
        for name, rows in (("q", HEADS * HEAD), ("k", HEAD), ("v", HEAD)):
            values[f"model.layers.{i}.self_attn.{name}_proj.bias"] = np.zeros(rows, "f4")
    save_file(values, folder / "model.safetensors")
    spec = read(folder).spec
    assert spec.traits.qkv_bias
    assert spec.tensors["layers.1.k_bias"].shape == (HEAD,)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}, "llama3"),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 5e5}, "llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 500000}, "linear"),
        ({"rope_scaling": None, "rope_theta": 5e5}, None),
    ],
)
def test_rope_in_its_old_and_new_spellings(
    folder: Path, changes: dict[str, Any], expected: str | None
) -> None:
    edit_json(folder / "config.json", **({"rope_parameters": None} | changes))
    traits = read(folder).spec.traits
    scalings = {
        "llama3": RopeScaling("llama3", 8.0, 1.0, 4.0, 128),
        "linear": RopeScaling("linear", 2.0),
        None: None,
    }
    assert traits.ropes[0].theta == 500000.0
    assert traits.ropes[0].scaling == scalings[expected]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "zzz"}, "family 'zzz', .* llama or mistral"),
        ({"model_type": None}, "family 'none'"),
        ({"mlp_bias": True}, "biases in the MLP are not supported"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"quantization_config": {"quant_method": "hqq"}}, "weights are quantized by 'hqq'"),
        (
            {"rope_parameters": {"rope_type": "spiral", "factor": 2.0}},
            "'spiral', which is not supported",
        ),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
        (
            {"rope_parameters": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}},
            "high_freq_factor",
        ),
        ({"intermediate_size": 41}, r"gate_proj.weight' has the shape \(40, 24\)"),
        ({"num_hidden_layers": 3}, "no tensor 'model.layers.2.input_layernorm.weight'"),
        ({"num_hidden_layers": 1}, "does not use"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True"),
        ({"hidden_size": None}, "does not say hidden_size"),
        ({"head_dim": 15}, "odd head size"),
        ({"eos_token_id": 50}, "names a token 50"),
        ({"eos_token_id": [0, -1]}, "ids of 0 or more"),
    ],
)
def test_what_cannot_run_is_refused(folder: Path, changes: dict[str, Any], said: str) -> None:
    edit_json(folder / "config.json", **changes)
    with pytest.raises(CheckpointError, match=said) as refused:
        read(folder)
    assert "\n" not in str(refused.value)


def test_other_dtypes_and_shapes_are_refused(folder: Path) -> None:
    values = weights()
    values["model.norm.weight"] = np.zeros(HIDDEN, "f8")
    save_file(values, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' is stored as 'F64'"):
        read(folder)
    values["model.norm.weight"] = np.zeros((HIDDEN, 1), "f4")
    save_file(values, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has the shape \(24, 1\)"):
        read(folder)


def test_a_truncated_file_is_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="the file is incomplete; download it again"):
        read(folder)


def test_offsets_that_disagree_with_the_shape_are_refused(folder: Path) -> None:
    header = json.dumps(
        {"model.norm.weight": {"dtype": "F32", "shape": [24], "data_offsets": [0, 8]}}
    ).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(96)
    )
    with pytest.raises(CheckpointError, match="two places 96 bytes apart"):
        read(folder)


def test_a_folder_without_weights_or_tokenizer_says_so(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.bin")
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        read(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"has no \.safetensors files"):
        read(folder)


# -------------------------------------------------------------------------------- the text


def test_text_of_a_folder(folder: Path) -> None:
    eot = special_id(folder, "<|eot_id|>")
    begin = special_id(folder, "<|begin_of_text|>")
    end = special_id(folder, "<|end_of_text|>")
    assert len({1, 7, eot, begin, end}) == 5
    edit_json(folder / "generation_config.json", eos_token_id=[7, eot], bos_token_id=begin)
    edit_json(
        folder / "tokenizer_config.json",
        bos_token={"content": "<|begin_of_text|>", "lstrip": False},
        eos_token="<|eot_id|>",
        add_bos_token=True,
        chat_template=TEMPLATE,
    )
    text = read(folder).text
    assert (text.kind, text.file) == ("json", str(folder / "tokenizer.json"))
    assert (text.bos, text.eos, text.add_bos) == (begin, eot, True)
    assert text.stop_ids == (eot, 7, 1, end)
    assert text.chat_template == TEMPLATE


def test_ids_come_from_the_config_where_nothing_else_states_them(folder: Path) -> None:
    text = read(folder).text
    assert (text.bos, text.eos) == (0, 1)
    assert text.chat_template is None
    assert not text.add_bos


def test_the_tokenizer_itself_may_add_bos(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    name, number = "<|begin_of_text|>", special_id(folder, "<|begin_of_text|>")
    edit_json(folder / "tokenizer_config.json", bos_token=name)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(),
            processors.TemplateProcessing(single=f"{name} $A", special_tokens=[(name, number)]),
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    assert read(folder).text.add_bos
    edit_json(folder / "tokenizer_config.json", add_bos_token=False)
    assert not read(folder).text.add_bos


def test_chat_templates_in_their_places(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    edit_json(folder / "tokenizer_config.json", chat_template=named)
    text = read(folder).text
    assert (text.chat_template, text.named_templates) == ("D", (("tool_use", "T"),))
    edit_json(folder / "tokenizer_config.json", chat_template=None)
    edit_json(folder / "chat_template.json", chat_template="P<|eot_id|>")
    assert read(folder).text.chat_template == "P<|eot_id|>"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("R")
    assert read(folder).text.named_templates == (("rag", "R"),)
    (folder / "chat_template.jinja").write_text("J\n{{ é }}", encoding="utf-8")
    assert read(folder).text.chat_template == "J\n{{ é }}"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="not UTF-8"):
        read(folder)


@pytest.mark.parametrize(
    "content",
    ["", "[1]", '{"added_tokens": {}}', '{"added_tokens": [{"content": "a", "id": -1}]}'],
)
def test_a_damaged_tokenizer_is_refused(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        read(folder)
