"""A GGUF file of a family that cannot be run yet can be planned with, in its own formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES

from local_tp.checkpoint.gguf_shape import FUSED, ROLES, SMALL, _known, spec_from_gguf
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.read import read
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError

STEMS = {role: stem for stem, role in ROLES.items()} | {"embed": "token_embd", "head": "output"}
STEMS["q"] = "attn_q"
FAMILIES = (
    "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "gemma2", "gemma3",
    "gpt-oss", "glm4moe", "deepseek2", "phi3", "phimoe", "granite", "smollm3", "cohere2",
    "seed_oss", "olmo2", "olmoe", "ernie4_5-moe", "minimax-m2", "exaone4", "llama4", "mistral3",
)  # fmt: skip


def write(
    path: Path,
    family: str,
    shape: Shape,
    kind: Kind = Kind.Q8_0,
    extra: dict[str, tuple[int, ...]] | None = None,
    fused: dict[str, tuple[str, ...]] | None = None,
    without: tuple[str, ...] = (),
    **metadata: Any,
) -> ModelSpec:
    """A file of that shape, all zeros, its matrices of one kind; and the spec it was made from."""
    spec = spec_of(shape, path.stem, family, mix("Q8_0"))
    writer = GGUFWriter(path, family)
    for key, value in {
        "block_count": shape.layers,
        "embedding_length": shape.hidden,
        "context_length": shape.context,
        "attention.head_count": shape.heads,
        **({"attention.sliding_window": shape.window} if shape.window else {}),
        **({"expert_used_count": shape.active_experts} if shape.experts else {}),
        **metadata,
    }.items():
        name = f"{family}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
    for name, size in (named(spec, fused or {}) | (extra or {})).items():
        if name.removesuffix(".weight").rsplit(".", 1)[-1] in without:
            continue
        matrix = len(size) > 1 and not name.endswith("conv1d.weight")
        stored = kind if matrix else Kind.F32
        if stored == Kind.F32:
            writer.add_tensor(name, np.zeros(size, np.float32))
        else:
            per = {Kind.Q8_0: (32, 34), Kind.Q6_K: (256, 210)}[stored]
            raw = np.zeros((*size[:-1], size[-1] // per[0] * per[1]), np.uint8)
            writer.add_tensor(name, raw, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return spec


def named(spec: ModelSpec, fused: dict[str, tuple[str, ...]]) -> dict[str, tuple[int, ...]]:
    """Names in the file and shapes of a spec's tensors; `fused` says which stand in one."""
    inside = {role: stem for stem, roles in fused.items() for role in roles}
    sizes: dict[str, tuple[int, ...]] = {}
    for name, info in spec.tensors.items():
        prefix, _, role = name.rpartition(".")
        block = prefix.replace("layers.", "blk.") + "." if prefix else ""
        if role in inside:
            stem = f"{block}{inside[role]}.weight"
            before = sizes.get(stem, (0,))[0]
            sizes[stem] = (before + info.shape[0], *info.shape[1:])
        elif role in STEMS:
            ranked = role == "q" and f"{prefix}.q_down" in spec.tensors
            sizes[f"{block}{'attn_q_b' if ranked else STEMS[role]}.weight"] = info.shape
        elif role.endswith("_bias"):
            sizes[f"{block}attn_{role[0]}.bias"] = info.shape
    return sizes


DENSE = Shape(
    layers=3,
    hidden=64,
    heads=4,
    head_dim=32,
    kv_heads=2,
    ffn=96,
    vocab=128,
    context=512,
    qk_norm=True,
)
EXPERTS = replace(
    DENSE, feeds="E", first_dense=1, experts=4, active_experts=2, expert_ffn=32, shared_ffn=64
)
DELTA = replace(
    DENSE, layers=4, mixers="RRRF", output_gate=True, recurrent_keys=2, recurrent_values=4,
    recurrent_dim=32,
)  # fmt: skip
COMPRESSED = replace(
    EXPERTS, head_dim=64, kv_heads=0, qk_norm=False, query_rank=32, kv_rank=64, nope_dim=32,
    rope_dim=32, value_dim=32,
)  # fmt: skip
UNEVEN = replace(
    DENSE, layers=6, mixers="SSSSSF", window=16, full_kv_heads=1, full_head_dim=64, tied=True,
    shared_values=True,
)  # fmt: skip
RECURRENT_IN = {
    "attn_qkv": ("mix_q", "mix_k", "mix_v"),
    "ssm_conv1d": ("mix_conv_q", "mix_conv_k", "mix_conv_v"),
}


@pytest.mark.parametrize(
    ("family", "shape", "fused", "metadata"),
    [
        ("qwen3", DENSE, {}, {}),
        ("qwen2", replace(DENSE, qkv_bias=True, qk_norm=False), {}, {}),
        ("phi3", replace(DENSE, qk_norm=False),
         {"attn_qkv": ("q", "k", "v"), "ffn_up": ("gate", "up")}, {}),
        ("glm4moe", EXPERTS, {}, {}),
        ("qwen35", DELTA, RECURRENT_IN, {}),
        ("qwen35moe", replace(DELTA, feeds="E", ffn=0, experts=4, active_experts=2, expert_ffn=32,
                              shared_ffn=32),
         RECURRENT_IN | {"ffn_gate_up_exps": ("experts_gate", "experts_up")}, {}),
        ("deepseek2", COMPRESSED, {"attn_kv_b": ("k_up", "v_up")}, {}),
        ("gemma4", UNEVEN, {}, {"attention.sliding_window_pattern": [True] * 5 + [False]}),
        ("gemma3", replace(UNEVEN, full_kv_heads=2, full_head_dim=32, shared_values=False), {}, {}),
        ("gpt-oss", replace(DENSE, layers=4, mixers="SF", window=8, full_kv_heads=2,
                            full_head_dim=32, sinks=True, qk_norm=False), {}, {}),
    ],
)  # fmt: skip
def test_a_file_gives_the_shape_it_was_made_from(
    family: str,
    shape: Shape,
    fused: dict[str, tuple[str, ...]],
    metadata: dict[str, Any],
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.gguf"
    made = write(path, family, shape, fused=fused, **metadata)
    found = spec_from_gguf(path)
    assert found.path == ""
    assert (found.name, found.family) == ("model", family)
    assert found.dimensions == made.dimensions
    assert [kind[:2] for kind in found.kinds] == [kind[:2] for kind in made.kinds]
    assert found.traits.tied_head == made.traits.tied_head
    shapes = {name: info.shape for name, info in found.tensors.items()}
    assert shapes == {name: info.shape for name, info in made.tensors.items()}
    assert found.tensors["embed"].format == "Q8_0"
    assert found.tensors["layers.1.o" if "layers.1.o" in shapes else "layers.1.mix_o"].nbytes > 0


def test_formats_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    wide = replace(DENSE, hidden=256, ffn=256, head_dim=64)
    write(path, "qwen3", wide, Kind.Q6_K)
    spec = spec_from_gguf(path)
    assert {i.format for i in spec.tensors.values() if len(i.shape) == 2} == {"Q6_K"}
    assert spec.tensors["layers.2.up"].nbytes == 256 * 210


def test_ways_up_may_be_kept_apart_head_by_head(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    extra = {f"blk.{i}.attn_k_b.weight": (4, 64, 32) for i in range(3)}
    extra |= {f"blk.{i}.attn_v_b.weight": (4, 32, 64) for i in range(3)}
    made = write(path, "deepseek2", COMPRESSED, extra=extra)
    found = spec_from_gguf(path).tensors
    for role in ("k_up", "v_up"):
        assert found[f"layers.2.{role}"].shape == made.tensors[f"layers.2.{role}"].shape


def test_prediction_layers_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    extra = {"blk.3.nextn.eh_proj.weight": (64, 128), "blk.3.attn_q.weight": (64, 64)}
    write(path, "glm4moe", EXPERTS, extra=extra, block_count=4, nextn_predict_layers=1)
    assert spec_from_gguf(path).dimensions.layers == 3


def test_a_file_that_can_be_run_is_planned_alike(starter: Path) -> None:
    run, planned = read(starter).spec, spec_from_gguf(starter)
    assert planned.dimensions == run.dimensions
    assert {n: (i.shape, i.format, i.nbytes) for n, i in planned.tensors.items()} == {
        n: (i.shape, i.format, i.nbytes) for n, i in run.tensors.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_of_the_common_families_has_a_place(family: str) -> None:
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == family)
    stems = [TENSOR_NAMES[t].removeprefix("blk.{bid}.") for t in MODEL_TENSORS[arch]]
    inside = [s for s in stems if s not in ("token_embd", "output", "output_norm")]
    assert [s for s in inside if not _known(s) and not s.startswith("nextn.")] == []


def test_the_stems_are_those_of_the_package() -> None:
    known = {name.removeprefix("blk.{bid}.") for name in TENSOR_NAMES.values()}
    assert set(ROLES) | set(FUSED) | set(SMALL) <= known | {"post_norm"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"extra": {"blk.1.ssm_in.weight": (64, 64)}}, "'blk.1.ssm_in.weight', which cannot be"),
        ({"without": ("ffn_down",)}, "has no tensor for layers.0."),
        ({"without": ("attn_output",)}, "attn_output.weight': the model is incomplete"),
        ({"without": ("token_embd",)}, "has no tensor 'token_embd.weight'"),
        ({"without": ("attn_v",)}, "has no tensor for layers.0.v"),
        (
            {"extra": {"blk.1.ffn_up.weight": (96, 32)}},
            "3,072 numbers and the model's sizes call for",
        ),
        ({"block_count": 4000}, "1 to 1,024 layers"),
        ({"block_count": 9}, "attn_output.weight': the model is incomplete"),
        ({"attention.head_count": 3}, "the model's sizes call for 8,064"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, "qwen3", DENSE, **changes)
    with pytest.raises(CheckpointError) as caught:
        spec_from_gguf(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
