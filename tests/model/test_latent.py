"""Attention over compressed rows against keys and values of every head, made and compared."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from local_tp.core import Row, Step
from local_tp.model import row_attention as module
from local_tp.model.batch import Batch, Places, make_batch
from local_tp.model.latent import EPS, LatentAttention, LatentWeights
from local_tp.model.linear import Dense
from local_tp.model.operations import TorchOperations
from local_tp.model.rope import rope_tables
from local_tp.traits import Rope

HIDDEN, HEADS, PLAIN, ROTATED, RANK, VALUE, QUERY_RANK = 20, 3, 6, 4, 8, 10, 12
PAGE, PLACES = 4, 40
CPU = torch.device("cpu")
ROTATION = rope_tables(Rope(size=ROTATED), PLAIN + ROTATED, PLACES, None, CPU)
SCALE = 0.3
# Two texts: one on consecutive pages, one on scattered ones.
PAGES = ((0, 1, 2, 3), (9, 4, 7, 6))


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def matrix(rows: int, columns: int, seed: int) -> Dense:
    made = Dense(rows, columns, torch.float32)
    made.weight.copy_(random(rows, columns, seed=seed) / columns**0.5)
    return made


def mixer(*, compressed_queries: bool, dtype: torch.dtype = torch.float32) -> LatentAttention:
    inputs = QUERY_RANK if compressed_queries else HIDDEN
    weights = LatentWeights(
        matrix(HEADS * (PLAIN + ROTATED), inputs, 1),
        matrix(RANK + ROTATED, HIDDEN, 2),
        1.0 + random(RANK, seed=3) / 4,
        random(HEADS, PLAIN, RANK, seed=4),
        random(HEADS, VALUE, RANK, seed=5),
        matrix(HIDDEN, HEADS * VALUE, 6),
        matrix(QUERY_RANK, HIDDEN, 7) if compressed_queries else None,
        1.0 + random(QUERY_RANK, seed=8) / 4 if compressed_queries else None,
    )
    cache = torch.full((1, PLACES, RANK + ROTATED), float("nan"), dtype=dtype)
    return LatentAttention(weights, cache, SCALE, TorchOperations())


def batch(*counts: tuple[int, int]) -> Batch:
    """The next tokens of each text, (position, count)."""
    rows = tuple(
        Row(text, (0,) * count, at, PAGES[text]) for text, (at, count) in enumerate(counts) if count
    )
    return make_batch(Step(0, rows), Places(PAGE, (ROTATION,)))


def normed(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * gain


def turned(x: Tensor, at: int) -> Tensor:
    """Pair j is (x[j], x[j + half])."""
    half = ROTATED // 2
    angle = at / 10000.0 ** (torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cosine, sine = angle.cos(), angle.sin()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def expected(latent: LatentAttention, x: Tensor) -> Tensor:
    """One whole text (places, hidden), with keys and values of each head."""
    w = latent.weights
    row = w.kv_down(x)
    compressed = normed(row[:, :RANK], w.kv_norm)
    q = x
    if w.q_down is not None:
        assert w.q_norm is not None
        q = normed(w.q_down(x), w.q_norm)
    query = w.q(q).view(len(x), HEADS, -1)
    out = torch.zeros(len(x), HEADS, VALUE)
    for head in range(HEADS):
        keys, values = compressed @ w.k_up[head].T, compressed @ w.v_up[head].T
        for at in range(len(x)):
            scores = torch.stack(
                [
                    query[at, head, :PLAIN] @ keys[seen]
                    + turned(query[at, head, PLAIN:], at) @ turned(row[seen, RANK:], seen)
                    for seen in range(at + 1)
                ]
            )
            out[at, head] = (scores * SCALE).softmax(0) @ values[: at + 1]
    return w.o(out.flatten(1))


@pytest.mark.parametrize("at_once", [1 << 23, 60, 1])
@pytest.mark.parametrize("compressed_queries", [True, False])
def test_equals_attention_with_keys_and_values(
    compressed_queries: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks and token by token, however many tokens' scores are made at once."""
    monkeypatch.setattr(module, "SCORE_ELEMENTS", at_once)
    latent = mixer(compressed_queries=compressed_queries)
    texts = [random(14, HIDDEN, seed=10), random(11, HIDDEN, seed=11)]
    wanted = [expected(latent, text) for text in texts]
    read = [0, 0]
    for counts in ((5, 0), (4, 7), (1, 1), (3, 3), (1, 0)):
        step = batch(*zip(read, counts, strict=True))
        x = torch.cat([t[a : a + n] for t, a, n in zip(texts, read, counts, strict=True)])
        known = torch.cat([t[a : a + n] for t, a, n in zip(wanted, read, counts, strict=True)])
        assert torch.allclose(latent(x.clone(), step), known, atol=2e-5)
        read = [at + count for at, count in zip(read, counts, strict=True)]
    assert read == [14, 11]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_in_16_bits(dtype: torch.dtype) -> None:
    latent = mixer(compressed_queries=False, dtype=dtype)
    x = random(9, HIDDEN, seed=12)
    wanted = expected(latent, x)
    found = latent(x.clone(), batch((0, 9), (0, 0))).float()
    assert (found - wanted).abs().max() <= 2e-2 * wanted.abs().max()


def test_few_scores_exist_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk behind a long text is taken in as many parts as the bound asks for."""
    taken: list[int] = []
    attend = module._attend

    def counted(query: Tensor, seen: Tensor, value_size: int) -> Tensor:
        taken.append(query.shape[0] * query.shape[1] * len(seen))
        return attend(query, seen, value_size)

    monkeypatch.setattr(module, "_attend", counted)
    monkeypatch.setattr(module, "SCORE_ELEMENTS", 90)
    latent = mixer(compressed_queries=False)
    latent(random(12, HIDDEN, seed=13), batch((0, 12), (0, 0)))
    assert len(taken) == 6
    assert max(taken) <= 90
