"""Predicted bytes: published values, known sums, and what a person expects to grow with what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_specs import SMALL, small_spec

from local_tp.checkpoint.known_models import known_model
from local_tp.core import (
    EMPTY,
    DeviceKind,
    Dimensions,
    Goal,
    KvFormat,
    ModelSpec,
    Placement,
    Span,
    Transport,
)
from local_tp.plan.layout import parameters, weight_bytes
from local_tp.plan.memory import (
    CARD_CONTEXT,
    CARD_PROCESS,
    PARENT,
    PROCESS,
    exchange_bytes,
    host_bytes_of_plan,
    kv_bytes,
    loading_bytes,
    memory_terms,
    state_bytes,
    with_memory,
)
from local_tp.prediction import Memory

MIB = 1 << 20
SPEC = small_spec()


def whole(spec: ModelSpec) -> Placement:
    d = spec.dimensions
    return Placement(
        rank=0,
        device="x",
        stage=0,
        layers=Span(0, d.layers),
        query_heads=Span(0, d.query_heads),
        kv_heads=Span(0, d.kv_heads),
        ffn=Span(0, d.ffn),
        vocab=Span(0, d.vocab),
        experts=Span(0, d.experts),
    )


def memory(
    spec: ModelSpec = SPEC,
    goal: Goal | None = None,
    tokens: int = 4096,
    kind: DeviceKind = "cpu",
    ranks: int = 1,
    transport: Transport = "none",
    ratio: float = 1.0,
    context: int = 0,
    **changes: Span,
) -> Memory:
    placement = replace(whole(spec), **changes)
    goal = goal or Goal(streams=1)
    return with_memory(spec, placement, goal, tokens, kind, ranks, transport, ratio, context).memory


@pytest.mark.parametrize(
    ("name", "kv_format", "per_token"),
    [
        ("Qwen3.5 27B", "bfloat16", 65_536),  # 16 of 64 layers grow
        ("Qwen3.5 35B-A3B", "bfloat16", 20_480),
        ("Qwen3 8B", "float16", 147_456),
        ("DeepSeek V3 671B", "bfloat16", 61 * 576 * 2),  # a compressed row a layer
    ],
)
def test_bytes_a_token_leaves_as_published(name: str, kv_format: KvFormat, per_token: int) -> None:
    spec = known_model(name, "Q4_K_M")
    goal = Goal(streams=1, kv_format=kv_format)
    longer, shorter = (kv_bytes(spec, whole(spec), goal, tokens) for tokens in (65_536, 32_768))
    assert (longer - shorter) / 32_768 == per_token


def test_the_cache_of_a_large_model_as_llama_cpp_reports_it() -> None:
    """Qwen3-235B, 94 layers, 32,768 tokens in 16 bits: 3520 and 2496 MiB on two cards."""
    spec = known_model("Qwen3 235B-A22B", "Q4_K_M")
    goal = Goal(streams=1, kv_format="float16")
    first, second = (
        kv_bytes(spec, replace(whole(spec), layers=span), goal, 32_768)
        for span in (Span(0, 55), Span(55, 94))
    )
    assert (first / MIB, second / MIB) == (3520, 2496)


def test_a_window_bounds_what_its_layers_keep() -> None:
    """Gemma 3 27B: of 62 layers 10 grow; the others keep 1024 tokens, a chunk, whole pages."""
    spec = known_model("Gemma 3 27B", "Q4_0")
    goal = Goal(streams=1, kv_format="bfloat16", chunk=512)
    token = 2 * 16 * 128 * 2
    assert kv_bytes(spec, whole(spec), goal, 32_768) == token * (10 * 32_768 + 52 * 1536)
    assert kv_bytes(spec, whole(spec), goal, 640) == token * 62 * 640
    four = kv_bytes(spec, whole(spec), replace(goal, streams=4), 4 * 32_768)
    assert four == token * 4 * (10 * 32_768 + 52 * 1536)


def test_more_ranks_than_kv_heads_do_not_make_the_cache_smaller() -> None:
    quarter = replace(whole(SPEC), query_heads=Span(0, 1), kv_heads=Span(0, 1))
    half = replace(whole(SPEC), query_heads=Span(0, 3), kv_heads=Span(0, 1))
    goal = Goal(streams=1)
    assert kv_bytes(SPEC, quarter, goal, 64) == kv_bytes(SPEC, half, goal, 64) > 0
    assert kv_bytes(SPEC, half, goal, 64) * 2 == kv_bytes(SPEC, whole(SPEC), goal, 64)


def test_a_compressed_row_is_whole_on_every_rank() -> None:
    spec = known_model("DeepSeek V3 671B", "Q4_K_M")
    one = replace(whole(spec), query_heads=Span(0, 16), kv_heads=Span(0, 16))
    goal = Goal(streams=1, kv_format="bfloat16")
    assert kv_bytes(spec, one, goal, 64) == kv_bytes(spec, whole(spec), goal, 64)


def test_a_rank_without_heads_keeps_no_keys() -> None:
    idle = replace(whole(SPEC), query_heads=EMPTY, kv_heads=EMPTY)
    assert kv_bytes(SPEC, idle, Goal(), 4096) == 0


def test_recurrent_state_is_fixed_for_each_stream_and_cut_like_heads() -> None:
    spec = known_model("Qwen3.6 27B", "Q4_K_M")  # 48 of 64 layers; 48 value and 16 key heads of 128
    matrices, inputs = 48 * 128 * 128, 3 * (2 * 16 + 48) * 128
    assert spec.dimensions.state == matrices + inputs
    assert state_bytes(spec, whole(spec), 3) == 48 * 3 * (matrices + inputs) * 4
    part = replace(whole(spec), layers=Span(3, 8), query_heads=Span(6, 12), kv_heads=Span(1, 2))
    assert state_bytes(spec, part, 3) == 3 * 3 * (matrices + inputs) // 4 * 4
    assert state_bytes(spec, replace(part, query_heads=Span(6, 7)), 1) == (
        3 * (2 * 128 * 128 + 3 * (2 * 4 + 2) * 128) * 4
    )


def test_weights_are_those_that_loading_makes() -> None:
    found = memory()
    assert found.weights == weight_bytes(SPEC, whole(SPEC), "auto", "cpu")
    assert found.weights == sum(p.nbytes for p in parameters(SPEC, whole(SPEC), "auto", "cpu"))


def test_what_is_replicated_is_a_part_of_the_weights() -> None:
    found = memory(query_heads=Span(0, 1), kv_heads=Span(0, 1), ranks=6, transport="gloo")
    assert 0 < found.replicated < found.weights


def test_every_term_is_printed_and_adds_up() -> None:
    found = memory(ranks=2, transport="shared-memory", query_heads=Span(0, 3), kv_heads=Span(0, 1))
    *terms, replicated, host = memory_terms(found)
    assert sum(nbytes for _, nbytes in terms) == found.total
    assert (replicated[1], host[1]) == (found.replicated, found.host)
    assert len({name for name, _ in memory_terms(found)}) == 10


def test_activations_do_not_shrink_with_the_share() -> None:
    """Residual stream and norm are whole on each rank: a share of nothing still has them."""
    goal = Goal(streams=1, chunk=4096)
    tokens = 8192
    nothing = memory(
        SPEC, goal, tokens, query_heads=EMPTY, kv_heads=EMPTY, ffn=EMPTY, vocab=Span(0, 1)
    )
    assert nothing.activations >= 2 * 4096 * SMALL.hidden * 4
    full = memory(SPEC, goal, tokens)
    assert nothing.activations < full.activations


def test_activations_grow_with_the_chunk_and_the_context() -> None:
    spec = known_model("Qwen3 8B", "Q8_0")
    small, large = (
        memory(spec, Goal(streams=1, chunk=chunk), 16_384).activations for chunk in (256, 1024)
    )
    assert small * 2.5 < large < small * 4.5
    near, far = (memory(spec, Goal(streams=1), tokens).activations for tokens in (65_536, 131_072))
    tables = 2 * 128 * 4  # sine and cosine of each place
    mask = 512 * (1 + 4)  # as it is stored, and as attention takes it
    assert far - near == pytest.approx(65_536 * (tables + mask), rel=0.01)


def test_scattered_pages_are_gathered_only_where_streams_share_the_cache() -> None:
    spec = known_model("Qwen3 8B", "Q8_0")
    one = memory(spec, Goal(streams=1), 65_536).activations
    two = memory(spec, Goal(streams=2), 2 * 65_536).activations
    layer = 2 * 8 * 128 * 65_536 * 4  # the keys and values of one stream
    assert two - one == pytest.approx(layer, rel=0.01)


def test_unpacked_weights_are_bounded() -> None:
    """A matrix of 4-bit codes is made into numbers in blocks, however large it is."""
    small, large = (
        memory(known_model(name, "Q4_0"), Goal(streams=1, chunk=32, context=64), 64)
        for name in ("Qwen3 0.6B", "Qwen3 32B")
    )
    assert large.activations + large.logits - small.activations - small.logits < 64 * MIB


def test_logits_are_counted_on_the_last_stage_alone() -> None:
    spec = known_model("Qwen3 0.6B", "Q8_0")
    goal = Goal(streams=16, chunk=16)
    first = memory(spec, goal, 16 * 64, layers=Span(0, 14))
    last = memory(spec, goal, 16 * 64, layers=Span(14, 28))
    assert first.logits == 0
    assert last.activations + last.logits >= 16 * spec.dimensions.vocab * (4 + 2)


def test_a_processor_needs_its_process_and_a_card_its_context() -> None:
    assert memory().context == PROCESS
    assert memory().host == 0
    assert memory(kind="cuda").context == CARD_CONTEXT == 457 * MIB
    assert memory(kind="cuda", context=107 * MIB).context == 107 * MIB
    assert memory(kind="cuda").host == CARD_PROCESS


def test_loading_fits_into_what_is_predicted() -> None:
    """A block is in memory several times while it is converted, before there is any text."""
    spec = known_model("Qwen3 8B", "Q4_0")
    found = memory(spec, Goal(streams=1, chunk=32), 64)
    passing = loading_bytes(spec, whole(spec), Goal(), "cpu")
    assert passing == 36 * MIB
    assert found.total >= found.weights + found.context + passing
    tiny = loading_bytes(SPEC, whole(SPEC), Goal(), "cpu")
    assert tiny == SMALL.ffn * 2 * SMALL.hidden * 36


@pytest.mark.parametrize(
    ("transport", "ranks", "layers", "expected"),
    [
        ("none", 1, Span(0, 6), 0),
        ("shared-memory", 2, Span(0, 6), 2 * 512 * 64 * 4),
        ("shared-memory", 1, Span(0, 3), 512 * 64 * 4),  # half of the link's two slots
        ("shared-memory", 1, Span(3, 6), 512 * 64 * 4),
        ("shared-memory", 1, Span(2, 4), 2 * 512 * 64 * 4),
    ],
)
def test_shared_memory_is_counted_once_among_ranks(
    transport: Transport, ranks: int, layers: Span, expected: int
) -> None:
    placement = replace(whole(SPEC), layers=layers, vocab=Span(0, 256))
    assert exchange_bytes(SPEC, placement, Goal(), "cpu", ranks, transport) == expected


def test_nccl_takes_memory_on_the_card_and_gloo_beside_it() -> None:
    nccl = memory(kind="cuda", ranks=2, transport="nccl")
    gloo = memory(kind="cuda", ranks=2, transport="gloo")
    assert nccl.exchange == 256 * MIB
    assert gloo.exchange == 0
    assert gloo.host - CARD_PROCESS == 3 * 512 * SMALL.hidden * 4


def test_streamed_layers_lie_in_the_pc_and_two_of_them_on_the_card() -> None:
    resident, streamed = memory(kind="cuda"), memory(kind="cuda", streamed=Span(2, 6))
    five = memory(kind="cuda", layers=Span(1, 6)).weights
    layer = five - memory(kind="cuda", layers=Span(2, 6)).weights
    assert layer > 0
    assert resident.weights - streamed.weights == 2 * layer
    assert streamed.host - resident.host == 4 * layer


def test_a_ratio_above_one_raises_the_workspace_and_one_below_is_not_relied_on() -> None:
    usual = memory()
    raised = memory(ratio=1.5)
    assert raised.total - usual.total == usual.workspace // 2
    assert replace(raised, slack=0) == replace(usual, slack=0)
    assert memory(ratio=0.5) == usual


def test_the_pc_holds_the_parent_and_every_card_s_process() -> None:
    cards = [Placement(i, "x", 0, *[EMPTY] * 5, memory=Memory(host=i * MIB)) for i in (1, 2)]
    assert host_bytes_of_plan(cards) == PARENT + 3 * MIB
    assert host_bytes_of_plan(cards, loading=True) == PARENT + 3 * MIB + 2 * 36 * MIB


def test_products_in_sixteen_bits_take_half() -> None:
    """A chunk of 512 tokens meets 2 x 4096 rows; a block of 4M numbers is unpacked beside it."""
    dimensions = Dimensions(2, 1024, 8, 8, 128, 4096, 1024, 8192)
    spec = small_spec(dimensions, "Q4_0")
    goal = Goal(streams=1, chunk=512)
    unknown, wide, narrow = (
        memory(spec, replace(goal, product=product), tokens=512)
        for product in (None, "float32", "bfloat16")
    )
    assert unknown.activations == wide.activations
    given, block = 512 * 8192, 4 << 20
    cast = 512 * 1024 * 2  # the input in 16 bits
    assert wide.activations - narrow.activations == (given + block) * 2 - cast
    assert narrow.slack < wide.slack
    assert unknown.slack < wide.slack  # an upper bound has no holes of its own
    sixteen = small_spec(dimensions, "BF16")
    assert memory(sixteen, replace(goal, product="bfloat16")) == memory(sixteen, goal)
