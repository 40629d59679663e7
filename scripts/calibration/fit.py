"""One efficiency constant for each (engine, device kind, class of format), fitted to cases.

Decode fits the share of memory bandwidth, prefill the share of operations; nothing else moves.
The fit minimises the sum of absolute log ratios, so that outliers do not pull it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import exp, log

from calibration.cases import SPECULATIVE, Case
from calibration.prediction import Counted
from local_tp.hardware.rates import load_rates
from local_tp.rates import Efficiency, Rates

LEAST = 0.02
MOST = {"memory": 0.98, "compute": 1.9}  # 8-bit products may reach twice the 16-bit rate
GENERAL = "general"  # stands for engines that nobody fitted, so nothing is fitted to it
ROUNDS = 3
PRIOR = 0.7  # measurements that the general constants count for
Key = tuple[str, str]  # engine, and "kind class"


def fitted(cases: Sequence[Counted], rates: Mapping[str, Rates]) -> dict[str, Rates]:
    """The constants of every engine with the fitted ones in place. Families share theirs."""
    decode: dict[Key, list[Counted]] = defaultdict(list)
    prefill: dict[Key, list[Counted]] = defaultdict(list)
    engines: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        if case.case.family == GENERAL:
            continue
        engines[case.case.family].add(case.case.engine)
        if decode_counts(case.case):
            decode[_key(case, rates, False)].append(case)
        if prefill_counts(case.case):
            prefill[_key(case, rates, True)].append(case)
    general, found = load_rates(GENERAL), dict(rates)
    for _ in range(ROUNDS):
        for (name, key), members in sorted(decode.items()):
            _fit(found, engines[name], key, "memory", members, _decode_loss, general)
        for (name, key), members in sorted(prefill.items()):
            _fit(found, engines[name], key, "compute", members, _prefill_loss, general)
    return found


def decode_counts(case: Case) -> bool:
    """Whether a row's answers can be held against what is predicted."""
    return case.decode is not None and not case.unsure


def prefill_counts(case: Case) -> bool:
    """The same of prompts, which are read alike with and without speculation."""
    return case.prefill is not None and (not case.unsure or case.unsure == SPECULATIVE)


def _key(case: Counted, rates: Mapping[str, Rates], reading: bool) -> Key:
    kind, held = case.held(reading)
    return case.case.family, f"{kind} {rates[case.case.engine].class_of(held)}"


def _decode_loss(case: Counted, rates: Rates) -> float:
    assert case.case.decode is not None
    return abs(log(case.decode(rates) / case.case.decode))


def _prefill_loss(case: Counted, rates: Rates) -> float:
    assert case.case.prefill is not None
    return abs(log(case.prefill(rates) / case.case.prefill))


def _fit(
    found: dict[str, Rates],
    engines: Collection[str],
    key: str,
    field: str,
    members: Sequence[Counted],
    loss: Callable[[Counted, Rates], float],
    general: Rates,
) -> None:
    usual = getattr(general.efficiency[f"{key.split(' ', 1)[0]} other"], field)

    def at(value: float) -> float:
        tried = {engine: with_constant(found[engine], key, field, value) for engine in engines}
        far = PRIOR * abs(log(value / usual))
        return far + sum(loss(member, tried[member.case.engine]) for member in members)

    value = round(_least(at, MOST[field]), 3)
    for engine in engines:
        found[engine] = with_constant(found[engine], key, field, value)


def constants(
    cases: Sequence[Counted], fitted_rates: Mapping[str, Rates]
) -> dict[str, dict[str, Efficiency]]:
    """What was fitted: by family and by "kind class"."""
    found: dict[str, dict[str, Efficiency]] = defaultdict(dict)
    for case in cases:
        if case.case.family == GENERAL:
            continue
        for reading in (False, True):
            if not (prefill_counts(case.case) if reading else decode_counts(case.case)):
                continue
            rates = fitted_rates[case.case.engine]
            family, key = _key(case, fitted_rates, reading)
            found[family][key] = rates.efficiency[key]
    return {family: dict(sorted(rows.items())) for family, rows in sorted(found.items())}


def with_constant(rates: Rates, key: str, field: str, value: float) -> Rates:
    """The constants with one of them set."""
    kind = key.split(" ", 1)[0]
    old = rates.efficiency.get(key) or rates.efficiency[f"{kind} other"]
    new = replace(old, memory=value) if field == "memory" else replace(old, compute=value)
    efficiency: dict[str, Efficiency] = {**rates.efficiency, key: new}
    return replace(rates, efficiency=efficiency)


def _least(at: Callable[[float], float], most: float) -> float:
    """The least of a function over a range of magnitudes: a coarse look, then ever finer ones."""
    low, high = log(LEAST), log(most)
    best, top = low, high
    while high - low > 0.002:
        grid = [low + (high - low) * i / 12 for i in range(13)]
        best = min(grid, key=lambda x: at(exp(x)))
        step = (high - low) / 12
        low, high = best - step, min(top, best + step)
    return exp(best)
