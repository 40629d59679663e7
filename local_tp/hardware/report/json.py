"""The report as JSON, for programs and for `doctor --from`; its schema is in `docs`.

Knows nothing of files. `read_report(report_json(report)) == report`; what is not a report is told
apart from one that is damaged.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from local_tp import codec
from local_tp.errors import InputError
from local_tp.hardware.report.report import Report

# A report of eight cards is 40 kB; pasted output that is larger is no report.
LONGEST = 4 * 1024 * 1024


def report_json(report: Report) -> str:
    """The report with two spaces of indentation. Raises `InputError` where JSON has no number."""
    try:
        return json.dumps(codec.encode(report), ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError as error:
        raise InputError(
            "the report holds a number that is not finite, which JSON cannot say: leave out --json"
        ) from error


def read_report(data: bytes, name: str) -> Report | None:
    """The report that is the whole of a text; None for any other text.

    `name` is what the person calls the text. Raises `InputError` for a damaged report.
    """
    whole = _json(data)
    if not isinstance(whole, dict) or "rig" not in whole:
        return None
    try:
        return codec.decode(Report, whole)
    except InputError as error:
        raise InputError(f"{name} is not a report that this version can read: {error}") from error


def _json(data: bytes) -> Any:
    if len(data) > LONGEST:
        return None
    try:
        # Windows' shell redirects to UTF-16.
        text = data.decode(json.detect_encoding(data)).lstrip()
        return json.loads(text, parse_constant=_refuse) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
