"""The text part of models that see: its logits, and that the rest is left out by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from family_checks import check
from family_models import SIZES, write_model
from family_pool import RankPool
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma3TextConfig,
    Ministral3Config,
    Mistral3Config,
    MistralConfig,
    PixtralVisionConfig,
    PretrainedConfig,
    SiglipVisionConfig,
)

from local_tp.checkpoint.safetensors_folder import read_folder

EYE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 16}
EYE |= {"num_attention_heads": 2, "patch_size": 8}
TOKENS = {"image_token_index": 71, "boi_token_index": 69, "eoi_token_index": 70}
CONFIGS = {
    "gemma3": Gemma3Config(
        text_config=Gemma3TextConfig(**SIZES, sliding_window=6, sliding_window_pattern=2),
        vision_config=SiglipVisionConfig(**EYE),
        mm_tokens_per_image=4,
        **TOKENS,
    ),
    "mistral3": Mistral3Config(
        text_config=MistralConfig(**SIZES, sliding_window=None),
        tie_word_embeddings=False,
        vision_config=PixtralVisionConfig(**EYE),
        image_token_index=71,
    ),
    "ministral3": Mistral3Config(
        text_config=Ministral3Config(**SIZES),
        vision_config=PixtralVisionConfig(**EYE),
        image_token_index=71,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_text_part(pool: RankPool, tmp_path: Path, name: str) -> None:
    reference = write_model(CONFIGS[name], tmp_path, AutoModelForImageTextToText)
    spec = read_folder(tmp_path)
    assert spec.left_out == ("its vision part is not loaded",)
    check(pool, spec, reference)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_names_that_models_have_in_memory(tmp_path: Path, name: str) -> None:
    """Files are written with the older of two ways to call the parts; others have the newer."""
    write_model(CONFIGS[name], tmp_path, AutoModelForImageTextToText)
    spec, path = read_folder(tmp_path), tmp_path / "model.safetensors"
    stored = load_file(path)
    newer = {
        k.replace("language_model.model.", "model.language_model.")
        .replace("language_model.lm_head.", "lm_head.")
        .replace("vision_tower.", "model.vision_tower.")
        .replace("multi_modal_projector.", "model.multi_modal_projector."): v
        for k, v in stored.items()
    }
    assert not newer.keys() & stored.keys()
    save_file(newer, path)
    again = read_folder(tmp_path)
    assert again.tensors.keys() == spec.tensors.keys()
    assert again.left_out == spec.left_out


def test_a_config_without_the_kind_of_its_text(tmp_path: Path) -> None:
    """Mistral Small 3.1's config says it; files of others may only have the whole's type."""
    config: PretrainedConfig = CONFIGS["gemma3"]
    write_model(config, tmp_path, AutoModelForImageTextToText)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["text_config"]["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert read_folder(tmp_path).family == "gemma3"
