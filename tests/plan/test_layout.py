"""The shards of a plan's ranks are the model, once; and bytes are what the shards add up to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_specs import SMALL, cards, placed, processors, small_spec

from local_tp.checkpoint.formats import FORMATS, HELD, READABLE
from local_tp.checkpoint.read import read
from local_tp.core import (
    EMPTY,
    DeviceKind,
    Dimensions,
    Dtype,
    Goal,
    ModelSpec,
    Placement,
    Span,
    Split,
)
from local_tp.plan.check import check_placements
from local_tp.plan.layout import (
    INT4_STORED,
    INT8_STORED,
    column_grain,
    parameters,
    weight_bytes,
)
from local_tp.plan.place import place

WHOLE = Placement(
    0,
    "cpu",
    0,
    layers=Span(0, SMALL.layers),
    query_heads=Span(0, SMALL.query_heads),
    kv_heads=Span(0, SMALL.kv_heads),
    ffn=Span(0, SMALL.ffn),
    vocab=Span(0, SMALL.vocab),
)


def held(spec: ModelSpec, placement: Placement = WHOLE, dtype: Dtype = "auto") -> dict[str, str]:
    return {p.name: p.held for p in parameters(spec, placement, dtype, "cpu")}


# --------------------------------------------------------------------------------- coverage


@st.composite
def splits(draw: st.DrawFn) -> tuple[ModelSpec, tuple[Placement, ...]]:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dimensions = Dimensions(
        layers=draw(st.integers(2, 4)),
        hidden=32,
        query_heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([8, 32])),
        ffn=draw(st.sampled_from([32, 96, 256, 1000])),
        vocab=draw(st.sampled_from([40, 130, 256])),
        context=64,
    )
    spec = small_spec(dimensions, "F16", tied=draw(st.booleans()), bias=draw(st.booleans()))
    split: Split = draw(st.sampled_from(["layer", "tensor", "hybrid"]))
    least, most = {"layer": (1, 2), "tensor": (1, 6), "hybrid": (3, 6)}[split]
    bandwidths = draw(st.lists(st.floats(1e11, 2e12), min_size=least, max_size=most))
    return spec, placed(spec, cards(*bandwidths), split)


def taken(spec: ModelSpec, ranks: tuple[Placement, ...]) -> dict[str, np.ndarray]:
    """How often each stored number is taken, by tensor."""
    count = {name: np.zeros(info.shape, dtype=int) for name, info in spec.tensors.items()}
    for rank in ranks:
        for parameter in parameters(spec, rank, "auto", "cuda"):
            for shard in parameter.shards:
                array = count[shard.source]
                if array.ndim == 1:
                    array[shard.rows.start : shard.rows.stop] += 1
                else:
                    array[slice(*shard.rows), slice(*shard.columns)] += 1
    return count


@settings(deadline=None, max_examples=60)
@given(splits())
def test_the_ranks_of_a_stage_take_every_number_once(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    spec, placements = case
    d = spec.dimensions
    for stage in range(1 + placements[-1].stage):
        ranks = tuple(p for p in placements if p.stage == stage)
        count = taken(spec, ranks)
        first, last = ranks[0].layers.start == 0, ranks[0].layers.stop == d.layers
        holders = np.array([sum(h in p.kv_heads for p in ranks) for h in range(d.kv_heads)])
        copies = np.repeat(holders, d.head_dim)
        tied_at_both_ends = spec.traits.tied_head and last and not first
        assert (count["embed"] == int(first or tied_at_both_ends)).all()
        assert (count["norm"] == (len(ranks) if last else 0)).all()
        if not spec.traits.tied_head:
            assert (count["head"] == int(last)).all()
        for name, array in count.items():
            if not name.startswith("layers."):
                continue
            _, index, part = name.split(".")
            if int(index) not in ranks[0].layers:
                expected = np.zeros(1)
            elif part in ("k", "v"):
                expected = copies[:, None]
            elif part in ("k_bias", "v_bias"):
                expected = copies
            elif part == "attn_norm":
                expected = np.array([sum(p.query_heads.size > 0 for p in ranks)])
            elif part == "ffn_norm":
                expected = np.array([sum(p.ffn.size > 0 for p in ranks)])
            else:
                expected = np.ones(1)
            assert (array == expected).all(), name


@settings(deadline=None, max_examples=60)
@given(splits())
def test_shards_fill_their_parameter_from_top_to_bottom(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    spec, placements = case
    for placement in placements:
        layout = parameters(spec, placement, "auto", "cuda")
        assert len({p.name for p in layout}) == len(layout)
        for parameter in layout:
            at = 0
            for shard in parameter.shards:
                assert shard.parameter == parameter.name
                assert shard.offset == at
                assert shard.columns.size == parameter.columns
                at += shard.rows.size
            assert at == parameter.rows


@settings(deadline=None, max_examples=60)
@given(splits())
def test_such_placements_pass_the_check(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    spec, placements = case
    check_placements(spec, placements, cards(*[1e9] * len(placements)))


def test_fused_parameters_are_cut_apart_and_then_stacked() -> None:
    second = placed(small_spec(), processors(2), "tensor")[1]
    by_name = {p.name: p for p in parameters(small_spec(), second, "auto", "cpu")}
    qkv = by_name["layers.3.qkv"]
    assert [(s.source, s.rows, s.offset) for s in qkv.shards] == [
        ("layers.3.q", Span(96, 192), 0),
        ("layers.3.k", Span(32, 64), 96),
        ("layers.3.v", Span(32, 64), 128),
    ]
    assert [(s.source, s.rows, s.offset) for s in by_name["layers.3.gate_up"].shards] == [
        ("layers.3.gate", Span(128, 256), 0),
        ("layers.3.up", Span(128, 256), 128),
    ]
    assert by_name["layers.3.o"].shards[0].columns == Span(96, 192)
    assert by_name["layers.3.down"].shards[0].columns == Span(128, 256)


def test_rope_factors_go_to_every_rank() -> None:
    spec = small_spec()
    info = replace(spec.tensors["norm"], shape=(SMALL.head_dim // 2,))
    spec = replace(spec, tensors=spec.tensors | {"rope_factors": info})
    for rank in placed(spec, processors(2), "layer"):
        by_name = {p.name: p for p in parameters(spec, rank, "auto", "cpu")}
        assert by_name["rope_factors"].rows == SMALL.head_dim // 2


# -------------------------------------------------------------------------- forms in memory


def test_quantized_matrices_stay_quantized_on_the_cpu() -> None:
    forms = held(small_spec(matrices="Q4_1", tied=False))
    assert forms["layers.0.qkv"] == forms["layers.0.down"] == "int4"
    assert forms["embed"] == forms["head"] == "int8"
    assert forms["norm"] == forms["layers.0.attn_norm"] == "float32"
    assert held(small_spec(matrices="Q8_0"))["layers.0.o"] == "int8"


@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_plain_numbers_become_16_bit_on_the_cpu(stored: str) -> None:
    assert held(small_spec(matrices=stored))["layers.0.o"] == "bfloat16"


def test_a_fused_parameter_of_different_formats_keeps_each() -> None:
    spec = small_spec(matrices="Q4_0", changes={"layers.0.v": "Q8_0", "layers.1.v": "F16"})
    on_cpu = {p.name: p for p in parameters(spec, WHOLE, "auto", "cpu")}
    assert (on_cpu["layers.0.qkv"].held, on_cpu["layers.0.qkv"].stored) == ("int8", ())
    assert on_cpu["layers.2.qkv"].held == "int4"
    by_name = {p.name: p for p in parameters(spec, WHOLE, "auto", "cuda")}
    assert by_name["layers.0.qkv"].stored == ("Q4_0", "Q4_0", "Q8_0")
    assert by_name["layers.0.qkv"].nbytes == (192 + 64) * 2 * 18 + 64 * 2 * 34
    assert by_name["layers.1.qkv"].stored == ("Q4_0", "Q4_0", "F16")
    assert by_name["layers.1.qkv"].held == "F16", "most of its bytes"
    fours = held(small_spec(matrices="Q4_0", changes={"layers.0.v": "Q4_1"}))
    assert fours["layers.0.qkv"] == "int4"


def test_four_bits_need_a_cut_at_their_grain() -> None:
    spec = small_spec(matrices="Q4_0")
    rows = held(spec, replace(WHOLE, ffn=Span(0, 96)))
    assert rows["layers.0.gate_up"] == "int8"  # 96 rows are not whole packed blocks of 64
    assert rows["layers.0.down"] == "int4"  # 96 columns are whole groups of 32
    columns = held(spec, replace(WHOLE, ffn=Span(16, 144)))
    assert columns["layers.0.gate_up"] == "int4"
    assert columns["layers.0.down"] == "int8"
    one_head = replace(WHOLE, query_heads=Span(0, 1), kv_heads=Span(0, 1))
    assert held(spec, one_head)["layers.0.qkv"] == "int8"


def test_eight_bits_need_columns_in_the_steps_of_their_kernel() -> None:
    spec = small_spec(matrices="Q8_0")
    assert held(spec, replace(WHOLE, ffn=Span(0, 48)))["layers.0.down"] == "int8"
    assert held(spec, replace(WHOLE, ffn=Span(0, 40)))["layers.0.down"] == "Q8_0"
    assert held(spec, replace(WHOLE, ffn=Span(0, 40)))["layers.0.gate_up"] == "int8"
    assert held(spec, replace(WHOLE, ffn=Span(0, 40)), "int8")["layers.0.down"] == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_chosen_dtype_is_obeyed(dtype: Dtype) -> None:
    forms = held(small_spec(matrices="Q4_0"), dtype=dtype)
    assert {forms[name] for name in ("embed", "layers.0.qkv", "layers.5.down")} == {dtype}
    assert forms["norm"] == "float32"


def test_plain_numbers_are_16_bits_on_cards() -> None:
    forms = {
        stored: {p.held for p in parameters(small_spec(matrices=stored), WHOLE, "auto", "cuda")}
        for stored in ("F16", "BF16", "F32")
    }
    assert forms["F16"] == {"float16", "float32"}
    assert forms["BF16"] == forms["F32"] == {"bfloat16", "float32"}


# ------------------------------------------------------------------------------- as stored

WIDE = replace(SMALL, hidden=256, query_heads=8, kv_heads=4, head_dim=64, ffn=2048)
QUANTIZED = sorted(name for name in READABLE if FORMATS[name].quantized)
PACKED = INT8_STORED  # what torch's kernels for the processor take


ALL_HEADS = Span(0, 8)


def rank(span: Span, heads: Span = ALL_HEADS) -> Placement:
    return replace(WHOLE, query_heads=heads, kv_heads=Span(0, 4), ffn=span)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("kind", ["cuda", "rocm", "xpu", "cpu"])
def test_what_is_quantized_is_held_as_stored(name: str, kind: DeviceKind) -> None:
    """The very bytes of the file, and so those that are planned where nothing is downloaded."""
    spec = small_spec(WIDE, name, tied=False)
    whole = rank(Span(0, 2048))
    auto, stored = (parameters(spec, whole, dtype, kind) for dtype in ("auto", "stored"))
    if kind != "cpu" or name not in PACKED:
        assert auto == stored
        assert {p.held for p in auto if not p.vector} == {name}
        assert sum(p.nbytes for p in auto) == sum(info.nbytes for info in spec.tensors.values())
    else:
        assert {p.held for p in auto if not p.vector} <= {"int4", "int8"}
    wider = kind == "cpu" and name in PACKED - INT4_STORED - {"Q8_0"}
    assert any(p.reason for p in auto) == wider, "eight bits instead of fewer are said"


@pytest.mark.parametrize("span", [Span(0, 512), Span(512, 2048), Span(256, 768)])
def test_a_cut_at_the_grain_holds_its_part_of_the_bytes(span: Span) -> None:
    spec = small_spec(WIDE, "Q4_K", changes={"layers.0.down": "Q6_K", "layers.0.v": "Q6_K"})
    by_name = {p.name: p for p in parameters(spec, rank(span), "auto", "cuda")}
    assert by_name["layers.0.gate_up"].nbytes == 2 * span.size * 144
    assert by_name["layers.0.down"].nbytes == 256 * span.size // 256 * 210
    assert by_name["layers.1.down"].nbytes == 256 * span.size // 256 * 144
    assert by_name["layers.0.qkv"].stored == ("Q4_K", "Q4_K", "Q6_K")
    assert not any(p.reason for p in by_name.values())


@pytest.mark.parametrize(
    ("span", "blocks"), [(Span(0, 344), 2), (Span(200, 600), 3), (Span(250, 770), 4)]
)
def test_a_block_that_a_cut_goes_through_is_held_on_both_sides(span: Span, blocks: int) -> None:
    down = {p.name: p for p in parameters(small_spec(WIDE, "Q4_K"), rank(span), "auto", "cuda")}[
        "layers.0.down"
    ]
    assert (down.held, down.stored) == ("Q4_K", ("Q4_K",))
    assert down.columns == span.size
    assert down.nbytes == 256 * blocks * 144
    assert down.reason == f"columns {span.start}-{span.stop} cut through Q4_K's blocks of 256"


@pytest.mark.parametrize("span", [Span(0, 64), Span(250, 300)])
def test_where_16_bits_are_smaller_a_few_columns_take_them(span: Span) -> None:
    """Of one block or two hardly a quarter would be used."""
    down = {p.name: p for p in parameters(small_spec(WIDE, "Q4_K"), rank(span), "auto", "cuda")}[
        "layers.0.down"
    ]
    assert (down.held, down.stored) == ("bfloat16", ())
    assert down.nbytes == 256 * span.size * 2
    assert down.reason == f"columns {span.start}-{span.stop} cut through Q4_K's blocks of 256"


def test_heads_may_meet_the_grain() -> None:
    """Four heads of 64 are a block of the output projection; two are half of one."""
    spec = small_spec(WIDE, "Q5_K")
    four, two = (
        {p.name: p for p in parameters(spec, rank(Span(0, 2048), heads), "auto", "cuda")}
        for heads in (Span(4, 8), Span(4, 6))
    )
    assert four["layers.0.o"].nbytes == two["layers.0.o"].nbytes == 256 * 176
    assert four["layers.0.o"].reason == ""
    assert two["layers.0.o"].reason == "columns 256-384 cut through Q5_K's blocks of 256"


@pytest.mark.parametrize("name", ["IQ2_XXS", "TQ2_0"])
def test_a_format_that_is_not_read_is_planned_in_16_bits(name: str) -> None:
    found = parameters(small_spec(WIDE, name), rank(Span(0, 2048)), "auto", "cuda")
    assert {p.held for p in found if not p.vector} == {"bfloat16"}
    assert {p.reason for p in found if not p.vector} == {f"no kernel for {name}"}


def test_columns_are_cut_at_the_grain_of_what_is_stored() -> None:
    spec = small_spec(WIDE, "Q4_K", changes={"layers.0.down": "Q8_0"})
    for dtype, grain in (("auto", 256), ("stored", 256), ("bfloat16", 64), ("int8", 64)):
        assert column_grain(spec, dtype) == grain
    ranks = place(spec, cards(3e11, 5e11, 7e11), "tensor", Goal())
    assert all(p.ffn.start % 256 == 0 and p.ffn.size for p in ranks)
    reasons = {q.reason for p in ranks for q in parameters(spec, p, "auto", "cuda")}
    assert not any("down" in r for r in reasons)


# ------------------------------------------------------------------------------------ bytes


def test_known_bytes_of_each_form() -> None:
    assert HELD["float32"].nbytes(3, 5) == 60
    assert HELD["bfloat16"].nbytes(3, 5) == 30
    assert HELD["int8"].nbytes(64, 96) == 64 * 96 + 64 * 2
    assert HELD["int4"].nbytes(64, 96) == 64 * 96 // 2 + 64 * 3 * 4


def test_known_bytes_of_the_starter(starter: Path) -> None:
    """30 layers of 576, with 9 and 3 heads of 64, ffn 1536, 49,152 tokens, all by hand."""
    spec = read(starter).spec
    qkv = 960 * 576 // 2 + 960 * 18 * 4
    o = 576 * 576 // 2 + 576 * 18 * 4
    gate_up = 3072 * 576 // 2 + 3072 * 18 * 4
    down = 576 * 1536 // 2 + 576 * 48 * 4
    layer = qkv + o + gate_up + down + 2 * 576 * 4
    embed, norm = 49_152 * 576 + 49_152 * 2, 576 * 4
    (whole,) = placed(spec, processors(1), "single")
    assert weight_bytes(spec, whole, "auto", "cpu") == embed + 30 * layer + norm == 94_905_600
    front, back = placed(spec, processors(2), "layer")
    assert weight_bytes(spec, front, "auto", "cpu") == embed + front.layers.size * layer
    assert weight_bytes(spec, back, "auto", "cpu") == embed + back.layers.size * layer + norm
    plain = weight_bytes(spec, whole, "float32", "cpu")
    assert plain == 4 * sum(int(np.prod(info.shape)) for info in spec.tensors.values())


@settings(deadline=None, max_examples=30)
@given(splits(), st.sampled_from(["auto", "float32", "float16"]), st.sampled_from(["cpu", "cuda"]))
def test_weight_bytes_are_the_sum_over_parameters(
    case: tuple[ModelSpec, tuple[Placement, ...]], dtype: Dtype, kind: DeviceKind
) -> None:
    spec, placements = case
    for placement in placements:
        by_hand = sum(
            HELD[p.held].nbytes(p.rows, p.columns) for p in parameters(spec, placement, dtype, kind)
        )
        assert weight_bytes(spec, placement, dtype, kind) == by_hand


def test_a_rank_without_a_share_holds_only_what_is_whole() -> None:
    idle = replace(WHOLE, query_heads=EMPTY, kv_heads=EMPTY, ffn=EMPTY, vocab=EMPTY)
    assert [p.name for p in parameters(small_spec(), idle, "auto", "cpu")] == ["norm"]
