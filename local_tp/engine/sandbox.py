"""Jinja as model templates expect it, for templates of strangers.

Knows nothing of chat. A template is a program: here it reaches no attribute that is not harmless,
and every loop, call, filter and value it makes is paid from the budget of its rendering, so that
it ends in a moment and with little memory whatever it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, _PassArg
from jinja2.visitor import NodeTransformer

from local_tp.engine.sandbox_budget import BUDGET, MAX_BITS, Budget
from local_tp.engine.sandbox_costs import FILTER_COSTS, METHOD_COSTS, check_percent

# Filters that no chat template needs and that are slow or make much of little.
_REMOVED = (
    "center filesizeformat forceescape pprint random striptags truncate urlize wordwrap xmlattr"
)
_STRING_METHODS = (
    "capitalize casefold center count endswith find format index isalnum isalpha isascii isdecimal "
    "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower "
    "lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit "
    "rstrip split splitlines startswith strip swapcase title upper zfill"
)
_LONGEST_DATE = 1000


class Refused(jinja2.TemplateError):
    """The template itself called `raise_exception`."""


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template. A rendering has its `Budget` under the name `BUDGET`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=_written,
        )
        self._recursive_weight = 0  # characters that a loop which calls itself writes in a turn
        self.filters["tojson"] = _tojson
        for name in _REMOVED.split():
            del self.filters[name]
        self.filters = {name: _paid(name, f) for name, f in self.filters.items()}
        self.filters |= {"metered": _metered, "made": _made, "joined": _joined}
        self.tests = {name: _timed(test) for name, test in dict[str, Any](self.tests).items()}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        self._recursive_weight = max(
            (_weight(loop) for loop in tree.find_all(nodes.For) if loop.recursive), default=0
        )
        _Metering().visit(tree)
        tree.set_environment(self)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in _STRING_METHODS.split()
        if isinstance(obj, int | float | bytes):
            return False  # they have methods that make anything of any size
        return attr != "fromkeys" and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        """Refuse a forbidden attribute at once; Jinja would let its name pass as empty text."""
        raise SecurityError(f"attribute {attribute!r} of a {type(obj).__name__} is not allowed")

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call of a template comes by here: methods, macros, loops, functions."""
        budget: Budget = context[BUDGET]
        budget.check_time()
        if isinstance(obj, LoopContext):  # a loop that calls itself
            args = (_turns(budget, args[0], self._recursive_weight), *args[1:]) if args else args
        elif isinstance(obj, Macro):
            for value in (*args, *kwargs.values()):
                if not isinstance(value, Namespace):
                    budget.size(value)
        else:
            owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
            cost = METHOD_COSTS.get(obj.__name__) if isinstance(owner, str) else None
            if cost is not None and isinstance(owner, str):
                args = cost(budget, owner, args, kwargs)
            for value in (*args, *kwargs.values()):
                budget.size(value)
        result = super().call(context, obj, *args, **kwargs)
        return result if isinstance(result, Namespace) else budget.made(result)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic whose result has a bound that is known before it is made."""
        budget: Budget = context[BUDGET]
        if operator == "%" and isinstance(left, str):
            check_percent(budget, left, right)
        if operator == "+":
            budget.check(budget.size(left) + budget.size(right))
        if operator == "*":
            for count, value in ((left, right), (right, left)):
                if isinstance(count, int) and isinstance(value, str | list | tuple):
                    budget.check(count * budget.size(value))
        if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
            if bits > MAX_BITS:
                raise SecurityError(f"it made a number of more than {MAX_BITS:,} bits")
        return budget.made(super().call_binop(context, operator, left, right))


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it is only its body."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


# ------------------------------------------------------------------------------- metering


class _Metering(NodeTransformer):
    """Sends what loops walk through, and what expressions build, by the budget."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = _through("metered", node.iter, nodes.Const(_weight(node)))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _through("joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Dict(self, node: nodes.Dict) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _through("made", node)

    def visit_List(self, node: nodes.List) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _through("made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _through("made", node) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _through("made", node) if isinstance(node.arg, nodes.Slice) else node


def _weight(loop: nodes.For) -> int:
    """The text that stands in a loop, which is written anew in each turn."""
    return sum(len(data.data) for data in loop.find_all(nodes.TemplateData))


def _through(name: str, value: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _paid(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose time, arguments and result are paid for."""
    cost = FILTER_COSTS.get(name)

    @jinja2.pass_context
    def paid(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context[BUDGET]
        budget.check_time()
        budget.size(value)
        if cost is not None:
            value = cost(budget, value, args, kwargs)
        return budget.made(_called(function, context, value, *args, **kwargs))

    return paid


def _timed(test: Callable[..., Any]) -> Callable[..., Any]:
    @jinja2.pass_context
    def timed(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context[BUDGET]
        budget.check_time()
        return _called(test, context, value, *args, **kwargs)

    return timed


def _called(function: Callable[..., Any], context: Context, *args: Any, **kwargs: Any) -> Any:
    """A filter or test of Jinja's, with what it wants before its arguments."""
    wanted = _PassArg.from_obj(function)
    if wanted is _PassArg.context:
        return function(context, *args, **kwargs)
    if wanted is _PassArg.eval_context:
        return function(context.eval_ctx, *args, **kwargs)
    if wanted is _PassArg.environment:
        return function(context.environment, *args, **kwargs)
    return function(*args, **kwargs)


@jinja2.pass_context
def _metered(context: Context, values: Iterable[Any], weight: int) -> Iterator[Any]:
    return _turns(context[BUDGET], values, weight)


def _turns(budget: Budget, values: Iterable[Any], weight: int) -> Iterator[Any]:
    for value in values:
        budget.turn(weight)
        yield value


@jinja2.pass_context
def _made(context: Context, value: Any) -> Any:
    budget: Budget = context[BUDGET]
    return budget.made(value)


@jinja2.pass_context
def _joined(context: Context, parts: list[Any]) -> Any:
    """`a ~ b ~ c`, as one text."""
    budget: Budget = context[BUDGET]
    budget.check(sum(map(budget.size, parts)))
    return budget.made("".join(map(str, parts)))


@jinja2.pass_context
def _written(context: Context, value: Any) -> Any:
    budget: Budget = context[BUDGET]
    return budget.made(value)


# ------------------------------------------------------------------- what templates expect


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise Refused(str(message))


def _strftime_now(pattern: str) -> str:
    if len(pattern) > _LONGEST_DATE:
        raise SecurityError("it asks for a date that is longer than any")
    return datetime.now().strftime(pattern)
