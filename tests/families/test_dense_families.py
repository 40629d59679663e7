"""Dense families, as folders that transformers wrote and as GGUF files of the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from family_checks import check
from family_models import SIZES, write_model
from family_pool import RankPool
from family_splits import EVERY, FEW
from transformers import (
    Cohere2Config,
    Ernie4_5Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GlmConfig,
    GraniteConfig,
    LlamaConfig,
    Ministral3Config,
    MinistralConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SeedOssConfig,
    SmolLM3Config,
)

from local_tp.checkpoint.families.dense import DENSE
from local_tp.checkpoint.safetensors_folder import read_folder

WINDOW = 6  # tokens: shorter than both texts
BOTH = (True, False)
NARROW = {"head_dim": 4}  # as its config demands: hidden / heads


@dataclass(frozen=True)
class Case:
    config: Callable[..., PretrainedConfig]
    changes: dict[str, Any] = field(default_factory=dict)
    splits: Sequence[str] = FEW
    rings: Sequence[bool] = (True,)


CASES = {
    "llama": Case(LlamaConfig, splits=EVERY),
    "llama with biases": Case(LlamaConfig, {"attention_bias": True, "tie_word_embeddings": True}),
    "mistral": Case(MistralConfig, {"sliding_window": WINDOW}, rings=BOTH),
    "ministral": Case(
        MinistralConfig,
        {
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen2": Case(Qwen2Config),
    "qwen2 with a window": Case(
        Qwen2Config,
        {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen3": Case(Qwen3Config, splits=EVERY),
    "gemma": Case(GemmaConfig),
    "gemma2": Case(
        Gemma2Config,
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0},
        EVERY,
        BOTH,
    ),
    "gemma3": Case(
        Gemma3TextConfig,
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 24, "sliding_window_pattern": 2},
        EVERY,
    ),
    "phi3": Case(Phi3Config, {"sliding_window": WINDOW}, EVERY),
    "phi4-mini": Case(Phi3Config, {"partial_rotary_factor": 0.5, "tie_word_embeddings": True}),
    "ministral3": Case(
        Ministral3Config,
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "beta_fast": 4.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "llama_4_scaling_beta": 0.3,
            },
        },
    ),
    "granite": Case(
        GraniteConfig,
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 5.0,
        },
    ),
    "glm": Case(GlmConfig),
    "glm4": Case(Glm4Config, splits=EVERY),
    "olmo2": Case(Olmo2Config, splits=EVERY),
    "olmo3": Case(Olmo3Config, {"sliding_window": WINDOW, "num_hidden_layers": 4}),
    "cohere2": Case(
        Cohere2Config, {"sliding_window": WINDOW, "sliding_window_pattern": 3, **NARROW}, EVERY
    ),
    "smollm3": Case(SmolLM3Config, {"no_rope_layer_interval": 2}),
    "seed_oss": Case(SeedOssConfig, {"attention_out_bias": True}),
    "ernie4_5": Case(Ernie4_5Config),
    "exaone4": Case(Exaone4Config, {"sliding_window": WINDOW, "sliding_window_pattern": 3}),
    "exaone4 without a window": Case(
        Exaone4Config, {"sliding_window": None, "layer_types": ["full_attention"] * 3}
    ),
}


def test_the_table_says_what_is_checked() -> None:
    best: dict[str, str] = {}
    for case in CASES.values():
        kind = case.config.model_type  # type: ignore[attr-defined]
        family = next(row.name for row in DENSE if kind in row.model_types)
        every = case.splits == EVERY or best.get(family) == "every split"
        best[family] = "every split" if every else "some splits"
    assert {row.name: row.folder_checked for row in DENSE} == best


@pytest.mark.parametrize("name", CASES)
def test_a_folder(pool: RankPool, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    reference = write_model(case.config(**SIZES | case.changes), tmp_path)
    check(pool, read_folder(tmp_path), reference, case.splits, case.rings)
