"""Every token meets the experts that the router's rule gives it, and no others are touched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from local_tp.model.expert_matrices import ExpertMatrices, by_expert
from local_tp.model.experts import Experts, RoutedExperts, Routing
from local_tp.model.feed_forward import FeedForward
from local_tp.model.linear import Dense
from local_tp.model.operations import TorchOperations
from local_tp.traits import Router

EXPERTS, ACTIVE, HIDDEN, FFN = 12, 3, 16, 8
OPERATIONS = TorchOperations()
RULES = {
    "softmax": Router(),
    "as they are": Router(normalize=False),
    "scaled sigmoids": Router("sigmoid", scale=2.5),
    "best groups": Router("softmax", normalize=False, groups=4, chosen_groups=2),
    "best pairs": Router("sigmoid", groups=4, chosen_groups=2, pairs=True),
}


class Counted(Dense):
    """A matrix that remembers how many tokens it was multiplied with."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight.shape[0], weight.shape[1], torch.float32)
        self.weight.copy_(weight)
        self.tokens = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.tokens += len(x)
        return super().__call__(x)


def matrix(rows: int, columns: int, seed: int) -> Counted:
    generator = torch.Generator().manual_seed(seed)
    return Counted(torch.randn((rows, columns), generator=generator) / columns**0.5)


def vector(size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def tokens(count: int) -> Tensor:
    return torch.randn((count, HIDDEN), generator=torch.Generator().manual_seed(99))


def routing(rule: Router, bias: bool = False, correction: bool = False) -> Routing:
    return Routing(
        matrix(EXPERTS, HIDDEN, 1),
        ACTIVE,
        rule,
        vector(EXPERTS, 2) if bias else None,
        vector(EXPERTS, 3) if correction else None,
    )


def chosen_by_hand(choice: Routing, x: Tensor) -> dict[int, float]:
    """Weights by expert of one token (hidden,), one number at a time."""
    scores = choice.weight(x[None])[0]
    if choice.bias is not None:
        scores = scores + choice.bias
    softmax = choice.rule.score == "softmax"
    scores = torch.softmax(scores, 0) if softmax else 1 / (1 + torch.exp(-scores))
    worth = scores.tolist()
    if choice.correction is not None:
        worth = [w + c for w, c in zip(worth, choice.correction.tolist(), strict=True)]
    size = EXPERTS // choice.rule.groups
    groups = [worth[at : at + size] for at in range(0, EXPERTS, size)]
    counted = 2 if choice.rule.pairs else 1
    merit = [sum(sorted(group)[-counted:]) for group in groups]
    best = sorted(range(len(groups)), key=lambda g: -merit[g])[: choice.rule.chosen_groups]
    allowed = [e for e in range(EXPERTS) if e // size in best]
    chosen = sorted(allowed, key=lambda e: -worth[e])[:ACTIVE]
    total = sum(float(scores[e]) for e in chosen) if choice.rule.normalize else 1.0
    return {e: float(scores[e]) / total * choice.rule.scale for e in chosen}


@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", list(RULES))
def test_choice_and_weights_follow_the_rule(name: str, bias: bool, correction: bool) -> None:
    choice, x = routing(RULES[name], bias, correction), tokens(40)
    chosen, weights = choice(x)
    assert chosen.shape == weights.shape == (40, ACTIVE)
    for row in range(len(x)):
        found = dict(zip(chosen[row].tolist(), weights[row].tolist(), strict=True))
        assert found == pytest.approx(chosen_by_hand(choice, x[row]), rel=1e-5)


def routed(span: range, choice: Routing, biased: bool = False) -> RoutedExperts:
    """The experts of `span`, whose numbers depend on which they are alone."""
    return RoutedExperts(
        choice,
        span.start,
        [matrix(2 * FFN, HIDDEN, 100 + expert) for expert in span],
        [matrix(HIDDEN, FFN, 200 + expert) for expert in span],
        OPERATIONS,
        "clamped" if biased else "silu",
        torch.stack([vector(2 * FFN, 300 + e) for e in span]) if biased else None,
        torch.stack([vector(HIDDEN, 400 + e) for e in span]) if biased else None,
    )


def by_hand(experts: RoutedExperts, x: Tensor) -> Tensor:
    """Every token through each of its experts, one after another."""
    out = torch.zeros_like(x)
    for row in range(len(x)):
        for expert, weight in chosen_by_hand(experts.routing, x[row]).items():
            wide = experts.gate_up[expert](x[row][None])
            if experts.gate_up_bias is not None:
                wide = wide + experts.gate_up_bias[expert]
            y = experts.down[expert](OPERATIONS.gated(wide, experts.activation))[0]
            if experts.down_bias is not None:
                y = y + experts.down_bias[expert]
            out[row] += weight * y
    return out


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("count", [1, 2, 33])
def test_ranks_add_up_to_all_experts(count: int, biased: bool) -> None:
    choice, x = routing(Router()), tokens(count)
    known = by_hand(routed(range(EXPERTS), choice, biased), x)
    for cuts in ((0, 12), (0, 5, 12), (0, 1, 7, 9, 12)):
        spans = [range(a, b) for a, b in pairwise(cuts)]
        parts = [routed(span, choice, biased)(x) for span in spans]
        torch.testing.assert_close(sum(parts[1:], parts[0]), known, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 33])
def test_only_chosen_experts_are_touched_and_once_a_token(count: int) -> None:
    experts, x = routed(range(EXPERTS), routing(Router())), tokens(count)
    chosen, _ = experts.routing(x)
    expected = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
    experts(x)
    assert count > 1 or sorted(expected) == [0] * (EXPERTS - ACTIVE) + [1] * ACTIVE
    assert met(experts.gate_up) == met(experts.down) == expected


def met(matrices: Sequence[object]) -> list[int]:
    return [m.tokens for m in matrices if isinstance(m, Counted)]


def test_a_token_gets_in_company_what_it_gets_alone() -> None:
    experts, x = routed(range(EXPERTS), routing(Router("sigmoid"))), tokens(9)
    together = experts(x)
    for row in range(len(x)):
        torch.testing.assert_close(experts(x[row : row + 1])[0], together[row])


@pytest.mark.parametrize("gated", [False, True])
def test_shared_experts_are_added_and_weighed(gated: bool) -> None:
    x, weight = tokens(5), vector(HIDDEN, 9) if gated else None
    shared = FeedForward(matrix(2 * FFN, HIDDEN, 7), matrix(HIDDEN, FFN, 8), OPERATIONS)
    mine, batch = routed(range(EXPERTS), routing(Router())), None
    part = shared(x, batch)  # type: ignore[arg-type]  # a feed-forward asks nothing of a batch
    if weight is not None:
        part = part / (1 + torch.exp(-(x @ weight)))[:, None]
    for first, expected in ((None, part), (mine, part + by_hand(mine, x))):
        found = Experts(first, shared, weight)(x, batch)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    alone = Experts(mine, None)(x, batch)  # type: ignore[arg-type]
    torch.testing.assert_close(alone, by_hand(mine, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", [1, 3, 4, 7, 24])
def test_a_tall_parameter_is_dealt_out_to_its_experts(step: int) -> None:
    """Rows of all gates and then of all ups, in blocks that end anywhere."""
    gates, ups = torch.randn((3, 4, HIDDEN)), torch.randn((3, 6, HIDDEN))
    matrices = ExpertMatrices([Dense(10, HIDDEN, torch.float32) for _ in range(3)], [4, 6])
    at = 0
    for piece in (gates, ups):
        rows = piece.flatten(0, 1)
        for start in range(0, len(rows), step):
            block = rows[start : start + step].contiguous()
            matrices.fill(at + start, 0, block.view(torch.uint8), "F32")
        at += len(rows)
    for index, linear in enumerate(matrices.experts):
        assert isinstance(linear, Dense)
        assert torch.equal(linear.weight, torch.cat((gates[index], ups[index])))


def test_biases_are_dealt_out_like_rows() -> None:
    tall = torch.tensor([1.0, 2, 3, 4, 11, 12, 13, 14])  # two gates of two experts, two ups
    dealt = by_expert(tall, 2, 2)
    assert dealt is not None
    assert dealt.tolist() == [[1, 2, 11, 12], [3, 4, 13, 14]]
    assert by_expert(None, 2, 2) is None
