"""Our logits of two texts against transformers', however they are read and split."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from family_models import Reference
from family_pool import RankPool, Run
from family_splits import FEW, PAGES, STREAMS, plan_of

from local_tp.core import ModelSpec, Row, Step

TOLERANCE = 1e-4

# How many tokens of the two texts each step takes: chunks, decoding, both texts at once.
STEPS = ((7, 0), (5, 0), (0, 8), (1, 1), (1, 1), (3, 1), (2, 6), (8, 1), (8, 0), (7, 1), (1, 1))
# Pages one after another, and pages in no order.
PAGES_OF = (tuple(range(PAGES // 2)), tuple(reversed(range(PAGES // 2, PAGES))))


def check(
    pool: RankPool,
    spec: ModelSpec,
    reference: Reference,
    splits: Iterable[str] = FEW,
    rings: Iterable[bool] = (True,),
) -> None:
    """Every split gives the reference's logits wherever a step ends; `rings` as in `plan_of`."""
    for split in splits:
        for ring in rings:
            with pool.running(spec, plan_of(spec, split, ring)) as run:
                _compare(f"{split}, ring {ring}", run, reference)


def _compare(name: str, run: Run, reference: Reference) -> None:
    read = [0] * STREAMS
    for number, counts in enumerate(STEPS):
        rows = []
        for text, count in enumerate(counts):
            if count:
                tokens = reference.texts[text][read[text] :][:count]
                rows.append(Row(text, tokens, read[text], PAGES_OF[text], stream=text, logits=True))
                read[text] += count
        results = {result.request: result.logits for result in run(Step(number, tuple(rows)))}
        for row in rows:
            raw = results[row.request]
            assert raw is not None
            found = torch.frombuffer(bytearray(raw), dtype=torch.float32)
            last = row.position + len(row.tokens) - 1
            wanted = reference.logits[row.request][last]
            worst, largest = (found - wanted).abs().max().item(), wanted.abs().max().item()
            place = f"{name}: place {last} of text {row.request}"
            assert worst <= TOLERANCE * largest, f"{place} is off by {worst:.3g} of {largest:.3g}"
            assert int(found.argmax()) == int(wanted.argmax()), place
