"""Every kind of layer is cut so that each stored number is owned once, and the rest is said."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from small_shapes import cases, devices_of, shapes, spec_like, staged, whole

from local_tp.checkpoint.known_models import known_model
from local_tp.checkpoint.shapes import Shape
from local_tp.core import EMPTY, ModelSpec, Placement, Span
from local_tp.plan.check import check_placements
from local_tp.plan.layer_cut import kv_elements
from local_tp.plan.layout import column_grain, parameters, weight_bytes

EVERYWHERE = {
    "attn_norm", "post_attn_norm", "ffn_norm", "post_ffn_norm", "q_norm", "k_norm", "router",
    "o_bias", "router_bias", "router_correction", "shared_router",
    "mix_norm", "q_down", "q_down_norm", "kv_down", "kv_down_norm",
}  # fmt: skip
WITH_KEYS = {"k", "v", "k_bias", "v_bias", "mix_q", "mix_k", "mix_conv_q", "mix_conv_k"}


def taken(spec: ModelSpec, ranks: tuple[Placement, ...]) -> dict[str, np.ndarray]:
    """How often each stored number is taken, by tensor."""
    count = {name: np.zeros(info.shape, dtype=int) for name, info in spec.tensors.items()}
    for rank in ranks:
        for parameter in parameters(spec, rank, "stored", "cuda"):
            for shard in parameter.shards:
                array = count[shard.source]
                place = (slice(*shard.rows), slice(*shard.columns))
                array[place[: array.ndim]] += 1
    return count


@settings(deadline=None, max_examples=120)
@given(cases())
def test_the_ranks_of_a_stage_take_every_number_once(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    spec, placements = case
    check_placements(spec, placements, devices_of(placements))
    for stage in range(1 + placements[-1].stage):
        ranks = tuple(p for p in placements if p.stage == stage)
        for name, array in taken(spec, ranks).items():
            if not name.startswith("layers."):
                continue
            _, index, role = name.split(".")
            if int(index) not in ranks[0].layers:
                assert not array.any(), name
            elif role in EVERYWHERE:
                assert (array == array.flat[0]).all(), name
                assert 1 <= array.flat[0] <= len(ranks), name
            elif role in WITH_KEYS:
                assert (array >= 1).all(), name
            else:
                assert (array == 1).all(), name


@settings(deadline=None, max_examples=120)
@given(cases())
def test_what_ranks_hold_beyond_the_model_is_what_they_say_is_replicated(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    """Rows that several ranks hold are reported by those that hold them."""
    spec, placements = case
    for stage in range(1 + placements[-1].stage):
        ranks = tuple(p for p in placements if p.stage == stage)
        said: Counter[str] = Counter()
        for parameter in (p for r in ranks for p in parameters(spec, r, "stored", "cuda")):
            said.update({shard.source: parameter.replicated for shard in parameter.shards})
        for name, array in taken(spec, ranks).items():
            again = int((array.reshape(array.shape[0], -1)[:, 0] > 1).sum())
            assert said[name] >= again, name


@settings(deadline=None, max_examples=60)
@given(cases())
def test_bytes_are_those_of_the_parameters(
    case: tuple[ModelSpec, tuple[Placement, ...]],
) -> None:
    spec, placements = case
    for placement in placements:
        for dtype, kind in (("stored", "cuda"), ("auto", "cuda"), ("auto", "cpu")):
            expected = sum(p.nbytes for p in parameters(spec, placement, dtype, kind))  # type: ignore[arg-type]
            assert weight_bytes(spec, placement, dtype, kind) == expected  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(shapes())
def test_one_rank_holds_the_file(shape: Shape) -> None:
    for quant in ("BF16", "Q8_0", "MXFP4"):
        spec = spec_like(shape, quant)
        assert weight_bytes(spec, whole(spec), "stored", "cuda") == file_bytes(spec)


@pytest.mark.parametrize("name", ["Llama 3 8B", "Qwen3.6 27B", "DeepSeek V3", "Gemma 4 26B-A4B"])
@pytest.mark.parametrize("quant", ["Q4_K_M", "F16", "EXL3 4.0bpw", "AWQ"])
def test_one_rank_holds_the_file_of_a_known_model(name: str, quant: str) -> None:
    spec = known_model(name, quant)
    held = weight_bytes(spec, whole(spec), "stored", "cuda")
    assert held == pytest.approx(file_bytes(spec), rel=1e-4)


def file_bytes(spec: ModelSpec) -> int:
    """Bytes of all tensors as stored, of routers in float32."""
    return sum(
        4 * prod(info.shape) if name.endswith(".router") else info.nbytes
        for name, info in spec.tensors.items()
    )


# ------------------------------------------------------------------------- kinds of layers


def parts(spec: ModelSpec, placement: Placement, layer: int) -> dict[str, tuple[int, int]]:
    """(rows, columns) of each parameter of a layer."""
    prefix = f"layers.{layer}."
    return {
        p.name.removeprefix(prefix): (p.rows, p.columns)
        for p in parameters(spec, placement, "stored", "cuda")
        if p.name.startswith(prefix)
    }


def halves(spec: ModelSpec, *shares: float) -> tuple[Placement, ...]:
    return staged(spec, [Span(0, spec.dimensions.layers)], [shares or (1.0, 1.0)])


def test_experts_go_whole_and_their_router_to_every_rank() -> None:
    spec = known_model("Qwen3 30B-A3B", "Q4_K_M")
    first, second = halves(spec, 3.0, 1.0)
    assert (first.experts, second.experts) == (Span(0, 96), Span(96, 128))
    held = parts(spec, second, 5)
    assert held["router"] == (128, 2048)
    assert held["experts_gate_up"] == (2 * 32 * 768, 2048)
    assert held["experts_down"] == (32 * 2048, 768)
    down = next(
        p for p in parameters(spec, second, "stored", "cuda") if p.name == "layers.5.experts_down"
    )
    assert down.shards[0].rows == Span(96 * 2048, 128 * 2048)


def test_shared_experts_are_cut_by_columns_like_dense_ones() -> None:
    spec = known_model("DeepSeek V3", "BF16")
    first, second = halves(spec)
    assert parts(spec, first, 0)["gate_up"] == (2 * 9216, 7168)
    assert parts(spec, first, 9)["shared_gate_up"] == (2 * 1024, 7168)
    assert parts(spec, second, 9)["shared_down"] == (7168, 1024)


def test_compressed_attention_goes_down_on_every_rank_and_up_by_heads() -> None:
    spec = known_model("DeepSeek V3", "BF16")
    held = parts(spec, halves(spec)[1], 30)
    assert held["q_down"] == (1536, 7168)
    assert held["kv_down"] == (512 + 64, 7168)
    assert held["q"] == (64 * 192, 1536)
    assert held["k_up"] == held["v_up"] == (64 * 128, 512)
    assert held["o"] == (7168, 64 * 128)


def test_a_recurrent_layer_is_cut_by_heads() -> None:
    spec = known_model("Qwen3.6 27B", "BF16")
    held = parts(spec, halves(spec)[0], 0)
    assert held["mix_in"] == (2 * 1024 + 2 * 3072, 5120)
    assert held["mix_gates"] == (48, 5120)
    assert held["mix_conv"] == (2 * 1024 + 3072, 4)
    assert held["mix_decay"] == (24, 1)
    assert held["mix_o"] == (5120, 3072)


def test_full_layers_with_fewer_heads_copy_theirs() -> None:
    spec = known_model("Gemma 4 12B", "BF16")  # sliding: 8 KV heads of 256; full: one of 512
    first = halves(spec)[0]
    assert parts(spec, first, 0)["qkv"] == (8 * 256 + 2 * 4 * 256, 3840)
    assert parts(spec, first, 5)["qkv"] == (8 * 512 + 512, 3840)
    qkv = next(p for p in parameters(spec, first, "auto", "cuda") if p.name == "layers.5.qkv")
    assert qkv.replicated == 512
    assert qkv.replicated_bytes == 512 * 3840 * 2


def test_a_rank_without_heads_or_columns_has_no_norm_of_that_kind() -> None:
    spec = known_model("Qwen3 30B-A3B", "BF16")
    rank = Placement(0, "cpu", 0, Span(0, 1), EMPTY, EMPTY, EMPTY, EMPTY, experts=Span(0, 4))
    assert set(parts(spec, rank, 0)) == {"ffn_norm", "router", "experts_gate_up", "experts_down"}


# ---------------------------------------------------------------------- what a token leaves


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("Llama 3 8B", 32 * 2 * 8 * 128),
        ("Qwen3.6 27B", 65_536 // 2),
        ("Qwen3.6 35B-A3B", 20_480 // 2),
        ("DeepSeek V3", 61 * 576),
        ("Qwen3 235B-A22B", 94 * 2 * 4 * 128),
        ("Gemma 4 31B", 50 * 2 * 16 * 256 + 10 * 2 * 4 * 512),
    ],
)
def test_elements_that_a_token_leaves(name: str, elements: int) -> None:
    spec = known_model(name, "BF16")
    layers = range(spec.dimensions.layers)
    assert sum(kv_elements(spec, whole(spec), i) for i in layers) == elements


def test_compressed_rows_are_whole_on_every_rank_and_heads_are_shared() -> None:
    deep, llama = known_model("DeepSeek V3", "BF16"), known_model("Llama 3 8B", "BF16")
    assert [kv_elements(deep, p, 9) for p in halves(deep)] == [576, 576]
    assert [kv_elements(llama, p, 9) for p in halves(llama)] == [1024, 1024]


# ---------------------------------------------------------------------------------- as stored


def test_a_cut_through_blocks_is_counted_on_both_sides_and_said() -> None:
    spec = known_model("Llama 3 8B", "Q4_K_M")
    left = Placement(0, "a", 0, Span(5, 6), Span(0, 16), Span(0, 4), Span(0, 128), EMPTY)
    down = parameters(spec, left, "stored", "cuda")[-1]
    assert down.name == "layers.5.down"
    assert down.nbytes == 4096 * 144
    assert down.reason == "columns 0-128 cut through Q4_K's blocks of 256"


def test_a_fused_parameter_keeps_the_formats_of_its_parts() -> None:
    spec = known_model("Llama 3 8B", "Q4_K_M")
    qkv = next(
        p for p in parameters(spec, whole(spec), "stored", "cuda") if p.name == "layers.0.qkv"
    )
    assert qkv.stored == ("Q4_K", "Q4_K", "Q6_K")
    assert qkv.held == "Q4_K"
    assert qkv.nbytes == (4096 + 1024) * 16 * 144 + 1024 * 16 * 210


def test_forms_that_cannot_be_kept_say_why() -> None:
    reasons = {
        quant: next(
            p.reason
            for p in parameters(spec, whole(spec), "auto", "cpu")
            if p.name == "layers.0.gate_up"
        )
        for quant in ("IQ3_XXS", "Q4_K_M", "Q4_0", "BF16")
        if (spec := known_model("Llama 3.2 1B", quant))
    }
    assert reasons == {"IQ3_XXS": "no kernel for IQ3_XXS", "Q4_K_M": "", "Q4_0": "", "BF16": ""}


def test_the_grain_of_columns() -> None:
    assert column_grain(known_model("Llama 3 8B", "Q4_K_M"), "stored") == 256
    assert column_grain(known_model("Llama 3 8B", "Q4_K_M"), "auto") == 256
    assert column_grain(known_model("Llama 3 8B", "Q4_K_M"), "bfloat16") == 64
    assert column_grain(known_model("Llama 3 8B", "EXL3 3.5bpw"), "stored") == 64


def test_layers_that_are_alike_are_few() -> None:
    spec = known_model("DeepSeek V3", "Q4_K_M")
    assert len(set(spec.likenesses)) <= 6
    assert len(spec.likenesses) == 61
