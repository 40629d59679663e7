"""The JSON Schema of the report, read off the nouns, so that it cannot say anything else.

Knows nothing of any one noun. `python -m local_tp.hardware.report.schema` prints what
`docs/report.schema.json` holds.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

from local_tp.hardware.report.report import Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}

Definitions = dict[str, Any]


def report_schema() -> dict[str, Any]:
    """The whole schema, one definition a noun."""
    definitions: Definitions = {}
    root = _schema(Report, definitions)
    return {
        "$schema": DIALECT,
        "title": "local_tp hardware report",
        "description": "Bytes, seconds, watts, megahertz, degrees Celsius; null: not known.",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema(kind: Any, definitions: Definitions) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _noun(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_schema(option, definitions) for option in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(item, definitions) for item in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}
    return {"type": SCALARS[kind]}


def _noun(kind: Any, definitions: Definitions) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return {
        "type": "object",
        "properties": {f.name: _schema(hints[f.name], definitions) for f in fields},
        "required": [
            f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING
        ],
        "additionalProperties": False,
    }


if __name__ == "__main__":
    print(json.dumps(report_schema(), indent=2))
