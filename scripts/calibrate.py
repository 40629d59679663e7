"""Holds the time model against published measurements: predicted and measured tokens a second.

    python scripts/calibrate.py [--fit] [--write] [--cross] --data FILE [--pairs FILE] [--json]

`--data` has a measurement a line, `--pairs` two of them that were taken on one machine. Without
`--fit` the constants of presets/rates.toml are used; with it one efficiency for each engine and
class of format is fitted to the data, one for decode and one for prefill, and `--write` keeps them
there. `--cross` also reports errors on rows that a fit did not see.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from calibration import kept  # noqa: E402
from calibration.cases import cases_of  # noqa: E402
from calibration.cross import cross_validated  # noqa: E402
from calibration.fit import constants, fitted  # noqa: E402
from calibration.prediction import counted  # noqa: E402
from calibration.report import Result, as_json, as_text, points_of, winners_of  # noqa: E402

from local_tp import settings  # noqa: E402
from local_tp.hardware.rates import load_rates  # noqa: E402
from local_tp.rates import Rates  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    rows, pairs = _lines(parsed.data), _lines(parsed.pairs) if parsed.pairs else []
    cases, left = cases_of(rows)
    rates = {case.engine: load_rates(case.engine) for case in cases}
    counts = [counted(case, rates[case.engine]) for case in cases]
    if parsed.fit:
        rates = fitted(counts, rates)
        if parsed.write:
            kept.write(settings.presets() / "rates.toml", constants(counts, rates))
    result = Result(
        points=points_of(counts, rates),
        winners=winners_of(pairs, counts, rates),
        left_out=tuple(left),
        unsure=tuple((case.id, case.unsure) for case in cases if case.unsure),
        cross=cross_validated(counts, _unfitted(rates)) if parsed.cross else {},
    )
    if parsed.json:
        found = constants(counts, rates)
        printed = as_json(result) | {"constants": _plain(found)}
        print(json.dumps(printed, indent=1))
    else:
        print(as_text(result))
    return 0


def _unfitted(rates: dict[str, Rates]) -> dict[str, Rates]:
    """The constants with nothing in them that was fitted."""
    general = load_rates("general").efficiency
    return {name: replace(one, efficiency=general) for name, one in rates.items()}


def _plain(found: Any) -> dict[str, dict[str, dict[str, float]]]:
    return {
        family: {key: {"memory": e.memory, "compute": e.compute} for key, e in rows.items()}
        for family, rows in found.items()
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="measurements, a JSON a line")
    parser.add_argument("--pairs", type=Path, help="pairs of them, a JSON a line")
    parser.add_argument("--fit", action="store_true", help="fit the constants to the data")
    parser.add_argument("--write", action="store_true", help="with --fit: keep them in presets")
    parser.add_argument("--cross", action="store_true", help="errors on rows that no fit saw, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
