"""What a chunk through the experts holds at once is what planning counts."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import EMPTY, Dtype, Goal, Placement, Span
from local_tp.model.experts import Experts, RoutedExperts, Routing
from local_tp.model.feed_forward import FeedForward
from local_tp.model.linear import DTYPES, Dense
from local_tp.model.operations import TorchOperations
from local_tp.plan.activations import layer_phases, shape_of
from local_tp.traits import Router

EXPERTS, ACTIVE, HIDDEN, FFN, TOKENS = 8, 2, 64, 96, 256


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the tensors that were made since it began and are still there; at most `peak`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {t.untyped_storage()._cdata for t in flat(args)}
        made = func(*args, **(kwargs or {}))
        for tensor in flat((made,)):
            storage = tensor.untyped_storage()
            if storage._cdata not in given | self._known:
                self._keep(storage)
        return made

    def _keep(self, storage: torch.UntypedStorage) -> None:
        place, nbytes = storage._cdata, storage.nbytes()
        self._known.add(place)
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, place, nbytes)

    def _forget(self, place: int, nbytes: int) -> None:
        self._known.discard(place)
        self.now -= nbytes


def flat(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += flat(value)
    return found


def planned(dtype: Dtype, shared: int) -> int:
    shape = Shape(
        layers=1, hidden=HIDDEN, heads=1, head_dim=16, vocab=16, context=TOKENS, feeds="E",
        experts=EXPERTS, active_experts=ACTIVE, expert_ffn=FFN, shared_ffn=shared,
    )  # fmt: skip
    spec, goal = spec_of(shape, "small", "small", mix("F32")), Goal(dtype=dtype, chunk=TOKENS)
    columns = Span(0, shared)
    mine = Placement(0, "cpu", 0, Span(0, 1), EMPTY, EMPTY, columns, EMPTY, Span(0, EXPERTS))
    sizes = shape_of(spec, goal, TOKENS, "cpu", 1, 4)
    return max(sum(phase) for phase in layer_phases(spec, mine, goal, "cpu", sizes))


def taken(dtype: Dtype, shared: int) -> int:
    """At most, when every token meets the same experts, with the stream and the norm of it."""

    def matrix(rows: int, columns: int) -> Dense:
        made = Dense(rows, columns, DTYPES[dtype])
        made.weight.normal_()
        return made

    router = Dense(EXPERTS, HIDDEN, torch.float32)
    router.weight.copy_(torch.arange(EXPERTS)[:, None].expand(-1, HIDDEN))
    operations = TorchOperations()
    routed = RoutedExperts(
        Routing(router, ACTIVE, Router()),
        0,
        [matrix(2 * FFN, HIDDEN) for _ in range(EXPERTS)],
        [matrix(HIDDEN, FFN) for _ in range(EXPERTS)],
        operations,
    )
    beside = FeedForward(matrix(2 * shared, HIDDEN), matrix(HIDDEN, shared), operations)
    experts = Experts(routed, beside if shared else None)
    x = torch.rand((TOKENS, HIDDEN))
    with Live() as live:
        experts(x, None)  # type: ignore[arg-type]  # experts ask nothing of a batch
    return int(live.peak) + 2 * x.nbytes


@pytest.mark.parametrize("shared", [0, 64])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chunk_takes_what_is_planned(dtype: Dtype, shared: int) -> None:
    found, counted = taken(dtype, shared), planned(dtype, shared)
    assert 0.75 * counted <= found <= counted
