"""A step as tensors: what every layer needs and no layer computes twice.

Rows of a step lie one after another; each is a segment with places in the KV cache. Places that
are consecutive are read in place; scattered ones are gathered. Layers with a window may keep only
that of each text, in a ring of places for each stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.core import Row, Step

Rotation = tuple[Tensor, Tensor]  # cosine and sine (places, 1, size), the sine's first half negated


@dataclass(frozen=True, slots=True)
class Places:
    """How a plan's cache is laid out, and the rotary tables of every place.

    `window` is what sliding layers see, in tokens; with `ring` each stream has so many places
    there instead of pages.
    """

    page_size: int
    rotations: tuple[Rotation, ...]
    window: int = 0
    ring: int = 0
    growth: Tensor | None = None  # (places, 1, 1): what queries are multiplied with


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, stop) of the batch; `length` places from `first`, or those of `index`.

    `mask` (tokens, length) is set where a token may not see all places before its own.
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
class View:
    """Where the tokens of a step are written in one kind of cache, and what they see there."""

    slots: Tensor  # (n,)
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class Text:
    """Rows [start, stop) of the batch as the continuation of stream `stream` at `position`."""

    start: int
    stop: int
    position: int
    stream: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step on one device."""

    tokens: Tensor  # (n,)
    rotations: tuple[Rotation, ...]  # of these tokens
    full: View
    sliding: View  # the same as `full` where no layer has a window
    texts: tuple[Text, ...]
    wanted: Tensor | None  # rows whose logits are needed; None for every row
    growth: Tensor | None = None  # (n, 1, 1), of these tokens


def make_batch(step: Step, places: Places) -> Batch:
    """The tensors of `step`, on the device of the rotary tables."""
    device = places.rotations[0][0].device
    tokens = [token for row in step.rows for token in row.tokens]
    positions = [at for row in step.rows for at in range(*_span(row))]
    texts, at = [], 0
    for row in step.rows:
        texts.append(Text(at, at + len(row.tokens), row.position, row.stream))
        at += len(row.tokens)
    full = _view(step.rows, places.page_size, 0, device)
    sliding = full
    if places.ring:
        sliding = _rings(step.rows, places.ring, places.window, device)
    elif places.window:
        sliding = _view(step.rows, places.page_size, places.window, device)
    where = torch.tensor(positions, device=device)
    wanted = wanted_rows(step)
    return Batch(
        tokens=torch.tensor(tokens, device=device),
        rotations=tuple((cosine[where], sine[where]) for cosine, sine in places.rotations),
        full=full,
        sliding=sliding,
        texts=tuple(texts),
        wanted=None if len(wanted) == len(tokens) else torch.tensor(wanted, device=device),
        growth=None if places.growth is None else places.growth[where],
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


def _span(row: Row) -> tuple[int, int]:
    """The places of a row's tokens in its text."""
    return row.position, row.position + len(row.tokens)


def _seen(row: Row, window: int) -> tuple[int, int]:
    """The places of its text that a row's tokens see, taken together."""
    start, stop = _span(row)
    return (max(0, start - window + 1) if window else 0), stop


def _view(rows: Sequence[Row], page_size: int, window: int, device: torch.device) -> View:
    """Places on pages."""
    slots: list[int] = []
    segments = []
    for row in rows:
        start, stop = _seen(row, window)
        begin = start // page_size
        pages = row.pages[begin : -(-stop // page_size)]
        index, first = None, pages[0] * page_size + start % page_size
        if any(page != pages[0] + i for i, page in enumerate(pages)):
            starts = torch.tensor(pages, device=device)[:, None] * page_size
            places = (starts + torch.arange(page_size, device=device)).flatten()
            index = places[start % page_size :][: stop - start]
        segments.append(_segment(row, len(slots), first, index, window, device))
        slots += [
            row.pages[at // page_size] * page_size + at % page_size for at in range(*_span(row))
        ]
    return View(torch.tensor(slots, device=device), segments)


def _rings(rows: Sequence[Row], ring: int, window: int, device: torch.device) -> View:
    """Places in rings: token p of a text lies at p modulo the ring's size."""
    slots: list[int] = []
    segments = []
    for row in rows:
        start, stop = _seen(row, window)
        assert stop - start <= ring
        base = row.stream * ring
        index, first = None, base + start % ring
        if start // ring != (stop - 1) // ring:
            index = base + torch.arange(start, stop, device=device) % ring
        segments.append(_segment(row, len(slots), first, index, window, device))
        slots += [base + at % ring for at in range(*_span(row))]
    return View(torch.tensor(slots, device=device), segments)


def _segment(
    row: Row, at: int, first: int, index: Tensor | None, window: int, device: torch.device
) -> Segment:
    start, stop = _seen(row, window)
    count, length = len(row.tokens), stop - start
    mask = None
    if count > 1 and (row.position > 0 or (window and count > window)):
        behind = row.position - start
        mask = torch.ones((count, length), dtype=torch.bool, device=device).tril_(behind)
        if window:
            mask.triu_(behind - window + 1)
    return Segment(at, at + count, length, first, index, mask)
