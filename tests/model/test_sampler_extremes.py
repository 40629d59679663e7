"""Whatever a request asks for, some token comes back: one row must never end the workers."""

from __future__ import annotations

import pytest
import torch

from local_tp.core import Sampling
from local_tp.model.sampler import sample

HISTORY = (0, 1, 2)


@pytest.mark.parametrize("temperature", [0.0, 1e-5, 1.0, 1e30])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(repetition_penalty=1e-300),
        Sampling(repetition_penalty=1e300),
        Sampling(presence_penalty=1e38, frequency_penalty=1e38),
        Sampling(presence_penalty=-1e38, top_p=0.5),
        Sampling(logit_bias=((1, 1e300), (2, -1e300))),
        Sampling(logit_bias=tuple((token, -1e30) for token in range(8))),
        Sampling(top_p=0.0, min_p=1.0),
    ],
)
def test_absurd_settings_choose_a_token(sampling: Sampling, temperature: float) -> None:
    from dataclasses import replace

    logits = torch.tensor([3.0, -2.0, 0.5, 1.0, 9.0, -30.0, 0.0, 2.0])
    chosen = sample(logits, replace(sampling, temperature=temperature, seed=1), HISTORY, 1, 3)
    assert 0 <= chosen < 8


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_choose_a_token(bad: float) -> None:
    logits = torch.full((8,), bad)
    assert 0 <= sample(logits, Sampling(temperature=1.0), (), 0, 0) < 8
    logits = torch.tensor([1.0, bad, 2.0])
    wanted = 1 if bad == float("inf") else 2
    assert sample(logits, Sampling(), (), 0, 0) == wanted
