"""Which model a command is about, and what is said where it is not here."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from local_tp.checkpoint import known_models
from local_tp.cli.subject import checkpoint_of, spec_of
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError, InputError

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 96,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


def asked(**options: str | None) -> argparse.Namespace:
    usual = {"name": None, "model": None, "model_config": None, "quant": None}
    return argparse.Namespace(**(usual | options))


def said(line: str) -> None:
    raise AssertionError(f"nothing is fetched here: {line}")


def spec(**options: str | None) -> ModelSpec:
    return spec_of(asked(**options), said)


def test_a_file_by_either_option(starter: Path) -> None:
    for option in ("name", "model"):
        found = spec(**{option: str(starter)})
        assert found.path == str(starter)
        assert found.dimensions.layers == 30


def test_a_known_model_by_name_and_quantization() -> None:
    whole, packed = spec(name="llama-3.1-70b"), spec(model="Llama 3.1 70B", quant="Q8_0")
    assert (whole.path, packed.path) == ("", "")
    assert whole.dimensions.layers == packed.dimensions.layers == 80
    assert sum(t.nbytes for t in packed.tensors.values()) > sum(
        t.nbytes for t in whole.tensors.values()
    )


def test_a_model_from_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for path in (folder, folder / "config.json"):
        found = spec(model_config=str(path))
        assert (found.name, found.path, found.dimensions.layers) == ("my-model", "", 3)
    packed = spec(model_config=str(folder), quant="Q4_0")
    assert packed.tensors["layers.0.gate"].format == "Q4_0"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a", "model": "b"}, "a and b are two models: name one"),
        ({"model": "a", "model_config": "c"}, "a and c are two models: name one"),
        ({"name": "gpt-17"}, "models are known by shape, such as"),
        ({"name": "none/gpt-17.gguf"}, "there is no model 'none/gpt-17.gguf'"),
        ({"name": "gpt-17", "quant": "Q4_0"}, "no model is known by the name"),
        ({"name": "llama-3.1-8b", "quant": "Q17"}, "Q17"),
        ({"model_config": "none.json"}, "there is no file none.json"),
    ],
)
def test_models_that_there_are_not(options: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as refused:
        spec(**options)
    assert words in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_file_says_its_own_format(starter: Path) -> None:
    with pytest.raises(InputError, match="leave out --quant"):
        spec(name=str(starter), quant="Q4_0")


def test_a_model_that_is_to_run_must_be_here(starter: Path) -> None:
    assert checkpoint_of(asked(model=str(starter)), said).spec.path == str(starter)
    with pytest.raises(CheckpointError) as refused:
        checkpoint_of(asked(model="llama-3.1-70b"), said)
    assert "only its shape is known: download a GGUF file" in str(refused.value)
    with pytest.raises(CheckpointError, match="there is no model 'gpt-17'"):
        checkpoint_of(asked(model="gpt-17"), said)


def test_every_known_name_is_found() -> None:
    for name in known_models.names():
        assert known_models.find(name) is not None


def test_a_model_of_ollamas_has_the_name_that_people_know(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a model of that name is known by its shape, what is here is what counts."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    digest = "a1" * 32
    layer = {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": f"sha256:{digest}",
        "size": starter.stat().st_size,
    }
    manifest = tmp_path / "manifests/registry.ollama.ai/library/llama3.1/70b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [layer]}))
    blob = tmp_path / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir()
    for found in (spec, lambda **options: checkpoint_of(asked(**options), said).spec):
        with pytest.raises(CheckpointError, match="not fetched to its end"):
            found(model="llama3.1:70b")
    blob.symlink_to(starter)
    for found in (spec, lambda **options: checkpoint_of(asked(**options), said).spec):
        model = found(model="llama3.1:70b")
        assert (model.name, model.path) == ("llama3.1:70b", str(blob))
        assert model.dimensions.layers == 30
