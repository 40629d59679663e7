"""The experts of one rank: of a layer's many feed-forwards each token meets the few chosen for it.

Every rank with routed experts has the whole router and chooses alike; it computes those of the
chosen that it holds, so what it gives is a part of a sum over ranks. Experts that nobody chose are
not touched. Knows nothing of residual streams or of other layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from local_tp.model.batch import Batch
from local_tp.model.feed_forward import FeedForward
from local_tp.model.linear import Linear
from local_tp.model.operations import TorchOperations
from local_tp.traits import Activation, Router

LEAST_SUM = 1e-20  # that weights are divided by


@dataclass(frozen=True, slots=True)
class Routing:
    """(tokens, hidden) -> numbers and weights of the chosen experts, (tokens, active) each.

    `bias` is added to the scores before anything else, `correction` only where experts are compared
    with one another.
    """

    weight: Linear  # (experts, hidden)
    active: int
    rule: Router
    bias: Tensor | None = None
    correction: Tensor | None = None

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.weight(x).float()
        if self.bias is not None:
            scores = scores + self.bias
        scores = scores.softmax(-1) if self.rule.score == "softmax" else scores.sigmoid()
        worth = scores if self.correction is None else scores + self.correction
        if self.rule.groups > 1:
            worth = self._in_best_groups(worth)
        chosen = worth.topk(self.active, sorted=False).indices
        weights = scores.gather(1, chosen)
        if self.rule.normalize:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=LEAST_SUM)
        return chosen, weights * self.rule.scale

    def _in_best_groups(self, worth: Tensor) -> Tensor:
        """`worth` (tokens, experts), without those of all but the best groups."""
        grouped = worth.view(len(worth), self.rule.groups, -1)
        best = grouped.topk(2 if self.rule.pairs else 1).values.sum(-1)
        kept = best.topk(self.rule.chosen_groups, sorted=False).indices
        lost = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, value=False)
        return grouped.masked_fill(lost[..., None], float("-inf")).flatten(1)


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """(tokens, hidden) normed -> (tokens, hidden) float32, this rank's part.

    The first of the matrices belongs to expert number `first`. Biases have a row an expert.
    """

    routing: Routing
    first: int
    gate_up: Sequence[Linear]
    down: Sequence[Linear]
    operations: TorchOperations
    activation: Activation = "silu"
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        chosen, weights = self.routing(x)
        out = torch.zeros_like(x)
        if len(x) == 1:
            for place, expert in sorted(enumerate(chosen[0].tolist()), key=lambda pair: pair[1]):
                if 0 <= (own := expert - self.first) < len(self.down):
                    out.add_(self._expert(own, x).mul_(weights[:, place : place + 1]))
            return out
        flat = weights.flatten()
        for own, places in self._meetings(chosen):
            rows = places // self.routing.active
            part = self._expert(own, x[rows]).mul_(flat[places][:, None])
            out.index_add_(0, rows, part)
        return out

    def _meetings(self, chosen: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Each expert held here that was chosen, and its places in the flat `chosen`."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        last = self.first + len(self.down)
        counts = torch.bincount(flat, minlength=last)[:last].tolist()
        bounds = list(pairwise(accumulate(counts, initial=0)))[self.first :]
        for own, (start, stop) in enumerate(bounds):
            if stop > start:
                yield own, order[start:stop]

    def _expert(self, own: int, x: Tensor) -> Tensor:
        """One expert over the tokens that meet it, float32."""
        wide = self.gate_up[own](x)
        if self.gate_up_bias is not None:
            wide = wide.float() + self.gate_up_bias[own]
        y = self.down[own](self.operations.gated(wide, self.activation)).float()
        return y if self.down_bias is None else y + self.down_bias[own]


@dataclass(frozen=True, slots=True)
class Experts:
    """(tokens, hidden) normed -> (tokens, hidden), this rank's part of routed and shared experts.

    What shared experts give is weighed by a sigmoid of `shared_router` (hidden,), where there is
    one.
    """

    routed: RoutedExperts | None
    shared: FeedForward | None
    shared_router: Tensor | None = None

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        if self.shared is None:
            assert self.routed is not None
            return self.routed(x)
        out = self.shared(x, batch).float()
        if self.shared_router is not None:
            out = out * torch.sigmoid(x @ self.shared_router)[:, None]
        return out if self.routed is None else out.add_(self.routed(x))
