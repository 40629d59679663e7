"""The head's logits: those that decide are exact, whatever the head is held in."""

from __future__ import annotations

import torch
from torch import Tensor

from local_tp.model.decoder import SHARPENED, sharpened
from local_tp.model.linear import Dense, Int8
from local_tp.model.processor import Processor


def head(form: str) -> tuple[Int8 | Dense, Tensor]:
    """(a head of 500 rows, its rows as numbers)."""
    weight = torch.randn((500, 64), generator=torch.Generator().manual_seed(3))
    if form == "int8":
        held: Int8 | Dense = Int8(500, 64, Processor(None, torch.float32))
    else:
        held = Dense(500, 64, getattr(torch, form))
    held.fill(0, 0, weight.view(torch.uint8), "F32")
    return held, held.rows(torch.arange(500))


def test_the_best_logits_are_those_of_float32() -> None:
    x = torch.randn((3, 64), generator=torch.Generator().manual_seed(4)) * 5
    for form in ("int8", "bfloat16", "float32"):
        held, rows = head(form)
        exact = x @ rows.T
        best = exact.topk(SHARPENED // 2).indices
        found = sharpened(held, x)
        assert torch.allclose(found.gather(1, best), exact.gather(1, best), rtol=1e-5, atol=1e-4)
        assert torch.allclose(found, exact, rtol=0.02, atol=0.5)
        assert torch.equal(found.argmax(1), exact.argmax(1))


def test_sixteen_bits_alone_would_not_do() -> None:
    """Without it the test above would prove nothing."""
    x = torch.randn((3, 64), generator=torch.Generator().manual_seed(4)) * 5
    held, rows = head("int8")
    assert (held(x).float() - x @ rows.T).abs().max() > 0.02
