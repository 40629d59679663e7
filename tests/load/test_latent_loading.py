"""The ways up from compressed rows, as numbers of each head, however a file keeps them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from block_writer import quantized
from gguf import GGMLQuantizationType as Kind

from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.core import EMPTY, Dtype, Goal, ModelSpec, Placement, Plan, Row, Span, Step
from local_tp.load.loader import Loading
from local_tp.model.assemble import Assembly, Held
from local_tp.model.batch import Places, make_batch
from local_tp.model.collectives import Solo
from local_tp.model.decoder import Decoder
from local_tp.model.latent import LatentAttention
from local_tp.model.linear import Dense, Linear
from local_tp.model.operations import TorchOperations
from local_tp.model.processor import learn_processor
from local_tp.plan.layout import parameters
from local_tp.plan.memory import kv_bytes

HEADS, PLAIN, ROTATED, VALUE, RANK, HIDDEN = 4, 32, 16, 64, 256, 64
MINE = Span(1, 3)  # heads
PAGE, CPU = 8, torch.device("cpu")
RANKS = Placement(0, "cpu", 0, Span(0, 1), MINE, MINE, Span(0, 32), Span(0, 32))

Numbers = dict[str, np.ndarray]


def random(*shape: int) -> np.ndarray:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return values.astype(np.float32)


def write(path: Path, form: str, *, apart: bool) -> Numbers:
    """A file of one layer; of its matrices, what the format makes of them, by GGUF's stems."""
    writer = gguf.GGUFWriter(path, "deepseek2")
    for key, value in {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": HIDDEN,
        "attention.head_count": HEADS,
        "rope.dimension_count": ROTATED,
    }.items():
        writer.add_uint32(f"deepseek2.{key}", value)
    writer.add_float32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(32)])
    writer.add_token_scores([0.0] * 32)
    writer.add_token_types([1] * 32)
    for name, size in {"token_embd": 32, "output": 32}.items():
        writer.add_tensor(f"{name}.weight", random(size, HIDDEN))
    norms = {"attn_norm": HIDDEN, "ffn_norm": HIDDEN, "attn_kv_a_norm": RANK}
    for name, size in norms.items():
        writer.add_tensor(f"blk.0.{name}.weight", random(size))
    writer.add_tensor("output_norm.weight", random(HIDDEN))
    sizes = {
        "attn_q": (HEADS * (PLAIN + ROTATED), HIDDEN),
        "attn_kv_a_mqa": (RANK + ROTATED, HIDDEN),
        "attn_output": (HIDDEN, HEADS * VALUE),
        "ffn_gate": (32, HIDDEN),
        "ffn_up": (32, HIDDEN),
        "ffn_down": (HIDDEN, 32),
    }
    if apart:
        sizes |= {"attn_k_b": (HEADS, RANK, PLAIN), "attn_v_b": (HEADS, VALUE, RANK)}
    else:
        sizes |= {"attn_kv_b": (HEADS * (PLAIN + VALUE), RANK)}
    found = {}
    for name, shape in sizes.items():
        small = shape[-1] % 256 and form == "Q4_K"
        chosen = "Q8_0" if small else form
        stored = quantized(random(*shape).reshape(-1, shape[-1]), chosen)
        found[name] = gguf.dequantize(stored, Kind[chosen]).reshape(shape)
        stored = stored.reshape(*shape[:-1], -1)
        writer.add_tensor(f"blk.0.{name}.weight", stored, raw_dtype=Kind[chosen])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def load(path: Path, dtype: Dtype) -> dict[str, Linear]:
    spec, _ = read_gguf(path)
    planned = parameters(spec, RANKS, dtype, "cpu")
    loading = Loading(spec, planned, CPU, learn_processor())
    for _ in loading:
        pass
    assert loading.nbytes == sum(p.nbytes for p in planned)
    return loading.linears


def numbers(linear: Linear, count: int) -> np.ndarray:
    return np.asarray(linear.rows(torch.arange(count)).numpy())


@pytest.mark.parametrize("form", ["F32", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("apart", [False, True])
def test_each_rank_has_those_of_its_heads(apart: bool, form: str, tmp_path: Path) -> None:
    known = write(tmp_path / "m.gguf", form, apart=apart)
    if apart:
        keys, values = known["attn_k_b"].transpose(0, 2, 1), known["attn_v_b"]
    else:
        heads = known["attn_kv_b"].reshape(HEADS, PLAIN + VALUE, RANK)
        keys, values = heads[:, :PLAIN], heads[:, PLAIN:]
    linears = load(tmp_path / "m.gguf", "float32")
    for name, whole in (("k_up", keys), ("v_up", values)):
        mine = whole[slice(*MINE)].reshape(-1, RANK)
        assert np.array_equal(numbers(linears[f"layers.0.{name}"], len(mine)), mine)


@pytest.mark.parametrize("form", ["F32", "Q8_0", "Q4_K"])
def test_only_what_is_rotated_is_put_in_halves(form: str, tmp_path: Path) -> None:
    known = write(tmp_path / "m.gguf", form, apart=True)
    linears = load(tmp_path / "m.gguf", "float32")
    order = [*range(0, ROTATED, 2), *range(1, ROTATED, 2)]
    row = known["attn_kv_a_mqa"]
    whole = np.concatenate((row[:RANK], row[RANK:][order]))
    assert np.array_equal(numbers(linears["layers.0.kv_down"], len(whole)), whole)
    heads = known["attn_q"].reshape(HEADS, PLAIN + ROTATED, HIDDEN)[slice(*MINE)]
    queries = np.concatenate((heads[:, :PLAIN], heads[:, PLAIN:][:, order]), 1)
    rows = queries.reshape(-1, HIDDEN)
    assert np.array_equal(numbers(linears["layers.0.q"], len(rows)), rows)


@pytest.mark.parametrize("dtype", ["auto", "int8"])
@pytest.mark.parametrize("apart", [False, True])
def test_they_are_plain_where_others_are_held_in_blocks(
    apart: bool, dtype: Dtype, tmp_path: Path
) -> None:
    write(tmp_path / "m.gguf", "Q4_K", apart=apart)
    linears = load(tmp_path / "m.gguf", dtype)
    for name in ("k_up", "v_up"):
        matrix = linears[f"layers.0.{name}"]
        assert isinstance(matrix, Dense)
        assert matrix.weight.dtype == torch.bfloat16
    assert not isinstance(linears["layers.0.o"], Dense)
    spec, _ = read_gguf(tmp_path / "m.gguf")
    planned = {p.name: p for p in parameters(spec, RANKS, dtype, "cpu")}
    assert "multiplied one by one" in planned["layers.0.k_up"].reason


def layer_of(path: Path, streamed: Span) -> tuple[ModelSpec, Plan, Decoder, Places]:
    """The one layer of the file on a rank with two of the heads, ready to run."""
    spec, _ = read_gguf(path)
    placement = replace(RANKS, streamed=streamed)
    goal = Goal(streams=2, kv_format="bfloat16")
    plan = Plan(spec.name, goal, (placement,), "none", 64, PAGE, 6)
    layout = parameters(spec, placement, "auto", "cpu")
    loading = Loading(spec, layout, CPU, learn_processor(), streamed)
    for _ in loading:
        pass
    held = Held(loading.linears, loading.vectors, loading.stream)
    assembly = Assembly(spec, plan, placement, held, TorchOperations(), CPU, Solo())
    decoder = Decoder(spec, placement, assembly.weights(), TorchOperations(), Solo())
    return spec, plan, decoder, assembly.places()


def test_the_cache_is_as_large_as_planned(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", "Q8_0", apart=True)
    spec, plan, decoder, _ = layer_of(tmp_path / "m.gguf", EMPTY)
    latent = decoder.weights.layers[0].mixer.run
    assert isinstance(latent, LatentAttention)
    assert latent.cache.shape == (1, 6 * PAGE, RANK + ROTATED)
    assert latent.cache.nbytes == kv_bytes(spec, plan.placements[0], plan.goal, 6 * PAGE)


def test_a_streamed_layer_gives_the_same(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", "Q8_0", apart=False)
    x = torch.from_numpy(random(PAGE, HIDDEN))
    found = []
    for streamed in (EMPTY, Span(0, 1)):
        _, _, decoder, places = layer_of(tmp_path / "m.gguf", streamed)
        batch = make_batch(Step(0, (Row(0, (0,) * PAGE, 0, (2,)),)), places)
        found.append(decoder.layers(x.clone(), batch))
    assert torch.equal(*found)
    assert not torch.equal(found[0], x)
