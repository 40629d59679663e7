"""Quantized model folders: every rank holds its part of the numbers that the writer kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import FOLDER_NAMES, LAYERS, Values, expected, stored_name

from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.core import Device, Dtype, Goal, ModelSpec, Span, Split
from local_tp.load import loader
from local_tp.load.loader import Loading, Progress
from local_tp.model.blocks import Blocks, Stacked
from local_tp.model.linear import Dense, Linear
from local_tp.model.ordered import Ordered
from local_tp.model.processor import Processor
from local_tp.plan.layout import parameters
from local_tp.plan.planner import place
from tests.quantized_folders import METHODS, write_quantized

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCAB = 256, 8, 4, 32, 384, 48
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "intermediate_size": FFN,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
Model = tuple[ModelSpec, Values]
CPU, EXACT = torch.device("cpu"), Processor(None, torch.float32)


def shapes(ffn: int) -> dict[str, tuple[int, ...]]:
    query, key = HEADS * HEAD, KV_HEADS * HEAD
    found: dict[str, tuple[int, ...]] = {"embed": (VOCAB, HIDDEN), "norm": (HIDDEN,)}
    for i in range(LAYERS):
        found |= {
            f"layers.{i}.attn_norm": (HIDDEN,),
            f"layers.{i}.q": (query, HIDDEN),
            f"layers.{i}.k": (key, HIDDEN),
            f"layers.{i}.v": (key, HIDDEN),
            f"layers.{i}.o": (HIDDEN, query),
            f"layers.{i}.ffn_norm": (HIDDEN,),
            f"layers.{i}.gate": (ffn, HIDDEN),
            f"layers.{i}.up": (ffn, HIDDEN),
            f"layers.{i}.down": (HIDDEN, ffn),
        }
    return found


def folder_name(canonical: str) -> str:
    layer, name = stored_name(FOLDER_NAMES, canonical)
    return f"model.layers.{layer}.{name}" if layer else f"model.{name}"


def write(folder: Path, method: str, ffn: int = FFN, **changes: Any) -> Model:
    """A model of that method, and its numbers by canonical name."""
    random = np.random.default_rng(3)
    values = {
        folder_name(name): random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes(ffn).items()
    }
    config = CONFIG | {"intermediate_size": ffn} | changes
    meant = write_quantized(folder, METHODS[method], config, values)
    return read_folder(folder), {name: meant[folder_name(name)] for name in shapes(ffn)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """Models by method, each written once."""
    folder, written = tmp_path_factory.mktemp("quantized"), dict[str, Model]()

    def model(method: str) -> Model:
        if method not in written:
            written[method] = write(folder / method, method)
        return written[method]

    return model


def numbers(linear: Linear) -> np.ndarray:
    """A matrix as float32 numbers (rows, columns): its product with one."""
    if isinstance(linear, Dense):
        return np.asarray(linear.weight.float().numpy())
    columns = linear.parts[0].shape[1] if hasattr(linear, "parts") else linear.shape[1]
    return np.asarray(linear(torch.eye(columns)).T.numpy())


def check(model: Model, split: Split, ranks: int, dtype: Dtype) -> list[Loading]:
    """Loads every rank and compares what it holds; returns what was loaded."""
    spec, values = model
    loaded = []
    for p in place(spec, [Device("cpu", "cpu", "processor", 0, 0)] * ranks, split, Goal()):
        loading = Loading(spec, parameters(spec, p, dtype, "cpu"), CPU, EXACT)
        progress = list(loading)
        assert progress[-1] == Progress(progress[-1].total, progress[-1].total)
        known = expected(values, p, HEAD)
        found = {name: numbers(linear) for name, linear in loading.linears.items()}
        found |= {name: vector.numpy() for name, vector in loading.vectors.items()}
        assert found.keys() == known.keys()
        for name, part in known.items():
            off = np.abs(found[name] - part).max() / np.abs(part).max()
            plain = dtype == "auto" and isinstance(loading.linears.get(name), Dense)
            assert off <= (2**-8 if plain else 1e-6), (p.rank, name, off)
        loaded.append(loading)
    return loaded


@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("tensor", 2), ("tensor", 3)])
@pytest.mark.parametrize("dtype", ["auto", "float32"])
@pytest.mark.parametrize("method", METHODS)
def test_every_rank_holds_its_part(
    models: Callable[[str], Model], method: str, dtype: Dtype, split: Split, ranks: int
) -> None:
    check(models(method), split, ranks, dtype)


@pytest.mark.parametrize("method", ["awq-32", "gptq-4", "gptq-8", "packed-4-zeros", "fp8-blocks"])
def test_small_blocks_of_rows_give_the_same(
    models: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(loader, "BLOCK_ELEMENTS", 1 << 11)
    check(models(method), "tensor", 2, "auto")


@pytest.mark.parametrize("method", ["fp8-blocks", "float-rows", "int-rows", "nf4"])
def test_rows_that_end_inside_a_block(tmp_path: Path, method: str) -> None:
    model = write(tmp_path / "m", method, ffn=320)
    check(model, "single", 1, "auto")
    check(model, "tensor", 2, "auto")


def held_bytes(linear: Linear) -> int:
    if isinstance(linear, Dense):
        return linear.weight.nbytes
    if isinstance(linear, Stacked):
        return sum(map(held_bytes, linear.parts))
    assert isinstance(linear, Blocks)
    return linear.stored.nbytes + (linear.order.nbytes if isinstance(linear, Ordered) else 0)


@pytest.mark.parametrize("method", ["awq-32", "gptq-4-act-order", "gptq-8", "fp8-blocks", "nf4"])
@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("tensor", 2), ("tensor", 3)])
def test_what_is_counted_is_held(
    models: Callable[[str], Model], method: str, split: Split, ranks: int
) -> None:
    for loading in check(models(method), split, ranks, "auto"):
        matrices = {p.name: p for p in loading.parameters if not p.vector}
        assert {name: held_bytes(linear) for name, linear in loading.linears.items()} == {
            name: p.nbytes for name, p in matrices.items()
        }


def test_only_cuts_through_act_order_take_sixteen_bits(models: Callable[[str], Model]) -> None:
    (whole,) = check(models("gptq-4-act-order"), "single", 1, "auto")
    matrices = [p for p in whole.parameters if not p.vector]
    assert all(p.ordered == (p.name != "embed") for p in matrices)
    for loading in check(models("gptq-4-act-order"), "tensor", 2, "auto"):
        first = {p.name: p for p in loading.parameters if p.name.startswith("layers.0")}
        assert isinstance(loading.linears["layers.0.qkv"], Stacked)
        assert first["layers.0.gate_up"].ordered
        for name in ("layers.0.o", "layers.0.down"):
            assert (first[name].held, first[name].ordered) == ("bfloat16", False)
            assert "in the order of activations (act-order)" in first[name].reason


def test_streamed_layers_take_their_order_along(models: Callable[[str], Model]) -> None:
    spec, values = models("gptq-4-act-order")
    (p,) = place(spec, [Device("cpu", "cpu", "processor", 0, 0)], "single", Goal())
    layout = parameters(spec, p, "auto", "cpu")
    loading = Loading(spec, layout, CPU, EXACT, Span(0, LAYERS))
    for _ in loading:
        pass
    known = expected(values, p, HEAD)
    for index in range(LAYERS):
        loading.stream.wait(index)
        name = f"layers.{index}.down"
        np.testing.assert_allclose(numbers(loading.linears[name]), known[name], rtol=1e-6)
        loading.stream.release(index)
