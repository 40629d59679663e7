"""The gated delta rule and the short convolution before it, in plain torch.

A matrix for each head maps keys to values. Every token first lets it fade, then moves the value
that it gives for the token's key towards the token's own value, and reads it with the token's
query (Gated Delta Networks, arXiv 2412.06464). Tokens of a block do that at once, through
products of matrices. All in float32; what is kept of a text is changed in place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from local_tp.plan.activations import DELTA_BLOCK


def short_convolution(x: Tensor, before: Tensor, taps: Tensor) -> Tensor:
    """Each channel's weighted sum over a token and those before it: (tokens, channels).

    x (tokens, channels); `before` (kernel - 1, channels) are the inputs ahead of them and become
    those ahead of what follows; taps (kernel, channels), the last of them for the token itself.
    """
    inputs = torch.cat((before, x))
    before.copy_(inputs[len(x) :])
    out = x * taps[-1]
    for at in range(len(before)):
        out.addcmul_(inputs[at : at + len(x)], taps[at])
    return out


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, fade: Tensor, state: Tensor
) -> Tensor:
    """What the queries read: (heads, tokens, size).

    query, key, value (heads, tokens, size); rate (heads, tokens, 1), the part of the way from old
    to new value; fade (heads, tokens, 1), the logarithm of what is left of the state; state
    (heads, size of keys, size of values), changed in place.
    """
    found = []
    for at in range(0, key.shape[1], DELTA_BLOCK):
        now = slice(at, at + DELTA_BLOCK)
        found.append(
            _block(query[:, now], key[:, now], value[:, now], rate[:, now], fade[:, now], state)
        )
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def _block(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, fade: Tensor, state: Tensor
) -> Tensor:
    """One block: what each token changes depends on those before it, a triangular system."""
    since = fade.cumsum(1)  # (heads, tokens, 1), from before the block up to each token
    left = since.exp()
    change = (value - key @ state * left) * rate
    if key.shape[1] == 1:
        state.mul_(left).baddbmm_(key.transpose(1, 2), change)
        return query @ state
    between = (since - since.transpose(1, 2)).tril_().exp_().tril_()  # (heads, tokens, tokens)
    system = key @ key.transpose(1, 2) * between * rate
    change = torch.linalg.solve_triangular(system, change, upper=False, unitriangular=True)
    seen = query @ key.transpose(1, 2) * between
    out = torch.baddbmm(query @ state * left, seen, change)
    kept = key * (since[:, -1:] - since).exp_()
    state.mul_(left[:, -1:]).baddbmm_(kept.transpose(1, 2), change)
    return out
