"""Each operation against the formula written out with loops, and rope against transformers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from local_tp.core import Row, Step
from local_tp.model.batch import Batch, Places, make_batch
from local_tp.model.operations import Scoring, TorchOperations
from local_tp.model.rope import rope_tables
from local_tp.traits import Rope, RopeScaling

CPU = torch.device("cpu")
PAGE = 4
OPERATIONS = TorchOperations()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------ norm and activation


def test_norm() -> None:
    x, gain = random(3, 8), random(8, seed=1)
    found = OPERATIONS.norm(x, gain, 1e-2)
    for t in range(3):
        scale = 1 / math.sqrt(sum(float(v) ** 2 for v in x[t]) / 8 + 1e-2)
        expected = torch.tensor(
            [float(v) * scale * float(g) for v, g in zip(x[t], gain, strict=True)]
        )
        assert torch.allclose(found[t], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gated(dtype: torch.dtype) -> None:
    x = random(3, 10).to(dtype)
    found = OPERATIONS.gated(x.clone()).float()
    assert found.shape == (3, 5)
    for t in range(3):
        for c in range(5):
            gate, up = float(x[t, c]), float(x[t, 5 + c])
            expected = gate / (1 + math.exp(-gate)) * up
            assert found[t, c] == pytest.approx(expected, rel=2e-2, abs=1e-6)
            if dtype == torch.float32:
                assert found[t, c] == pytest.approx(expected, rel=1e-5, abs=1e-6)


# -------------------------------------------------------------------------------------- rope


def turned_by_hand(heads: Tensor, positions: list[int], theta: float) -> Tensor:
    """Pair j is (x[j], x[j + half]), turned by position / theta^(2j / head_dim)."""
    out = torch.empty_like(heads)
    tokens, count, head_dim = heads.shape
    half = head_dim // 2
    for t in range(tokens):
        for j in range(half):
            angle = positions[t] / theta ** (2 * j / head_dim)
            for h in range(count):
                a, b = float(heads[t, h, j]), float(heads[t, h, j + half])
                out[t, h, j] = a * math.cos(angle) - b * math.sin(angle)
                out[t, h, j + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def test_rope_turns_each_pair_by_its_angle() -> None:
    cosine, sine = rope_tables(Rope(500.0), 8, 200, None, CPU)
    assert cosine.shape == sine.shape == (200, 1, 8)
    heads, positions = random(3, 2, 8), [0, 5, 199]
    expected = turned_by_hand(heads, positions, 500.0)
    OPERATIONS.rope_(heads, cosine[positions], sine[positions])
    assert torch.allclose(heads, expected, atol=1e-5)


def test_rope_changes_only_the_heads_it_is_given() -> None:
    cosine, sine = rope_tables(Rope(), 8, 16, None, CPU)
    qkv = random(2, 5, 8)
    kept = qkv.clone()
    OPERATIONS.rope_(qkv[:, :3], cosine[[3, 4]], sine[[3, 4]])
    assert torch.equal(qkv[:, 3:], kept[:, 3:])
    assert not torch.equal(qkv[:, :3], kept[:, :3])


SCALINGS = [
    (RopeScaling("linear", 4.0), {"rope_type": "linear", "factor": 4.0}),
    (
        RopeScaling("llama3", 8.0, 1.0, 4.0, 8192),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        RopeScaling("llama3", 32.0, 2.0, 6.0, 1024),
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 6.0,
            "original_max_position_embeddings": 1024,
        },
    ),
]


@pytest.mark.parametrize(("scaling", "stated"), SCALINGS)
def test_rope_scaling_is_that_of_transformers(
    scaling: RopeScaling, stated: dict[str, float | str]
) -> None:
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=2,
        max_position_embeddings=131072,
        rope_parameters={"rope_theta": 500000.0, **stated},
    )
    frequency, attention = ROPE_INIT_FUNCTIONS[str(stated["rope_type"])](config, CPU)
    assert attention == 1.0
    cosine, sine = rope_tables(Rope(500000.0, scaling=scaling), 128, 4096, None, CPU)
    angle = torch.arange(4096.0)[:, None] * frequency
    assert torch.allclose(cosine[:, 0, 64:], angle.cos(), atol=1e-4)
    assert torch.allclose(sine[:, 0, 64:], angle.sin(), atol=1e-4)
    assert torch.equal(sine[:, 0, :64], -sine[:, 0, 64:])
    plain = rope_tables(Rope(500000.0), 128, 4096, None, CPU)[0]
    assert not torch.allclose(cosine, plain, atol=0.1)


def test_rope_factors_divide_the_frequencies() -> None:
    factors = torch.tensor([1.0, 1.0, 2.0, 8.0])
    cosine, _ = rope_tables(Rope(), 8, 32, factors, CPU)
    plain, _ = rope_tables(Rope(), 8, 32, None, CPU)
    assert torch.equal(cosine[..., :2], plain[..., :2])
    assert torch.allclose(cosine[::2, 0, 2], plain[:16, 0, 2], atol=1e-5)
    assert torch.allclose(cosine[::8, 0, 3], plain[:4, 0, 3], atol=1e-5)


# --------------------------------------------------------------------------------- attention


def scoring(query: Tensor) -> Scoring:
    """Scores scaled by one over the root of the head's size."""
    return Scoring(1.0 / math.sqrt(query.shape[-1]))


def attend_by_hand(query: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
    """query (tokens, heads, d) at `position` and on, keys and values (places, kv_heads, d)."""
    tokens, heads, d = query.shape
    group = heads // keys.shape[1]
    out = torch.zeros(tokens, heads, d)
    for t in range(tokens):
        for h in range(heads):
            seen = range(position + t + 1)
            scores = [float(query[t, h] @ keys[p, h // group]) / math.sqrt(d) for p in seen]
            most = max(scores)
            weights = [math.exp(s - most) for s in scores]
            for p in seen:
                out[t, h] += weights[p] / sum(weights) * values[p, h // group]
    return out.view(tokens, -1)


def batch_of(*rows: tuple[int, int, tuple[int, ...]]) -> Batch:
    """A batch of (tokens, position, pages) rows."""
    places = Places(PAGE, (rope_tables(Rope(), 2, 64, None, CPU),))
    step = Step(0, tuple(Row(i, (0,) * n, at, pages) for i, (n, at, pages) in enumerate(rows)))
    return make_batch(step, places)


class Pages:
    """Keys and values of one request, to be written into a shared cache at its pages."""

    def __init__(self, length: int, kv_heads: int, d: int, seed: int) -> None:
        self.keys, self.values = (
            random(length, kv_heads, d, seed=seed),
            random(length, kv_heads, d, seed=seed + 1),
        )

    def write(self, cache: Tensor, pages: tuple[int, ...]) -> None:
        at = range(len(self.keys))
        slots = torch.tensor([pages[p // PAGE] * PAGE + p % PAGE for p in at])
        OPERATIONS.write_kv(cache, torch.cat((self.keys, self.values), 1), slots)


def empty_cache(kv_heads: int, d: int) -> Tensor:
    """What was never written must not be read: it is not a number."""
    return torch.full((2 * kv_heads, 64, d), math.nan)


CASES = [
    pytest.param(1, 0, id="first token alone"),
    pytest.param(1, 9, id="decode"),
    pytest.param(6, 0, id="prompt"),
    pytest.param(3, 7, id="later chunk of a prompt"),
    pytest.param(2, 4, id="chunk at a page's start"),
]


@pytest.mark.parametrize(("tokens", "position"), CASES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("pages", [(2, 3, 4), (7, 1, 12)])
def test_attention_is_the_formula(
    tokens: int, position: int, heads: int, kv_heads: int, pages: tuple[int, ...]
) -> None:
    cache, query = empty_cache(kv_heads, 8), random(tokens, heads, 8)
    request = Pages(position + tokens, kv_heads, 8, seed=1)
    request.write(cache, pages)
    found = OPERATIONS.attention(
        query, cache, batch_of((tokens, position, pages)).full.segments, scoring(query)
    )
    expected = attend_by_hand(query, request.keys, request.values, position)
    assert found.shape == (tokens, heads * 8)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("tokens", "position"), CASES)
def test_scattered_pages_are_as_good_as_consecutive_ones(tokens: int, position: int) -> None:
    query, request = random(tokens, 6, 8), Pages(position + tokens, 2, 8, seed=1)
    results = []
    for pages in ((4, 5, 6), (11, 0, 6)):
        cache = empty_cache(2, 8)
        request.write(cache, pages)
        segments = batch_of((tokens, position, pages)).full.segments
        results.append(OPERATIONS.attention(query, cache, segments, scoring(query)))
    assert torch.allclose(results[0], results[1], atol=1e-6)


def test_requests_of_a_batch_see_only_themselves() -> None:
    rows = [(1, 6, (3, 9)), (5, 0, (0, 1)), (2, 3, (8, 2)), (1, 0, (15,))]
    cache, query = empty_cache(2, 8), random(9, 6, 8)
    requests = [Pages(n + at, 2, 8, seed=10 * i) for i, (n, at, _) in enumerate(rows)]
    for request, (_, _, pages) in zip(requests, rows, strict=True):
        request.write(cache, pages)
    found = OPERATIONS.attention(query, cache, batch_of(*rows).full.segments, scoring(query))
    at = 0
    for request, (tokens, position, _) in zip(requests, rows, strict=True):
        mine = query[at : at + tokens]
        expected = attend_by_hand(mine, request.keys, request.values, position)
        assert torch.allclose(found[at : at + tokens], expected, atol=1e-5)
        at += tokens


def test_a_query_that_is_a_part_of_a_fused_product_is_read_right() -> None:
    """The decoder passes a view: rows of q, k and v lie side by side."""
    qkv, request = random(3, 6 + 4, 8), Pages(10, 2, 8, seed=1)
    cache = empty_cache(2, 8)
    request.write(cache, (1, 2, 3))
    for tokens in (1, 3):
        segments = batch_of((tokens, 10 - tokens, (1, 2, 3))).full.segments
        found = OPERATIONS.attention(qkv[:tokens, :6], cache, segments, scoring(qkv))
        expected = attend_by_hand(qkv[:tokens, :6], request.keys, request.values, 10 - tokens)
        assert torch.allclose(found, expected, atol=1e-5)


def test_write_kv_puts_keys_before_values_and_touches_no_other_place() -> None:
    cache = torch.zeros(4, 8, 3)
    kv = random(2, 4, 3)
    OPERATIONS.write_kv(cache, kv, torch.tensor([6, 1]))
    assert torch.equal(cache[:, 6], kv[0])
    assert torch.equal(cache[:, 1], kv[1])
    assert not cache[:, [0, 2, 3, 4, 5, 7]].any()
