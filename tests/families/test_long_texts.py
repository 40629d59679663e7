"""Texts much longer than a window or a block: the same logits, from memory that does not grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from family_models import SIZES, VOCAB, write_model
from family_pool import RankPool
from family_splits import plan_of
from torch import Tensor
from transformers import Gemma3TextConfig, MistralConfig, PretrainedConfig, Qwen3_5TextConfig

from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.core import ModelSpec, Placement, Plan, Row, Step
from local_tp.load.loader import Loading
from local_tp.model.assemble import Assembly, Held
from local_tp.model.attention import Attention
from local_tp.model.collectives import Solo
from local_tp.model.delta_net import DeltaNet
from local_tp.model.operations import TorchOperations
from local_tp.model.processor import learn_processor
from local_tp.plan.cache import ring_places
from local_tp.plan.layout import parameters
from local_tp.plan.memory import kv_bytes, state_bytes

CONTEXT, CHUNK, WINDOW, PAGE, STREAMS = 512, 80, 24, 32, 2
RING = 128  # the window and a chunk, in whole pages
TOKENS = STREAMS * CONTEXT
LONG = SIZES | {"max_position_embeddings": CONTEXT}
MIXED = ["sliding_attention", "sliding_attention", "full_attention"]
DELTA = ["linear_attention", "linear_attention", "full_attention"]
DELTA_SIZES = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "every layer slides": MistralConfig(**LONG, sliding_window=WINDOW),
    "most layers slide": Gemma3TextConfig(**LONG, sliding_window=WINDOW, layer_types=MIXED),
    "delta nets": Qwen3_5TextConfig(**LONG, **DELTA_SIZES, layer_types=DELTA),
}


def long_plan(spec: ModelSpec, split: str, context: int = CONTEXT) -> Plan:
    plan = plan_of(spec, split, ring=True)
    return replace(
        plan,
        goal=replace(plan.goal, chunk=CHUNK),
        context=context,
        page_size=PAGE,
        pages=STREAMS * context // PAGE,
    )


@pytest.mark.parametrize("split", ["single", "tensor 3"])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_long_texts_one_after_another_in_a_stream(
    pool: RankPool, tmp_path: Path, name: str, split: str
) -> None:
    """A text read in chunks and written on token by token, given up, and begun again in the other
    stream while another takes over its own."""
    reference = write_model(CONFIGS[name], tmp_path)
    spec = read_folder(tmp_path)
    torch.manual_seed(1)
    texts = [torch.randint(3, VOCAB, (n,)).tolist() for n in (430, 300)]
    with torch.no_grad():
        wanted = [reference.model(torch.tensor([text])).logits[0] for text in texts]
    steps = [[(0, 0, CHUNK)]] * 3 + [[(0, 0, 1)]] * 3
    steps += [[(0, 1, CHUNK)], [(1, 0, 70)], [(1, 0, 3)], [(0, 1, CHUNK)], [(1, 0, CHUNK)]]
    steps += [[(0, 1, 1), (1, 0, 1)]] * 30 + [[(0, 1, CHUNK)]] * 2
    read: dict[tuple[int, int], int] = {}
    with pool.running(spec, long_plan(spec, split)) as run:
        for number, step in enumerate(steps):
            rows = []
            for text, stream, count in step:
                at = read.get((text, stream), 0)
                pages = tuple(range(stream, TOKENS // PAGE, STREAMS))
                tokens = tuple(texts[text][at : at + count])
                rows.append(Row(text, tokens, at, pages, stream=stream, logits=True))
                read[text, stream] = at + count
            for row, result in zip(rows, run(Step(number, tuple(rows))), strict=True):
                assert result.logits is not None
                found = torch.frombuffer(bytearray(result.logits), dtype=torch.float32)
                expected = wanted[row.request][row.position + len(row.tokens) - 1]
                worst = (found - expected).abs().max()
                assert worst <= 1e-4 * expected.abs().max(), (number, row.request, row.position)
    assert min(read.values()) > RING  # every ring has begun anew


def kept(spec: ModelSpec, plan: Plan, placement: Placement) -> dict[str, int]:
    """Bytes that a rank allocates for texts."""
    device = torch.device("cpu")
    layout = parameters(spec, placement, "float32", "cpu")
    loading = Loading(spec, layout, device, learn_processor())
    for _ in loading:
        pass
    held = Held(loading.linears, loading.vectors, loading.stream)
    assembly = Assembly(spec, plan, placement, held, TorchOperations(), device, Solo())
    caches: list[Tensor] = []
    states: list[Tensor] = []
    for layer in assembly.weights().layers:
        if isinstance(layer.mixer.run, Attention):
            caches.append(layer.mixer.run.cache)
        elif isinstance(layer.mixer.run, DeltaNet):
            states += (layer.mixer.run.state.inputs, layer.mixer.run.state.matrices)
    return {"kv": sum(c.nbytes for c in caches), "state": sum(s.nbytes for s in states)}


@pytest.mark.parametrize("split", ["single", "tensor 3", "tensor 5", "hybrid"])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_what_is_allocated_is_what_was_planned(tmp_path: Path, name: str, split: str) -> None:
    write_model(CONFIGS[name], tmp_path)
    spec = read_folder(tmp_path)
    plan = long_plan(spec, split)
    for placement in plan.placements:
        assert kept(spec, plan, placement) == {
            "kv": kv_bytes(spec, placement, plan.goal, TOKENS),
            "state": state_bytes(spec, placement, STREAMS),
        }


def test_a_longer_context_costs_only_layers_without_a_window(tmp_path: Path) -> None:
    write_model(CONFIGS["most layers slide"], tmp_path)
    spec = read_folder(tmp_path)
    token = 2 * 2 * 8 * 4  # keys and values of two heads of eight, in four bytes
    found = []
    for context in (CONTEXT, 4 * CONTEXT):
        plan = long_plan(spec, "single", context)
        assert ring_places(spec, plan.goal, STREAMS * context) == RING
        found.append(kept(spec, plan, plan.placements[0])["kv"])
    assert found[0] == (2 * STREAMS * RING + TOKENS) * token
    assert found[1] == (2 * STREAMS * RING + 4 * TOKENS) * token


def test_a_delta_net_keeps_no_more_of_a_longer_text(tmp_path: Path) -> None:
    write_model(CONFIGS["delta nets"], tmp_path)
    spec = read_folder(tmp_path)
    matrices, inputs = 4 * 8 * 8, 3 * (2 * 2 + 4) * 8
    for context in (CONTEXT, 4 * CONTEXT):
        plan = long_plan(spec, "single", context)
        state = kept(spec, plan, plan.placements[0])["state"]
        assert state == 2 * STREAMS * (matrices + inputs) * 4
