"""Families whose every layer is attention and a dense feed-forward."""

from __future__ import annotations

from dataclasses import replace

from local_tp.checkpoint.families import maths
from local_tp.checkpoint.families.expert_names import GGUF_EXPERTS
from local_tp.checkpoint.families.names import FOLDER, FOLDER_NAMES, GGUF, GGUF_NAMES
from local_tp.checkpoint.families.row import ACTIVATIONS, EVERY, SOME, Family, Naming

_LAYER = "model.layers.{i}."
_QKV = ("layers.{i}.q", "layers.{i}.k", "layers.{i}.v")
_GATE_UP = ("layers.{i}.gate", "layers.{i}.up")

_FOLDER_PAIRED = replace(FOLDER, paired=True)
_GGUF_PAIRED = replace(GGUF, paired=True)
_GGUF_LLAMA = replace(_GGUF_PAIRED, names=GGUF_NAMES | GGUF_EXPERTS)  # Mixtral is one

# Norms after a branch, by the names of those who norm before it, too, and of those who do not.
_FOLDER_POST = replace(
    FOLDER,
    names=FOLDER_NAMES
    | {
        "layers.{i}.post_attn_norm": _LAYER + "post_attention_layernorm.weight",
        "layers.{i}.ffn_norm": _LAYER + "pre_feedforward_layernorm.weight",
        "layers.{i}.post_ffn_norm": _LAYER + "post_feedforward_layernorm.weight",
    },
)
_FOLDER_GEMMA = replace(_FOLDER_POST, shifted=True)
_FOLDER_FUSED = replace(
    FOLDER,
    fused={
        _LAYER + "self_attn.qkv_proj.weight": _QKV,
        _LAYER + "mlp.gate_up_proj.weight": _GATE_UP,
    },
)
_FOLDER_GLM = replace(_FOLDER_FUSED, paired=True)
_FOLDER_GLM4 = replace(
    _FOLDER_GLM,
    names=FOLDER_NAMES
    | {
        "layers.{i}.post_attn_norm": _LAYER + "post_self_attn_layernorm.weight",
        "layers.{i}.post_ffn_norm": _LAYER + "post_mlp_layernorm.weight",
    },
)
_GGUF_FUSED = Naming(
    {role: name for role, name in GGUF_NAMES.items() if role not in _GATE_UP},
    fused={"blk.{i}.attn_qkv.weight": _QKV, "blk.{i}.ffn_up.weight": _GATE_UP},
)
_GGUF_SEED_OSS = replace(
    GGUF, names=GGUF_NAMES | {"layers.{i}.ffn_norm": "blk.{i}.post_attention_norm.weight"}
)

DENSE = (
    Family(
        "llama",
        ("llama",),
        ("llama",),
        FOLDER,
        _GGUF_LLAMA,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "mistral",
        ("mistral", "ministral"),
        (),
        FOLDER,
        _GGUF_PAIRED,
        folder_checked=SOME,
    ),
    Family(
        "ministral3",
        ("ministral3",),
        ("mistral3",),
        FOLDER,
        _GGUF_PAIRED,
        maths.ministral3,
        maths.gguf_mistral3,
        theta=1e6,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "qwen2",
        ("qwen2",),
        ("qwen2",),
        FOLDER,
        GGUF,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "qwen3",
        ("qwen3",),
        ("qwen3",),
        FOLDER,
        GGUF,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "gemma",
        ("gemma",),
        ("gemma",),
        replace(FOLDER, shifted=True),
        GGUF,
        maths.gemma,
        maths.gguf_gemma,
        activations={**ACTIVATIONS, "gelu": "gelu"},  # meant as tanh by its first configs
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "gemma2",
        ("gemma2",),
        ("gemma2",),
        _FOLDER_GEMMA,
        GGUF,
        maths.gemma2,
        maths.gguf_gemma2,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "gemma3",
        ("gemma3", "gemma3_text"),
        ("gemma3",),
        _FOLDER_GEMMA,
        GGUF,
        maths.gemma3,
        maths.gguf_gemma3,
        theta=1e6,
        local_theta=1e4,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "phi3",
        ("phi3",),
        ("phi3",),
        _FOLDER_FUSED,
        _GGUF_FUSED,
        adjust_gguf=maths.gguf_phi3,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "granite",
        ("granite",),
        ("granite",),
        FOLDER,
        _GGUF_PAIRED,
        maths.granite,
        maths.gguf_granite,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "glm",
        ("glm",),
        (),
        _FOLDER_GLM,
        GGUF,
        rotated=0.5,
        folder_checked=SOME,
    ),
    Family(
        "glm4",
        ("glm4",),
        ("glm4",),
        _FOLDER_GLM4,
        replace(_GGUF_FUSED, paired=True),
        rotated=0.5,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "olmo2",
        ("olmo2", "olmo3"),
        ("olmo2",),
        _FOLDER_POST,
        GGUF,
        theta=5e5,
        local_theta=5e5,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "cohere2",
        ("cohere2",),
        ("cohere2",),
        _FOLDER_PAIRED,
        _GGUF_PAIRED,
        maths.cohere2,
        maths.gguf_cohere2,
        folder_checked=EVERY,
        gguf_checked=SOME,
    ),
    Family(
        "smollm3",
        ("smollm3",),
        ("smollm3",),
        FOLDER,
        _GGUF_PAIRED,
        theta=2e6,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "seed_oss",
        ("seed_oss",),
        ("seed_oss",),
        FOLDER,
        _GGUF_SEED_OSS,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "ernie4_5",
        ("ernie4_5",),
        ("ernie4_5",),
        _FOLDER_PAIRED,
        _GGUF_PAIRED,
        theta=5e5,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
    Family(
        "exaone4",
        ("exaone4",),
        ("exaone4",),
        _FOLDER_POST,
        GGUF,
        folder_checked=SOME,
        gguf_checked=SOME,
    ),
)
