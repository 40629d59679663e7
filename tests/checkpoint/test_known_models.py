"""The table of well-known models: its sizes add up to what the publishers state."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from local_tp.checkpoint import known_models
from local_tp.checkpoint.known_models import KnownModel, find, known_model, table
from local_tp.checkpoint.read import read
from local_tp.checkpoint.shapes import active_count, parameter_count
from local_tp.core import LayerKind
from local_tp.errors import CheckpointError, InputError

ROWS = table()
SOURCES = {"read", "library", "file", "memory", "derived"}


def name_of(row: KnownModel) -> str:
    return row.name


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_parameters_add_up_to_the_published_number(row: KnownModel) -> None:
    spec = known_model(row.name, "BF16")
    assert parameter_count(spec) / 1e9 == pytest.approx(row.parameters, rel=0.005)
    assert row.source in SOURCES
    if row.active is not None:  # publishers differ in whether the embedding counts
        active = active_count(spec)
        shares = (active, active - prod(spec.tensors["embed"].shape))
        assert any(n / 1e9 == pytest.approx(row.active, rel=0.03) for n in shares)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_row_can_be_planned_and_not_run(row: KnownModel) -> None:
    spec = known_model(row.name, "Q4_K_M")
    d = spec.dimensions
    assert spec.path == ""
    assert all(info.file == "" for info in spec.tensors.values())
    assert len(spec.kinds) in (0, d.layers)
    assert d.query_heads % d.kv_heads == 0
    assert any(kind.mixer == "sliding" for kind in spec.kinds) == bool(d.window)
    assert any(kind.feed == "experts" for kind in spec.kinds) == bool(d.experts)
    assert any(kind.mixer == "recurrent" for kind in spec.kinds) == bool(d.state)


def test_there_are_many() -> None:
    assert len(known_models.names()) == len(set(known_models.names())) >= 110


def test_an_alias_belongs_to_one_row() -> None:
    owners: dict[str, set[str]] = {}
    for row in ROWS:
        for name in (row.name, *row.aliases):
            owners.setdefault(known_models._spelling(name), set()).add(row.name)
    assert {name: rows for name, rows in owners.items() if len(rows) > 1} == {}


@pytest.mark.parametrize(
    "name",
    [
        "7B", "CodeLlama 34B", "DeepSeek R1 14b", "DeepSeek R1 671b", "DeepSeek-R1 671B",
        "GLM-4.5-Air (glm4moe 106B.A12B)", "Llama 13B", "Llama 3 70B", "Llama 3 8B", "Llama 3.1 8B",
        "Llama 3.1:70b", "Llama 3.2 1B", "Llama 3.2:3b", "Llama 3.3 70B", "Llama 33B", "Llama 65B",
        "Llama 7B", "Llama-2 70B", "Llama-3.1-8B-Instruct", "Llama2 7B", "Llama2-13B", "Llama2-7B",
        "Midnight-Miqu-70B-v1.5", "Mistral 123B", "Qwen2.5-72B", "Qwen3-235B-A22B", "Qwen3-32B",
        "Qwen3-4B", "Qwen3.5-397B-A17B", "Qwen3.5-4B", "Qwen3.5-9B", "Qwen3.6-27B",
        "Qwen3.6-27B class", "Qwen3.6-35B-A3B", "Qwen3.8-27B", "Qwen3.8-Flash-Next UD-Q4_K_XL",
        "ThinkingCap-Qwen3.6-27B", "TinyLlama 1.1B", "gemma-3-4b-it", "gemma-4-26B-A4B",
        "gemma-4-31B", "gemma-4-31B-it", "gpt-oss 120B", "gpt-oss 20b", "gpt-oss-120b", "llama 7B",
        "qwen35moe 35B.A3B", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-GGUF", "qwen3:8b", "Qwen3-32B-AWQ",
    ],
)  # fmt: skip
def test_names_as_people_write_them(name: str) -> None:
    assert find(name) is not None


@pytest.mark.parametrize("name", ["", "it", "unstated", "Qwen3", "35B-A3B class", "gpt-oss"])
def test_names_that_say_too_little(name: str) -> None:
    assert find(name) is None


def test_the_starter_is_the_row_of_its_name(starter: Path) -> None:
    spec, known = read(starter).spec, known_model("SmolLM2 135M", "Q4_1")
    assert known.dimensions == spec.dimensions
    assert known.traits.tied_head == spec.traits.tied_head
    shapes = {n: info.shape for n, info in spec.tensors.items()}
    assert {n: info.shape for n, info in known.tensors.items()} == shapes


def test_kinds_of_layers() -> None:
    hybrid = known_model("Qwen3.6 35B-A3B", "Q8_0")
    recurrent, full = LayerKind("recurrent", "experts"), LayerKind("full", "experts")
    assert hybrid.kinds[:4] == (recurrent, recurrent, recurrent, full)
    assert hybrid.dimensions.state == 32 * 128 * 128 + 3 * (2 * 16 + 32) * 128
    deep = known_model("DeepSeek V3", "FP8")
    assert [kind.feed for kind in deep.kinds[:4]] == ["dense"] * 3 + ["experts"]
    assert deep.dimensions.kv_row == 576
    assert known_model("Gemma 3 27B", "BF16").kinds[4:7] == (
        LayerKind("sliding"),
        LayerKind("full"),
        LayerKind("sliding"),
    )
    assert known_model("Llama 3 8B", "F16").kinds == ()


def test_experts_of_a_layer_are_one_tensor() -> None:
    spec = known_model("Qwen3 235B-A22B", "BF16")
    assert spec.tensors["layers.93.experts_up"].shape == (128 * 1536, 4096)
    assert spec.tensors["layers.93.experts_down"].shape == (128 * 4096, 1536)
    assert len(spec.tensors) < 94 * 16


def test_layers_of_one_model_differ_in_their_heads() -> None:
    spec = known_model("Gemma 4 31B", "BF16")
    assert spec.tensors["layers.4.k"].shape == (16 * 256, 5376)
    assert spec.tensors["layers.5.k"].shape == (4 * 512, 5376)
    assert "layers.5.v" not in spec.tensors


def test_the_default_is_the_makers_own_format_or_four_bits() -> None:
    assert known_model("gpt-oss 20b", "default") == known_model("gpt-oss 20b", "MXFP4")
    assert known_model("Llama 3 8B", "default") == known_model("Llama 3 8B", "Q4_K_M")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(CheckpointError, match=r"use one such as .*Llama 3\.1 8B") as caught:
        known_model("Lama 3.1 8B", "Q4_K_M")
    assert "--model-config" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_table_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[[model]]\nname = "x"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"models\.toml"):
        table(path)
