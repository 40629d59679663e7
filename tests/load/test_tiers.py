"""A model whose first layers are held as on a card and whose last as on the processor.

Both halves run here in one process, with the hand-over that real stages have: a float32 residual
stream. What a card itself does is for the tests marked `gpu`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_models import HEAD, LAYERS, write_gguf
from torch import Tensor

from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.core import DeviceKind, Goal, ModelSpec, Placement, Plan, Row, Span, Step
from local_tp.load.loader import Loading
from local_tp.model.assemble import Assembly, Held
from local_tp.model.batch import Places, make_batch
from local_tp.model.blocks import Blocks
from local_tp.model.collectives import Solo
from local_tp.model.decoder import Decoder
from local_tp.model.feed_forward import FeedForward
from local_tp.model.linear import Int4, Int8
from local_tp.model.operations import TorchOperations
from local_tp.model.processor import learn_processor
from local_tp.model.rope import rope_tables
from local_tp.plan.layout import parameters

PAGE = 16
PROMPT = tuple(range(20, 60))


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    path = tmp_path_factory.mktemp("tiers") / "model.gguf"
    write_gguf(path, "Q4_1", {"embed": "Q8_0", "head": "Q8_0"})
    return read_gguf(path)[0]


def whole(spec: ModelSpec) -> Placement:
    d = spec.dimensions
    return Placement(
        0,
        "cpu",
        0,
        Span(0, d.layers),
        Span(0, d.query_heads),
        Span(0, d.kv_heads),
        Span(0, d.ffn),
        Span(0, d.vocab),
    )


def stage(spec: ModelSpec, layers: Span, kind: DeviceKind, streamed: Span) -> Decoder:
    """The decoder of some layers, in the forms that a device of `kind` holds."""
    placement = replace(whole(spec), layers=layers, streamed=streamed)
    cpu = torch.device("cpu")
    layout = parameters(spec, placement, "auto", kind)
    loading = Loading(spec, layout, cpu, learn_processor(), streamed, layers.start)
    for _ in loading:
        pass
    goal = Goal(streams=1, kv_format="bfloat16" if kind == "cuda" else "float32")
    plan = Plan(spec.name, goal, (placement,), "none", 4 * PAGE, PAGE, 4)
    held = Held(loading.linears, loading.vectors, loading.stream)
    operations = TorchOperations()
    assembly = Assembly(spec, plan, placement, held, operations, cpu, Solo())
    return Decoder(spec, placement, assembly.weights(), operations, Solo())


def run(spec: ModelSpec, stages: list[Decoder]) -> Tensor:
    """Logits after the prompt, and after each of three more tokens: (4, vocab)."""
    factors = torch.linspace(1, 8, HEAD // 2)
    tables = rope_tables(spec.traits.ropes[0], HEAD, 4 * PAGE, factors, torch.device("cpu"))
    places = Places(PAGE, (tables,))
    found = []
    at = 0
    for tokens in (PROMPT, (1,), (2,), (3,)):
        batch = make_batch(Step(at, (Row(0, tokens, at, (0, 1, 2), logits=True),)), places)
        x = stages[0].embed(batch)
        for decoder in stages:
            assert x.dtype == torch.float32
            x = decoder.layers(x.clone(), batch)
        logits = stages[-1].logits(x, batch)
        assert logits is not None
        found.append(logits[0])
        at += len(tokens)
    return torch.stack(found)


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("streamed", [Span(0, 0), Span(0, 1)])
def test_card_layers_then_processor_layers_say_what_each_alone_says(
    spec: ModelSpec, first: int, streamed: Span
) -> None:
    none = Span(0, 0)
    with torch.no_grad():
        card = stage(spec, Span(0, first), "cuda", streamed)
        tier = stage(spec, Span(first, LAYERS), "cpu", none)
        assert isinstance(card.weights.embed, Blocks)
        assert isinstance(tier.weights.head, Int8)
        feed = tier.weights.layers[0].feed.run
        assert isinstance(feed, FeedForward)
        assert isinstance(feed.gate_up, Int4)
        mixed = run(spec, [card, tier])
        for kind in ("cuda", "cpu"):
            alone = run(spec, [stage(spec, Span(0, LAYERS), kind, none)])
            # Weights of a standard deviation of one make little of rounding: unlike is 1.4.
            assert (mixed - alone).norm() < 0.2 * alone.norm()
        assert mixed.std() > 1, "logits of nothing"
