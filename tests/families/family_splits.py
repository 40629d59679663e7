"""Every kind of split of a small model, with shares as unlike as its heads allow."""

from __future__ import annotations

from itertools import accumulate, pairwise

from local_tp.core import Dimensions, Goal, ModelSpec, Placement, Plan, Span
from local_tp.core import Split as Kind

CONTEXT, PAGE_SIZE, STREAMS = 64, 8, 2
PAGES = STREAMS * CONTEXT // PAGE_SIZE

# Ranks of each stage by the name of the split.
STAGES: dict[str, tuple[int, ...]] = {
    "single": (1,),
    "layer 3": (1, 1, 1),
    "tensor 2": (2,),
    "tensor 3": (3,),
    "tensor 5": (5,),
    "hybrid": (2, 1, 2),
}
EVERY = tuple(STAGES)
FEW = ("single", "tensor 3")

# Parts of columns and vocabulary rows; somebody has none of them.
_WEIGHTS = {1: (1,), 2: (3, 5), 3: (3, 1, 2), 5: (3, 0, 1, 2, 2)}


def plan_of(spec: ModelSpec, split: str, ring: bool) -> Plan:
    """A plan in float32; with `ring`, layers with a window keep only that of each text."""
    stages = STAGES[split]
    ranks = sum(stages)
    chunk = 8 if ring else CONTEXT
    goal = Goal(dtype="float32", kv_format="float32", streams=STREAMS, chunk=chunk)
    kind: Kind = "hybrid" if split == "hybrid" else "single"
    return Plan(
        model=spec.name,
        goal=goal,
        placements=tuple(_placements(spec.dimensions, stages)),
        transport="shared-memory" if ranks > 1 else "none",
        context=CONTEXT,
        page_size=PAGE_SIZE,
        pages=PAGES,
        split=kind,
    )


def _placements(d: Dimensions, stages: tuple[int, ...]) -> list[Placement]:
    found: list[Placement] = []
    layers = _spans(d.layers, (1,) * len(stages))
    for stage, ranks in enumerate(stages):
        query = _query_heads(d, ranks)
        ffn, experts = _spans(d.ffn, _WEIGHTS[ranks]), _spans(d.experts, _WEIGHTS[ranks][::-1])
        vocab = _spans(d.vocab, _WEIGHTS[ranks][::-1])
        for index in range(ranks):
            found.append(
                Placement(
                    rank=len(found),
                    device="cpu",
                    stage=stage,
                    layers=layers[stage],
                    query_heads=query[index],
                    kv_heads=_kv_heads(d, query[index]),
                    ffn=ffn[index],
                    vocab=vocab[index],
                    experts=experts[index],
                )
            )
    return found


def _spans(total: int, weights: tuple[int, ...]) -> list[Span]:
    bounds = (total * part // sum(weights) for part in accumulate(weights, initial=0))
    return [Span(*pair) for pair in pairwise(bounds)]


def _query_heads(d: Dimensions, ranks: int) -> list[Span]:
    """Whole groups, or parts of one where ranks are more than groups; of five, one has none."""
    if ranks == 5:
        first, second, *others = _query_heads(d, 4)
        return [first, second, Span(second.stop, second.stop), *others]
    group = d.query_heads // d.kv_heads
    counts: list[int] = []
    if ranks <= d.kv_heads:
        counts = [group] * ranks
        counts[0] += (d.kv_heads - ranks) * group
    else:
        for index in range(d.kv_heads):
            members = ranks // d.kv_heads + (index >= d.kv_heads - ranks % d.kv_heads)
            left = group - min(members - 1, group - 1)
            counts += [left, *[1] * (members - 1)][:members]
            counts[len(counts) - members :] = _to(counts[len(counts) - members :], group)
    return [Span(*pair) for pair in pairwise(accumulate(counts, initial=0))]


def _to(counts: list[int], total: int) -> list[int]:
    """The counts with the last of them given up until they add up to `total`."""
    kept: list[int] = []
    for count in counts:
        kept.append(min(count, total - sum(kept)))
    return kept


def _kv_heads(d: Dimensions, query: Span) -> Span:
    group = d.query_heads // d.kv_heads
    if not query.size:
        return Span(query.start // group, query.start // group)
    return Span(query.start // group, -(-query.stop // group))
