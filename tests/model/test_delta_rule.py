"""The gated delta rule in blocks does what it says token by token, and so does the convolution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from local_tp.model.delta_rule import gated_delta_rule, short_convolution
from local_tp.plan.activations import DELTA_BLOCK as BLOCK

HEADS, SIZE = 3, 8


def texts(tokens: int) -> tuple[Tensor, ...]:
    """query, key, value, rate, fade: unit keys, rates in (0, 1), fades below 0."""
    torch.manual_seed(tokens)
    query, key, value = torch.randn(3, HEADS, tokens, SIZE)
    key = key / key.norm(dim=-1, keepdim=True)
    rate = torch.rand(HEADS, tokens, 1)
    return query, key, value, rate, -torch.rand(HEADS, tokens, 1) * 2


def token_by_token(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, fade: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The rule as the paper states it, in float64: what is read, and the last state."""
    query, key, value, rate, state = (t.double() for t in (query, key, value, rate, state))
    left, found = fade.double().exp(), []
    for at in range(key.shape[1]):
        state = state * left[:, at, :, None]
        now = key[:, at, None]  # (heads, 1, size)
        state = state + now.mT @ (rate[:, at, :, None] * (value[:, at, None] - now @ state))
        found.append(query[:, at, None] @ state)
    return torch.cat(found, 1), state


@pytest.mark.parametrize("tokens", [1, 2, 63, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_give_what_single_tokens_give(tokens: int) -> None:
    inputs, state = texts(tokens), torch.randn(HEADS, SIZE, SIZE)
    wanted, last = token_by_token(*inputs, state)
    found = gated_delta_rule(*inputs, state)
    assert found.shape == (HEADS, tokens, SIZE)
    torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(state, last.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("at", [1, 30, BLOCK, BLOCK + 30])
def test_a_text_may_be_cut_anywhere(at: int) -> None:
    inputs = texts(2 * BLOCK)
    whole, parts = torch.zeros(2, HEADS, SIZE, SIZE)
    expected = gated_delta_rule(*inputs, whole)
    first = gated_delta_rule(*(t[:, :at] for t in inputs), parts)
    second = gated_delta_rule(*(t[:, at:] for t in inputs), parts)
    torch.testing.assert_close(torch.cat((first, second), 1), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)


def test_fades_that_leave_nothing_are_finite() -> None:
    """exp(-90) of a token, over a block: products of what is left vanish, none overflows."""
    query, key, value, rate, fade = texts(BLOCK)
    state = torch.randn(HEADS, SIZE, SIZE)
    found = gated_delta_rule(query, key, value, rate, torch.full_like(fade, -90.0), state)
    expected = (query * key).sum(-1, keepdim=True) * rate * value
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert state.isfinite().all()


@pytest.mark.parametrize("lengths", [(9,), (1, 1, 7), (2, 5, 1, 1)])
def test_the_convolution_sees_what_stood_before(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    taps, inputs = torch.randn(4, 5), torch.randn(9, 5)
    before = torch.zeros(3, 5)
    found = torch.cat([short_convolution(x, before, taps) for x in inputs.split(lengths)])
    ahead = torch.cat((torch.zeros(3, 5), inputs))
    expected = torch.nn.functional.conv1d(ahead.T[None], taps.T[:, None], groups=5)[0].T
    torch.testing.assert_close(found, expected)
    assert torch.equal(before, inputs[-3:])


def test_a_kernel_of_one_token_keeps_nothing() -> None:
    x, taps = torch.randn(4, 5), torch.randn(1, 5)
    assert torch.equal(short_convolution(x, torch.zeros(0, 5), taps), x * taps)
