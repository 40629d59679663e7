"""How far predictions are from measurements, as figures and as text.

An error is |predicted / measured - 1|. Knows nothing of how either was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calibration.fit import decode_counts, prefill_counts
from calibration.prediction import Counted
from local_tp.rates import Rates

DIFFERENT = 1.1  # pairs that differ by less have no winner
WORST = 15
FIGURES = ("decode", "prefill")


@dataclass(frozen=True, slots=True)
class Point:
    """One predicted figure beside the measured one."""

    id: str
    figure: str
    engine: str
    split: str
    quant: str
    source: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return abs(self.predicted / self.measured - 1)


@dataclass(frozen=True, slots=True)
class Errors:
    rows: int
    median: float
    ninetieth: float


@dataclass(frozen=True, slots=True)
class Winners:
    """Of the pairs that differ, how many were told right; which were not, and which left out."""

    right: int
    pairs: int
    wrong: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        return self.right / self.pairs if self.pairs else 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that the script says of one set of constants."""

    points: tuple[Point, ...]
    winners: Winners
    left_out: tuple[tuple[str, str], ...]
    unsure: tuple[tuple[str, str], ...]
    cross: Mapping[str, Errors] = field(default_factory=dict)

    def errors(self, figure: str) -> Errors | None:
        return errors_of(point for point in self.points if point.figure == figure)


def points_of(cases: Iterable[Counted], rates: Mapping[str, Rates]) -> tuple[Point, ...]:
    """Every figure of every case that counts."""
    found = []
    for one in cases:
        case, constants = one.case, rates[one.case.engine]
        if decode_counts(case) and case.decode:
            found.append(_point(one, "decode", case.decode, one.decode(constants)))
        if prefill_counts(case) and case.prefill:
            found.append(_point(one, "prefill", case.prefill, one.prefill(constants)))
    return tuple(found)


def errors_of(points: Iterable[Point]) -> Errors | None:
    """Median and 90th percentile, or None without a point."""
    errors = sorted(point.error for point in points)
    if not errors:
        return None
    return Errors(len(errors), _percentile(errors, 0.5), _percentile(errors, 0.9))


def winners_of(
    pairs: Sequence[Mapping[str, Any]], cases: Sequence[Counted], rates: Mapping[str, Rates]
) -> Winners:
    """Whether the same predictions tell which of two measurements was the faster."""
    by_id = {one.case.id: one for one in cases}
    right, wrong, left = 0, [], []
    for pair in pairs:
        for figure in FIGURES:
            ratio = pair.get(f"{figure}_tps_a_over_b")
            if ratio is None or 1 / DIFFERENT < ratio < DIFFERENT:
                continue
            name = f"{pair['a']} against {pair['b']}, {figure}"
            a, b = by_id.get(pair["a"]), by_id.get(pair["b"])
            if a is None or b is None:
                left.append(name)
                continue
            told = _figure(a, figure, rates) / _figure(b, figure, rates)
            if (told > 1) == (ratio > 1):
                right += 1
            else:
                wrong.append(f"{name}: measured {ratio:.2f}, predicted {told:.2f}")
    return Winners(right, right + len(wrong), tuple(wrong), tuple(left))


def as_json(result: Result) -> dict[str, Any]:
    """The result for programs."""
    return {
        "decode": _dict(result.errors("decode")),
        "prefill": _dict(result.errors("prefill")),
        "winners": asdict(result.winners) | {"share": result.winners.share},
        "by_engine": _plain(_by_engine(result)),
        "by_split": _plain(_by_split(result)),
        "cross_validation": {name: asdict(errors) for name, errors in result.cross.items()},
        "left_out": dict(result.left_out),
        "not_counted": dict(result.unsure),
        "rows": [asdict(p) | {"error": p.error} for p in result.points],
    }


def as_text(result: Result) -> str:
    """The result for people."""
    lines = []
    for figure in FIGURES:
        lines.append(_line(figure, result.errors(figure)))
    won = result.winners
    lines.append(f"winner right in {won.right} of {won.pairs} pairs ({won.share:.0%})")
    lines += [f"  wrong: {text}" for text in won.wrong]
    lines += [f"  left out: {text}" for text in won.left_out]
    for title, groups in (("engine", _by_engine(result)), ("split", _by_split(result))):
        lines.append(f"by {title}")
        lines += [
            "  " + _line(f"{name}, {figure}", errors)
            for name, found in groups.items()
            for figure, errors in found.items()
        ]
    lines += [_line(name, errors) for name, errors in result.cross.items()]
    lines.append(f"the worst {WORST}")
    for point in sorted(result.points, key=lambda p: -p.error)[:WORST]:
        lines.append(
            f"  {point.id}, {point.figure}: measured {point.measured:.1f}, "
            f"predicted {point.predicted:.1f}"
        )
    reasons = Counter(reason for _, reason in result.left_out)
    lines.append(f"left out: {len(result.left_out)} rows")
    lines += [f"  {count}: {reason}" for reason, count in reasons.most_common()]
    reasons = Counter(reason for _, reason in result.unsure)
    lines.append(f"not counted in an error of decode, or at all: {len(result.unsure)} rows")
    lines += [f"  {count}: {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _figure(one: Counted, figure: str, rates: Mapping[str, Rates]) -> float:
    constants = rates[one.case.engine]
    return one.decode(constants) if figure == "decode" else one.prefill(constants)


def _point(one: Counted, figure: str, measured: float, predicted: float) -> Point:
    case = one.case
    return Point(
        case.id, figure, case.engine, case.split, case.quant, case.source, measured, predicted
    )


def _percentile(ordered: Sequence[float], part: float) -> float:
    """By linear interpolation between the neighbours."""
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _by_engine(result: Result) -> dict[str, dict[str, Errors]]:
    return _grouped(result.points, lambda point: point.engine)


def _by_split(result: Result) -> dict[str, dict[str, Errors]]:
    return _grouped(result.points, lambda point: point.split)


def _grouped(points: Iterable[Point], key: Callable[[Point], str]) -> dict[str, dict[str, Errors]]:
    """Errors by name and figure, in the order of names."""
    groups: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        groups[key(point)][point.figure].append(point)
    return {
        name: {figure: e for figure in FIGURES if (e := errors_of(found[figure]))}
        for name, found in sorted(groups.items())
    }


def _plain(groups: dict[str, dict[str, Errors]]) -> dict[str, dict[str, Any]]:
    return {
        name: {figure: asdict(errors) for figure, errors in found.items()}
        for name, found in groups.items()
    }


def _dict(errors: Errors | None) -> dict[str, Any]:
    return {} if errors is None else asdict(errors)


def _line(name: str, errors: Errors | None) -> str:
    if errors is None:
        return f"{name}: no rows"
    return (
        f"{name}: {errors.rows} rows, median error {errors.median:.1%}, "
        f"90th percentile {errors.ninetieth:.1%}"
    )
