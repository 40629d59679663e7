"""How much a filter or a method of text would make, reckoned before it makes it.

Knows nothing of templates: each function has the budget, the value and the arguments, and refuses
or lets pass. They are for those that can make much of little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2.exceptions import SecurityError

from local_tp.engine.sandbox_budget import Budget

# Widths of six digits and more, and those that are themselves arguments.
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(?:\d{6}|\*)")
_WIDE_FORMAT = re.compile(r"[:!][^{}]*\d{6}|\{[^{}]*\{")
_WIDEST = 100_000
_MOST_GROUPS = 100_000
_WIDEST_INDENT = 64
_MOST_DIGITS = 100

Arguments = tuple[Any, ...]
Named = Mapping[str, Any]


def check_percent(budget: Budget, text: str, values: object) -> None:
    """`text % values`."""
    if _WIDE_PERCENT.search(text):
        raise SecurityError("it pads a text to a length that no prompt has")
    budget.check(len(text) + text.count("%") * (_WIDEST + budget.size(values)))


def _replace(budget: Budget, text: str, old: object, new: object, *rest: object) -> None:
    before, after = str(old), str(new)
    times = text.count(before) if before else len(text) + 1
    budget.check(len(text) + times * len(after))


def _join(budget: Budget, values: Iterable[object], separator: object = "") -> list[object]:
    items = []
    for value in values:
        budget.turn(0)
        items.append(value)
    budget.check(budget.size(items) + len(items) * budget.size(separator))
    return items


# ------------------------------------------------------------------------ methods of text


def _method_replace(budget: Budget, text: str, args: Arguments, named: Named) -> Arguments:
    if len(args) >= 2:
        _replace(budget, text, *args)
    return args


def _method_join(budget: Budget, text: str, args: Arguments, named: Named) -> Arguments:
    return (_join(budget, args[0], text),) if args else args


def _method_pad(budget: Budget, text: str, args: Arguments, named: Named) -> Arguments:
    if args and isinstance(args[0], int):
        budget.check(args[0])
    return args


def _method_format(budget: Budget, text: str, args: Arguments, named: Named) -> Arguments:
    if _WIDE_FORMAT.search(text):
        raise SecurityError("it pads a text to a length that no prompt has")
    most = budget.size(args) + budget.size(dict(named))
    budget.check(len(text) + text.count("{") * (_WIDEST + most))
    return args


METHOD_COSTS: dict[str, Callable[[Budget, str, Arguments, Named], Arguments]] = {
    "replace": _method_replace,
    "join": _method_join,
    "center": _method_pad,
    "ljust": _method_pad,
    "rjust": _method_pad,
    "zfill": _method_pad,
    "format": _method_format,
}


# -------------------------------------------------------------------------------- filters


def _argument(args: Arguments, named: Named, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else named.get(name, default)


def _filter_replace(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    text = str(value)
    old, new = (_argument(args, named, i, n, "") for i, n in enumerate(("old", "new")))
    _replace(budget, text, old, new)
    return value


def _filter_join(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    return _join(budget, value, _argument(args, named, 0, "d", ""))


def _filter_format(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    check_percent(budget, str(value), (*args, dict(named)))
    return value


def _filter_indent(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    width = _argument(args, named, 0, "width", 4)
    lines = 1 + str(value).count("\n")
    budget.check(budget.size(value) + lines * (width if isinstance(width, int) else len(width)))
    return value


def _filter_groups(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    counts = [each for each in (*args[:1], *named.values()) if isinstance(each, int)]
    if any(count > _MOST_GROUPS for count in counts):
        raise SecurityError(f"it asks for more than {_MOST_GROUPS:,} groups")
    return value


def _filter_round(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    if abs(_argument(args, named, 0, "precision", 0)) > _MOST_DIGITS:
        raise SecurityError(f"it rounds to more than {_MOST_DIGITS} digits")
    return value


def _filter_sum(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    """Only numbers: a sum of lists copies all again for each."""
    start = _argument(args, named, 1, "start", 0)
    if not isinstance(start, int | float):
        raise SecurityError("it sums what are no numbers")
    return value


def _filter_tojson(budget: Budget, value: Any, args: Arguments, named: Named) -> Any:
    indent = _argument(args, named, 1, "indent", None)
    if indent is not None and (not isinstance(indent, int) or indent > _WIDEST_INDENT):
        raise SecurityError(f"it indents JSON by more than {_WIDEST_INDENT}")
    return value


FILTER_COSTS: dict[str, Callable[[Budget, Any, Arguments, Named], Any]] = {
    "replace": _filter_replace,
    "join": _filter_join,
    "format": _filter_format,
    "indent": _filter_indent,
    "batch": _filter_groups,
    "slice": _filter_groups,
    "round": _filter_round,
    "sum": _filter_sum,
    "tojson": _filter_tojson,
}
