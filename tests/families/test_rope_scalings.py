"""Every scaling of rotary frequencies, in the forms that configs of all ages have for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from family_checks import check
from family_models import SIZES, write_model
from family_pool import RankPool
from family_splits import CONTEXT
from transformers import (
    Gemma3TextConfig,
    LlamaConfig,
    Olmo3Config,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.errors import CheckpointError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.5],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
}
WIDE = {"hidden_size": 64}  # heads of hidden / heads, as phi3's check demands
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]


def llama(**rope: Any) -> PretrainedConfig:
    return LlamaConfig(**SIZES, rope_parameters={"rope_theta": 300.0, **rope})


def phi3(original: int, **rope: Any) -> PretrainedConfig:
    return Phi3Config(
        **SIZES | WIDE,
        original_max_position_embeddings=original,
        rope_parameters={"rope_theta": 300.0, **LONGROPE, **rope},
    )


CONFIGS = {
    "linear": llama(rope_type="linear", factor=4.0),
    "llama3": llama(**LLAMA3),
    "yarn": llama(**YARN),
    "yarn with an attention factor": llama(**YARN, attention_factor=1.7),
    "yarn with two weights": llama(**YARN, mscale=1.0, mscale_all_dim=0.4),
    "yarn not truncated": llama(**YARN, truncate=False),
    "longrope for long texts": phi3(16),
    "longrope for short texts": phi3(CONTEXT),
    "longrope with an attention factor": phi3(16, attention_factor=1.3),
    "gemma3's full layers": Gemma3TextConfig(
        **SIZES,
        sliding_window=6,
        layer_types=TYPES,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    ),
    "olmo3's full layers": Olmo3Config(
        **SIZES,
        sliding_window=6,
        layer_types=TYPES,
        rope_parameters={
            "full_attention": {"rope_theta": 300.0, **YARN},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_scaling(pool: RankPool, tmp_path: Path, name: str) -> None:
    reference = write_model(CONFIGS[name], tmp_path)
    check(pool, read_folder(tmp_path), reference, ("single",))


def test_dynamic_scaling_is_that_of_the_longest_text(pool: RankPool, tmp_path: Path) -> None:
    """Frequencies are those of a text that fills the context, since keys are not turned again."""
    config = llama(rope_type="dynamic", factor=2.0)
    config.max_position_embeddings = CONTEXT // 2

    def stretched(model: PreTrainedModel) -> None:
        rotary = model.model.rotary_emb
        rotary.inv_freq = ROPE_INIT_FUNCTIONS["dynamic"](config, torch.device("cpu"), CONTEXT)[0]
        rotary.rope_type = "default"

    reference = write_model(config, tmp_path, prepare=stretched)
    check(pool, read_folder(tmp_path), reference, ("single",))


OLD = {
    "linear": {"rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3": {"rope_theta": 300.0, "rope_scaling": LLAMA3},
    "gemma3's full layers": {
        "rope_theta": 1000.0,
        "rope_local_base_freq": 300.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "olmo3's full layers": {"rope_theta": 300.0, "rope_scaling": YARN},
    "longrope for long texts": {
        "rope_theta": 300.0,
        "rope_scaling": {
            "type": "su",
            "short_factor": LONGROPE["short_factor"],
            "long_factor": LONGROPE["long_factor"],
        },
    },
}


@pytest.mark.parametrize("name", OLD)
def test_configs_from_before_transformers_5_say_the_same(tmp_path: Path, name: str) -> None:
    write_model(CONFIGS[name], tmp_path)
    newer = read_folder(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps(config | OLD[name]))
    assert read_folder(tmp_path).traits == newer.traits


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        ({"rope_type": "spiral"}, "'spiral', which is not supported yet"),
        ({"rope_type": "yarn", "factor": 0.5}, "factor = 0.5, and 1 or more is needed"),
        ({**YARN, "beta_slow": 9.0}, "beta_slow = 9.0, and at most beta_fast"),
        ({"rope_type": "linear", "factor": 0}, "factor = 0, and a positive number is needed"),
        ({"rope_type": "linear"}, "does not say factor"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "a number above low_freq_factor"),
        ({**LONGROPE, "long_factor": [1.0, 2.0]}, "long_factor = .*, and 4 positive numbers"),
        ({**LONGROPE, "short_factor": [1.0, 1.0, 1.0, "2"]}, "4 positive numbers"),
        ({"rope_theta": 1.0}, "rope_theta = 1.0, and a number above 1 is needed"),
        ({"partial_rotary_factor": 2.0}, "an even part of the 8 of a head"),
        ({"partial_rotary_factor": 0.4}, "an even part of the 8 of a head"),
        ({"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 0.25}, "another scaling"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, rope: dict[str, Any], said: str) -> None:
    config = LlamaConfig(**SIZES).to_dict() | {"rope_parameters": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=said) as refused:
        read_folder(tmp_path)
    assert "\n" not in str(refused.value)
