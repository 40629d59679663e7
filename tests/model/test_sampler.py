"""Sampling against brute force: candidates, penalties, seeds and probabilities."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from local_tp.core import Sampling
from local_tp.model.sampler import adjusted, logprob_of, sample


def draw(logits: Tensor, sampling: Sampling, position: int = 0) -> int:
    return sample(logits, sampling, (), 0, position)


def drawn(logits: Tensor, sampling: Sampling, times: int) -> Counter[int]:
    return Counter(draw(logits, sampling, position) for position in range(times))


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(x - max(logits)) for x in logits]
    return [w / sum(weights) for w in weights]


# ------------------------------------------------------------------------------------ greedy


def test_greedy_takes_the_largest_whatever_the_filters() -> None:
    logits = torch.tensor([0.0, 3.0, 2.9, -1.0])
    assert draw(logits, Sampling()) == 1
    assert draw(logits, Sampling(top_k=3, top_p=0.1, min_p=0.9, seed=4)) == 1


@pytest.mark.parametrize("temperature", [1e-6, 1e-20, 1e-38, 1e-300])
def test_a_temperature_near_nothing_is_greedy_and_not_an_overflow(temperature: float) -> None:
    logits = torch.tensor([10.0, 30.0, -20.0])
    assert draw(logits, Sampling(temperature=temperature, seed=1)) == 1
    assert draw(logits, Sampling(temperature=temperature, top_p=0.9, seed=1)) == 1


# -------------------------------------------------------------------------------- candidates


def candidates(logits: list[float], s: Sampling) -> set[int]:
    """The tokens that the filters leave, straight from their definitions."""
    left = sorted(range(len(logits)), key=lambda t: -logits[t])
    if s.top_k:
        left = left[: s.top_k]
    if s.top_p < 1:
        kept, mass = [], 0.0
        for token, p in zip(left, softmax([logits[t] for t in left]), strict=True):
            kept.append(token)
            mass += p
            if mass >= s.top_p:
                break
        left = kept
    if s.min_p > 0:
        probability = softmax([logits[t] for t in left])
        left = [
            t for t, p in zip(left, probability, strict=True) if p >= s.min_p * max(probability)
        ]
    return set(left)


FLAT = torch.tensor([0.3, 1.1, -0.4, 0.9, 0.0, 0.75, -1.2, 0.5])


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=1.0, top_k=3),
        Sampling(temperature=1.0, top_k=50),
        Sampling(temperature=1.0, top_p=0.5),
        Sampling(temperature=1.0, top_p=0.999),
        Sampling(temperature=1.0, top_p=0.0),
        Sampling(temperature=1.0, min_p=0.4),
        Sampling(temperature=1.0, min_p=1.0),
        Sampling(temperature=1.0, top_k=5, top_p=0.8),
        Sampling(temperature=1.0, top_k=6, top_p=0.9, min_p=0.5),
    ],
)
def test_exactly_the_candidates_are_drawn(sampling: Sampling) -> None:
    expected = candidates(FLAT.tolist(), sampling)
    counts = Counter(draw(FLAT, replace(sampling, seed=seed)) for seed in range(600))
    assert set(counts) == expected


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(-400, 400), min_size=1, max_size=20, unique=True),
    st.integers(0, 25),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 2**63),
)
def test_no_other_token_is_ever_drawn(
    hundredths: list[int], top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    logits = [x / 100 for x in hundredths]
    sampling = Sampling(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    near = Sampling(
        temperature=1.0, top_k=top_k, top_p=min(1.0, top_p + 1e-5), min_p=max(0.0, min_p - 1e-5)
    )
    assert draw(torch.tensor(logits), sampling) in candidates(logits, near)


def test_a_temperature_comes_before_the_filters() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0])
    hot = Sampling(temperature=10.0, top_p=0.6)
    assert candidates([x / 10 for x in (2.0, 1.0, 0.0)], hot) == {0, 1}
    assert candidates([2.0, 1.0, 0.0], hot) == {0}
    counts = drawn(logits, Sampling(temperature=10.0, top_p=0.6, seed=0), 200)
    assert set(counts) == {0, 1}


# --------------------------------------------------------------------------------- penalties


def test_repetition_weakens_every_token_seen_and_prompt_tokens_too() -> None:
    logits = torch.tensor([2.0, -2.0, 1.0, 0.0])
    found = adjusted(logits, Sampling(repetition_penalty=2.0), (0, 1, 1, 3), prompt_length=2)
    assert found.tolist() == [1.0, -4.0, 1.0, 0.0]
    assert logits.tolist() == [2.0, -2.0, 1.0, 0.0]


def test_presence_and_frequency_count_the_output_alone() -> None:
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    found = adjusted(torch.zeros(4), sampling, (0, 0, 0, 1, 1, 2), prompt_length=3)
    assert found.tolist() == [0.0, -1.0, -0.75, 0.0]


def test_penalties_come_after_the_bias_and_in_order() -> None:
    sampling = Sampling(
        logit_bias=((0, 3.0),), repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5
    )
    found = adjusted(torch.tensor([1.0, 1.0]), sampling, (0,), prompt_length=0)
    assert found.tolist() == [(1.0 + 3.0) / 2.0 - 1.0 - 0.5, 1.0]


def test_an_empty_history_changes_nothing() -> None:
    sampling = Sampling(repetition_penalty=2.0, presence_penalty=1.0)
    assert adjusted(torch.tensor([1.0, -1.0]), sampling, (), 0).tolist() == [1.0, -1.0]


def test_bias_and_penalties_reach_the_choice() -> None:
    logits = torch.tensor([1.0, 0.5, 0.0])
    assert draw(logits, Sampling(logit_bias=((2, 5.0), (0, -100.0)))) == 2
    banned = Sampling(temperature=1.0, logit_bias=((0, -100.0), (1, -100.0)), seed=0)
    assert drawn(logits, banned, 50) == {2: 50}
    penalized = Sampling(frequency_penalty=1.0)
    assert sample(logits, penalized, (7 % 3, 0), 1, 2) == 1


# ------------------------------------------------------------------------------------- seeds


def test_a_seed_repeats_and_another_differs() -> None:
    logits = torch.randn(100, generator=torch.Generator().manual_seed(0))
    one, again, other = (
        [draw(logits, Sampling(temperature=1.0, seed=seed), at) for at in range(40)]
        for seed in (11, 11, 12)
    )
    assert one == again
    assert one != other
    assert len(set(one)) > 10  # each position draws anew


def test_a_seeded_draw_does_not_depend_on_other_draws() -> None:
    logits = torch.randn(100, generator=torch.Generator().manual_seed(0))
    seeded, free = Sampling(temperature=1.0, seed=5), Sampling(temperature=1.0)
    alone = [draw(logits, seeded, at) for at in range(20)]
    mixed = []
    for at in range(20):
        draw(logits, free, at)
        mixed.append(draw(logits, seeded, at))
    assert mixed == alone


@pytest.mark.parametrize("seed", [0, -1, -(2**63), 2**63 - 1])
def test_every_seed_of_64_bits_is_taken(seed: int) -> None:
    assert draw(FLAT, Sampling(temperature=1.0, seed=seed), 100_000) in range(8)


def test_a_seeded_draw_leaves_the_free_stream_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    draw(FLAT, Sampling(temperature=1.0, seed=9))
    assert torch.equal(torch.get_rng_state(), before)


# ----------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_tokens_come_as_often_as_their_probability_says(temperature: float, seeded: bool) -> None:
    """Pearson's statistic of 7 degrees of freedom stays below its 0.999 quantile, 24.3."""
    torch.manual_seed(1)
    times = 4000
    counts = drawn(FLAT, Sampling(temperature=temperature, seed=2 if seeded else None), times)
    expected = [times * p for p in softmax([x / temperature for x in FLAT.tolist()])]
    statistic = sum((counts[t] - e) ** 2 / e for t, e in enumerate(expected))
    assert statistic < 24.3


def test_filtered_probabilities_are_renormalized() -> None:
    times = 4000
    counts = drawn(FLAT, Sampling(temperature=1.0, top_k=2, seed=7), times)
    probability = softmax([1.1, 0.9])
    deviation = math.sqrt(times * probability[0] * probability[1])
    assert abs(counts[1] - times * probability[0]) < 4 * deviation
    assert counts[1] + counts[3] == times


def test_logprobs_are_those_of_the_raw_logits() -> None:
    found = logprob_of(FLAT, 4, alternatives=3)
    expected = [math.log(p) for p in softmax(FLAT.tolist())]
    assert found.token == 4
    assert found.logprob == pytest.approx(expected[4], abs=1e-6)
    assert [token for token, _ in found.top] == [1, 3, 5]
    assert [value for _, value in found.top] == pytest.approx([expected[t] for t in (1, 3, 5)])


@pytest.mark.parametrize(("asked", "given_"), [(0, 0), (8, 8), (20, 8)])
def test_there_are_no_more_alternatives_than_tokens(asked: int, given_: int) -> None:
    assert len(logprob_of(FLAT, 0, asked).top) == given_
