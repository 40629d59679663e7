"""A step as tensors: what every layer needs and no layer computes twice.

Rows of a step lie one after another; each is a segment with places in the KV cache. Places that
are consecutive are read in place; scattered pages are gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.core import Row, Step


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, stop) of the batch; `length` places from `first`, or those of `index`.

    `mask` (tokens, length) is set where several tokens stand after earlier places.
    """

    start: int
    stop: int
    length: int
    first: int
    index: Tensor | None
    mask: Tensor | None

    def places(self, cache: Tensor) -> Tensor:
        """(2 kv_heads, length, head_dim) of (2 kv_heads, places, head_dim)."""
        if self.index is None:
            return cache[:, self.first : self.first + self.length]
        return cache.index_select(1, self.index)


@dataclass(frozen=True, slots=True)
class Batch:
    """One step on one device."""

    tokens: Tensor  # (n,)
    slots: Tensor  # (n,) places in the cache
    cosine: Tensor  # (n, 1, head_dim)
    sine: Tensor
    segments: list[Segment]
    wanted: Tensor | None  # rows whose logits are needed; None for every row


def make_batch(step: Step, page_size: int, cosine: Tensor, sine: Tensor) -> Batch:
    """The tensors of `step`; `cosine` and `sine` are the tables for every place."""
    device = cosine.device
    tokens: list[int] = []
    slots: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    for row in step.rows:
        start, stop = row.position, row.position + len(row.tokens)
        places = [
            row.pages[at // page_size] * page_size + at % page_size for at in range(start, stop)
        ]
        segments.append(_segment(row, len(tokens), page_size, device))
        tokens += row.tokens
        slots += places
        positions += range(start, stop)
    where = torch.tensor(positions, device=device)
    wanted = wanted_rows(step)
    return Batch(
        tokens=torch.tensor(tokens, device=device),
        slots=torch.tensor(slots, device=device),
        cosine=cosine[where],
        sine=sine[where],
        segments=segments,
        wanted=None if len(wanted) == len(tokens) else torch.tensor(wanted, device=device),
    )


def wanted_rows(step: Step) -> list[int]:
    """Batch rows whose logits someone asked for: all of a scored row, the last of a sampled one."""
    wanted: list[int] = []
    at = 0
    for row in step.rows:
        stop = at + len(row.tokens)
        if row.score is not None:
            wanted += range(at, stop)
        elif row.sampling is not None or row.logits:
            wanted.append(stop - 1)
        at = stop
    return wanted


def _segment(row: Row, at: int, page_size: int, device: torch.device) -> Segment:
    count, length = len(row.tokens), row.position + len(row.tokens)
    pages = row.pages[: -(-length // page_size)]
    first = pages[0]
    index = None
    if any(page != first + i for i, page in enumerate(pages)):
        starts = torch.tensor(pages, device=device)[:, None] * page_size
        index = (starts + torch.arange(page_size, device=device)).flatten()[:length]
    mask = None
    if count > 1 and row.position > 0:
        mask = torch.ones((count, length), dtype=torch.bool, device=device).tril(row.position)
    return Segment(at, at + count, length, first * page_size, index, mask)
