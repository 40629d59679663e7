"""One way to everything that can be planned without being run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local_tp.checkpoint.known_models import known_model
from local_tp.checkpoint.planned import planned_model
from local_tp.errors import CheckpointError

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip


def test_a_name() -> None:
    assert planned_model("qwen3-8b", "Q4_K_M") == known_model("Qwen3 8B", "Q4_K_M")
    assert planned_model("gpt-oss:20b") == known_model("gpt-oss 20B", "MXFP4")


def test_a_config_file_and_the_folder_it_lies_in(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama.v1"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "other.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    by_folder = planned_model(str(folder), "Q4_K_M")
    assert by_folder == planned_model(str(folder / "config.json"), "Q4_K_M")
    assert by_folder.name == "My-Llama.v1"
    assert planned_model(str(tmp_path / "other.json"), "Q4_K_M").name == "other"
    assert by_folder.tensors == known_model("Llama 3 8B", "Q4_K_M").tensors


def test_a_gguf_file_in_its_own_formats(starter: Path) -> None:
    spec = planned_model(str(starter))
    assert spec.tensors["layers.0.q"].format == "Q4_1"
    assert spec.path == ""
    with pytest.raises(CheckpointError, match="has its own formats: leave Q8_0 out"):
        planned_model(str(starter), "Q8_0")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere/config.json", "there is no file nowhere"),
        ("nowhere.gguf", "there is no file nowhere"),
        ("Qwen9 1T", "no model is known by the name 'Qwen9 1T'"),
        ("~nobody-of-that-name/x", "cannot read"),
    ],
)
def test_what_is_not_there(model: str, said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        planned_model(model, "default")
    assert "\n" not in str(caught.value)


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "model.gguf").write_bytes(b"nothing of the kind")
    for name in ("config.json", "model.gguf"):
        with pytest.raises(CheckpointError):
            planned_model(str(tmp_path / name))
