"""Measuring just what a plan's choice depends on, and deciding again.

A doubt begins with a key that says what to measure: "link A B: …" or "collective TRANSPORT A B …".
Nothing else is measured; where nothing is doubtful nothing is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from local_tp.cli.decide import Decided, decide
from local_tp.core import Device, Plan, Rig, Transport
from local_tp.hardware.measuring.cache import default_folder
from local_tp.hardware.measuring.measure import measure
from local_tp.hardware.measuring.scope import Scope, worth_measuring

NOTHING = "nothing was measured: no unmeasured number decides between these plans"

Report = Callable[[str], None]
Crew = tuple[tuple[Transport, ...], tuple[Device, ...]]


def decided_again(parsed: argparse.Namespace, decided: Decided, report: Report) -> Decided:
    """The decision on this machine after its doubts were measured."""
    scope = to_measure(decided.rig, decided.plan.doubts)
    if scope == Scope((), (), ()):
        report(NOTHING)
        return decided
    rig = measure(decided.rig, report=report, cache=default_folder(), scope=scope)
    again = decide(parsed, decided.spec, rig, report)
    report(compared(decided.plan, again.plan))
    return again


def to_measure(rig: Rig, doubts: Iterable[str]) -> Scope:
    """What the keys of doubts name, each once; a key of another kind names nothing."""
    by_id = {device.id: device for device in rig.devices}
    pairs: dict[frozenset[str], tuple[Device, Device]] = {}
    crews: dict[tuple[str, ...], Crew] = {}
    for doubt in doubts:
        kind, *words = doubt.partition(": ")[0].split() or [""]
        if kind == "link" and len(words) == 2 and set(words) <= set(by_id):
            a, b = (by_id[word] for word in words)
            if a.kind == b.kind:
                pairs[frozenset(words)] = (a, b)
        if kind == "collective" and len(words) > 2 and set(words[1:]) <= set(by_id):
            transport = _transport(words[0])
            if transport is not None:
                crew = _crew(rig, transport, tuple(by_id[word] for word in words[1:]))
                crews[tuple(words)] = crew
    return Scope((), tuple(pairs.values()), tuple(dict.fromkeys(crews.values())))


def compared(before: Plan, after: Plan) -> str:
    """Whether measuring changed the answer, in one line."""
    same = [(p.device, p.layers, p.query_heads) for p in before.placements] == [
        (p.device, p.layers, p.query_heads) for p in after.placements
    ]
    outcome = "the plan stays" if same else f"{after.split} split instead of {before.split}"
    if before.prediction is None or after.prediction is None:
        return f"measured: {outcome}"
    was, now = before.prediction.decode, after.prediction.decode
    return f"measured: {outcome}, predicted {now:.3g} tokens/s instead of {was:.3g}"


def _crew(rig: Rig, transport: Transport, ranks: tuple[Device, ...]) -> Crew:
    """The sum to measure, as a whole measurement would, so that both are kept under one name."""
    for transports, usual in worth_measuring(rig, True).collectives:
        if transport in transports and usual == ranks:
            return transports, ranks
    return (transport,), ranks


def _transport(word: str) -> Transport | None:
    names: dict[str, Transport] = {"shared-memory": "shared-memory", "gloo": "gloo", "nccl": "nccl"}
    return names.get(word)
