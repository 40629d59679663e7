"""The report as JSON: read back exactly, in the form that the published schema says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_rigs import eight, four, one, report_of, two

from local_tp.core import Rig
from local_tp.errors import InputError
from local_tp.hardware.report.json import LONGEST, read_report, report_json
from local_tp.hardware.report.schema import report_schema

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


@pytest.mark.parametrize("rig", [one, two, four, eight])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_report_is_read_back(rig: Callable[[], Rig], encoding: str) -> None:
    report = report_of(rig())
    assert read_report(report_json(report).encode(encoding), "x.json") == report


def test_the_top_level() -> None:
    whole = json.loads(report_json(report_of(two())))
    assert list(whole) == ["rig", "findings", "unread"]
    assert {"devices", "links"} <= set(whole["rig"])
    assert list(whole["findings"][0]) == [
        "id", "severity", "devices", "evidence", "cost", "remedy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe{",
        b'{"rig": NaN}',
        b'{"card0": {"Card series": "x"}}',
        b'{"a":' * 100_000,
        b" " * LONGEST + b'{"rig": {}}',
        b'prompt$ nvidia-smi\n{"rig": {"devices": []}}',
    ],
    ids=range(9),
)
def test_other_text_is_not_a_report(data: bytes) -> None:
    assert read_report(data, "x.json") is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"rig": {}}', "rig.devices: missing"),
        (b'{"rig": {"devices": [], "speed": 1}}', "unknown key 'speed'"),
        (b'{"rig": {"devices": []}, "findings": [{"id": "x"}]}', "findings[0].severity: missing"),
        (b'{"rig": []}', "rig: expected an object"),
    ],
)
def test_a_damaged_report_says_where(data: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_report(data, "x.json")
    assert str(caught.value).startswith("x.json is not a report that this version can read: ")
    assert words in str(caught.value)


def test_a_number_that_json_lacks_is_refused() -> None:
    rig = one()
    report = report_of(replace(rig, devices=(replace(rig.devices[0], bandwidth=float("inf")),)))
    with pytest.raises(InputError, match="not finite"):
        report_json(report)


def test_the_published_schema_is_that_of_the_nouns() -> None:
    published = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert published == report_schema(), (
        "print it anew: python -m local_tp.hardware.report.schema > docs/report.schema.json"
    )


@pytest.mark.parametrize("rig", [one, two, four, eight])
def test_reports_keep_the_schema(rig: Callable[[], Rig]) -> None:
    schema = report_schema()
    assert problems(json.loads(report_json(report_of(rig()))), schema, schema["$defs"]) == []


def test_the_schema_finds_what_is_wrong() -> None:
    schema = report_schema()
    whole = json.loads(report_json(report_of(one())))
    whole["findings"][0]["severity"] = "fatal"
    whole["rig"]["devices"][0]["total"] = "12 GiB"
    whole["rig"]["more"] = 1
    found = problems(whole, schema, schema["$defs"])
    assert found == [".rig.more", ".rig.devices[0].total", ".findings[0].severity"]


def problems(value: Any, schema: dict[str, Any], nouns: dict[str, Any], at: str = "") -> list[str]:
    """Where `value` breaks a schema that uses only the words which ours does."""
    known = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    numbers = {"integer": int, "number": (int, float)}
    if "$ref" in schema:
        return problems(value, nouns[schema["$ref"].rpartition("/")[2]], nouns, at)
    if "anyOf" in schema:
        tried = [problems(value, option, nouns, at) for option in schema["anyOf"]]
        return min(tried, key=len)
    if "enum" in schema:
        return [] if value in schema["enum"] else [at]
    kind = schema["type"]
    if kind in numbers:
        return [] if isinstance(value, numbers[kind]) and not isinstance(value, bool) else [at]
    if not isinstance(value, known[kind]):
        return [at]
    if kind == "object":
        missing = [f"{at}.{key}" for key in schema["required"] if key not in value]
        extra = [f"{at}.{key}" for key in value if key not in schema["properties"]]
        within = [
            problems(item, schema["properties"][key], nouns, f"{at}.{key}")
            for key, item in value.items()
            if key in schema["properties"]
        ]
    elif kind == "array":
        forms = schema.get("prefixItems") or [schema["items"]] * len(value)
        missing, extra = [at] if len(forms) != len(value) else [], []
        pairs = enumerate(zip(value, forms, strict=False))
        within = [problems(item, form, nouns, f"{at}[{i}]") for i, (item, form) in pairs]
    else:
        return []
    return [*missing, *extra, *(problem for found in within for problem in found)]
