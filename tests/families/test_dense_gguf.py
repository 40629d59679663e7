"""GGUF files of dense families, as llama.cpp's converter writes them, give transformers' logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from family_checks import check
from family_gguf import Change, Value, in_pairs, unchanged, write_gguf
from family_models import SIZES, write_model
from family_pool import RankPool
from family_splits import CONTEXT
from gguf import MODEL_ARCH as ARCH
from gguf import MODEL_ARCH_NAMES
from torch import Tensor
from transformers import (
    Cohere2Config,
    Ernie4_5Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GraniteConfig,
    LlamaConfig,
    Ministral3Config,
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
from local_tp.checkpoint.fields import Fields
from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.gguf_shape import spec_from_gguf
from local_tp.errors import CheckpointError
from local_tp.traits import Traits

SIZE, WINDOW = SIZES["head_dim"], 6
HEADS = {"q_proj": SIZES["num_attention_heads"], "k_proj": SIZES["num_key_value_heads"]}
EPS = "attention.layer_norm_rms_epsilon"
SLIDES = {"sliding_window": WINDOW}
COMMON: dict[str, Value] = {
    EPS: 1e-5,
    "attention.key_length": SIZE,
    "attention.value_length": SIZE,
    "rope.dimension_count": SIZE,
    "rope.freq_base": 300.0,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 300.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
GGUF_YARN: dict[str, Value] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
}
FACTORS = {"short": [1.0, 1.1, 1.2, 1.5], "long": [1.0, 2.0, 4.0, 8.0]}


def paired(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    """Rows of heads in rotary pairs, as in llama's release."""
    heads = next((n for role, n in HEADS.items() if role in name), 0)
    yield name, in_pairs(tensor, heads) if heads else tensor


def plus_one(name: str, tensor: Tensor) -> Iterable[tuple[str, Tensor]]:
    """Gemma's norms as they are multiplied with."""
    yield name, tensor + 1 if name.endswith("norm.weight") else tensor


@dataclass(frozen=True)
class Case:
    config: Callable[..., PretrainedConfig]
    architecture: ARCH
    changes: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Value] = field(default_factory=dict)
    change: Change = unchanged
    extra: dict[str, Tensor] = field(default_factory=dict)
    splits: Sequence[str] = ("single", "tensor 3")


CASES = {
    "llama": Case(LlamaConfig, ARCH.LLAMA, {"attention_bias": True}, change=paired),
    "llama with yarn": Case(
        LlamaConfig, ARCH.LLAMA, {"rope_parameters": YARN}, GGUF_YARN, paired, splits=("single",)
    ),
    "llama with linear scaling": Case(
        LlamaConfig,
        ARCH.LLAMA,
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        paired,
        splits=("single",),
    ),
    "qwen2": Case(Qwen2Config, ARCH.QWEN2),
    "qwen3": Case(Qwen3Config, ARCH.QWEN3),
    "gemma": Case(GemmaConfig, ARCH.GEMMA, change=plus_one),
    "gemma2": Case(
        Gemma2Config,
        ARCH.GEMMA2,
        {**SLIDES, "query_pre_attn_scalar": SIZE, "attn_logit_softcapping": 2.0},
        {
            "attention.sliding_window": WINDOW,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 30.0,
        },
        plus_one,
    ),
    "gemma3": Case(
        Gemma3TextConfig,
        ARCH.GEMMA3,
        {
            **SLIDES,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": SIZE,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        {
            "attention.sliding_window": WINDOW,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        plus_one,
    ),
    "phi3": Case(Phi3Config, ARCH.PHI3, SLIDES, {"attention.sliding_window": WINDOW}),
    "phi3 with longrope": Case(
        Phi3Config,
        ARCH.PHI3,
        {
            "hidden_size": 64,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 300.0,
                "short_factor": FACTORS["short"],
                "long_factor": FACTORS["long"],
            },
        },
        {
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": math.sqrt(1 + math.log(CONTEXT / 16) / math.log(16)),
        },
        extra={f"rope_factors_{k}.weight": torch.tensor(v) for k, v in FACTORS.items()},
    ),
    "granite": Case(
        GraniteConfig,
        ARCH.GRANITE,
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 5.0,
        },
        {
            "embedding_scale": 3.0,
            "residual_scale": 0.4,
            "attention.scale": 0.2,
            "logit_scale": 5.0,
        },
        paired,
    ),
    "glm4": Case(Glm4Config, ARCH.GLM4, metadata={"rope.dimension_count": SIZE // 2}),
    "olmo2": Case(Olmo2Config, ARCH.OLMO2),
    "olmo3": Case(
        Olmo3Config,
        ARCH.OLMO2,
        {
            **SLIDES,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            },
        },
        {
            **GGUF_YARN,
            "attention.sliding_window": WINDOW,
            "attention.sliding_window_pattern": [True, True, False],
        },
    ),
    "cohere2": Case(
        Cohere2Config,
        ARCH.COHERE2,
        {**SLIDES, "hidden_size": 64, "num_hidden_layers": 5, "logit_scale": 0.5},
        {
            "attention.sliding_window": WINDOW,
            "attention.layer_norm_epsilon": 1e-5,
            "logit_scale": 0.5,
        },
    ),
    "smollm3": Case(SmolLM3Config, ARCH.SMOLLM3, {"num_hidden_layers": 5}, change=paired),
    "seed_oss": Case(SeedOssConfig, ARCH.SEED_OSS),
    "ernie4_5": Case(Ernie4_5Config, ARCH.ERNIE4_5),
    "ministral3": Case(
        Ministral3Config,
        ARCH.MISTRAL3,
        {
            "rope_parameters": YARN
            | {"llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 0.5}
        },
        GGUF_YARN | {"attention.temperature_scale": 0.3, "rope.scaling.yarn_log_multiplier": 0.5},
        paired,
    ),
    "exaone4": Case(
        Exaone4Config,
        ARCH.EXAONE4,
        {**SLIDES, "sliding_window_pattern": 4, "num_hidden_layers": 5},
        {"attention.sliding_window": WINDOW},
    ),
}


def test_the_table_says_what_is_checked() -> None:
    checked = {MODEL_ARCH_NAMES[case.architecture] for case in CASES.values()}
    for family in DENSE:
        assert (family.gguf_checked == "some splits") == (
            not checked.isdisjoint(family.architectures)
        )
        assert checked.issuperset(family.architectures)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"rope.freq_base": 1.0}, "rope.freq_base = 1.0, and a number above 1 is needed"),
        ({"rope.dimension_count": 10}, "an even number up to 8 is needed"),
        ({"rope.dimension_count": 7}, "an even number up to 8 is needed"),
        ({"rope.scaling.type": "spiral"}, "'spiral', which is not supported yet"),
        ({**GGUF_YARN, "rope.scaling.yarn_beta_slow": 40.0}, "at most yarn_beta_fast"),
        ({**GGUF_YARN, "rope.scaling.original_context_length": 0}, "an integer of 1 or more"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, metadata: dict[str, Value], said: str) -> None:
    reference = write_model(LlamaConfig(**SIZES), tmp_path)
    path = write_gguf(tmp_path / "model.gguf", ARCH.LLAMA, reference, COMMON | metadata, paired)
    with pytest.raises(CheckpointError, match=said) as refused:
        read_gguf(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("architecture", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_27_billion_gemmas_scale_scores_by_hidden_size(architecture: str, layers: int) -> None:
    """4,608 / 32 and 5,376 / 32, their configs' `query_pre_attn_scalar`: files do not say it."""
    hidden = {"gemma2": 4608, "gemma3": 5376}[architecture]
    adjust = next(row.adjust_gguf for row in DENSE if architecture in row.architectures)
    stated = {
        "general.architecture": architecture,
        f"{architecture}.block_count": layers,
        f"{architecture}.embedding_length": hidden,
        f"{architecture}.attention.head_count": 32,
    }
    scale = adjust(Traits(), Fields("file", stated)).attention_scale
    assert scale == pytest.approx((hidden / 32) ** -0.5)
    fewer = stated | {f"{architecture}.block_count": layers - 4}
    assert adjust(Traits(), Fields("file", fewer)).attention_scale == 0.0


@pytest.mark.parametrize("name", CASES)
def test_a_file(pool: RankPool, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    sizes = SIZES | {"rms_norm_eps": 1e-5} | case.changes
    if "rope_parameters" not in sizes:
        sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 300.0}
    reference = write_model(case.config(**sizes), tmp_path)
    metadata = COMMON | case.metadata
    if "attention.layer_norm_epsilon" in metadata:
        del metadata[EPS]
    path = write_gguf(
        tmp_path / "model.gguf", case.architecture, reference, metadata, case.change, case.extra
    )
    spec = read_gguf(path)[0]
    assert spec_from_gguf(path).kinds == spec.kinds
    check(pool, spec, reference, case.splits)
