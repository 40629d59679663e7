"""JSON for the frozen values of `core`: `decode(cls, encode(value)) == value`.

Knows nothing of files or of any one noun: the type hints say everything. Nothing is dropped or
converted in silence: an unknown key, a missing one or a wrong type is an `InputError` that names
the place, such as `placements[1].layers: expected [start, stop]`.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from typing import Any, TypeVar

from local_tp.errors import InputError

T = TypeVar("T")

_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}


def encode(value: object) -> Any:
    """Plain lists, string-keyed dicts and scalars, ready for `json.dumps`.

    Tuples, `Span` among them, become lists. Raises `TypeError` on what JSON cannot say.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: encode(item) for key, item in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"JSON cannot say {value!r}")


def decode(cls: type[T], data: object) -> T:
    """The value of type `cls` that `data`, as read from JSON, stands for.

    Keys that are absent take the field's default. Raises `InputError`, one line with the path.
    """
    value: T = _decode(cls, data, "", cls.__name__)
    return value


def _decode(kind: Any, data: object, path: str, whole: str) -> Any:
    """`path` leads from the value named `whole` to `data`; it is empty at the root."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _fields(kind, data, path, whole)
    if origin in (types.UnionType, typing.Union):
        return _union(kind, data, path, whole)
    if origin is tuple or (isinstance(kind, type) and issubclass(kind, tuple)):
        return _tuple(kind, data, path, whole)
    if origin is dict:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise _wrong(kind, path, whole)
        item = typing.get_args(kind)[1]
        return {k: _decode(item, v, f"{path}[{k!r}]", whole) for k, v in data.items()}
    if origin is typing.Literal:
        # `in` alone would let True pass for 1.
        if not any(type(data) is type(word) and data == word for word in typing.get_args(kind)):
            raise _wrong(kind, path, whole)
        return data
    if kind is float and type(data) is int:
        try:
            return float(data)
        except OverflowError:
            raise _wrong(kind, path, whole) from None
    if kind not in _WORDS:
        raise TypeError(f"no JSON form is known for {kind!r}")
    if type(data) is not kind:
        raise _wrong(kind, path, whole)
    return data


def _fields(kind: Any, data: object, path: str, whole: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(kind, path, whole)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in data:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, 1)
            known = f"{kind.__name__} has {', '.join(fields)}"
            hint = f"did you mean {near[0]}?" if near else known
            raise InputError(f"{path or whole}: unknown key {key!r}: {hint}")
    hints = typing.get_type_hints(kind)
    values = {}
    for name, field in fields.items():
        place = f"{path}.{name}" if path else name
        if name in data:
            values[name] = _decode(hints[name], data[name], place, whole)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{place}: missing: expected {_expected(hints[name])}")
    return kind(**values)


def _union(kind: Any, data: object, path: str, whole: str) -> Any:
    options = [option for option in typing.get_args(kind) if option is not types.NoneType]
    if data is None and len(options) < len(typing.get_args(kind)):
        return None
    if len(options) == 1:
        return _decode(options[0], data, path, whole)  # its own error leads deeper
    for option in options:
        try:
            return _decode(option, data, path, whole)
        except InputError:
            continue
    raise _wrong(kind, path, whole)


def _tuple(kind: Any, data: object, path: str, whole: str) -> Any:
    named = hasattr(kind, "_fields")
    items = tuple(typing.get_type_hints(kind).values()) if named else typing.get_args(kind)
    if isinstance(data, (list, tuple)) and items[-1] is Ellipsis:
        items = (items[0],) * len(data)
    if not isinstance(data, (list, tuple)) or len(items) != len(data):
        raise _wrong(kind, path, whole)
    pairs = enumerate(zip(items, data, strict=True))
    values = [_decode(item, value, f"{path}[{i}]", whole) for i, (item, value) in pairs]
    return kind(*values) if named else tuple(values)


def _wrong(kind: Any, path: str, whole: str) -> InputError:
    return InputError(f"{path or whole}: expected {_expected(kind)}")


def _expected(kind: Any) -> str:
    """What a person should have written, in words."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(kind, "_fields"):
        return f"[{', '.join(kind._fields)}]"
    if origin is typing.Literal:
        return " or ".join(f'"{word}"' for word in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_expected(option) for option in arguments)
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)}"
    return "a list" if origin is tuple else "an object"
