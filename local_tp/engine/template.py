"""Chat messages to a prompt, by the template that came with the model.

Knows nothing of tokens beyond their spelling. A template is a stranger's program: it runs in a
sandbox, with a budget, and whatever goes wrong in it is one `TemplateError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import TemplateError

MAX_STEPS = 1_000_000  # turns of all loops of one rendering together
MAX_SIZE = 16 * 1024 * 1024  # characters or items in the prompt or in any value on the way
MAX_BITS = 4096  # of an integer
BUDGET = "steps left"  # not an identifier, so that no template can name it

Message = Mapping[str, Any]


class ChatTemplate:
    """A model's chat template. Safe to share between threads.

    `fault` says in one line why there can be no chat (no template, broken syntax), or is None; a
    model with a fault still serves plain completions.
    """

    def __init__(self, source: str | None, bos_text: str = "", eos_text: str = "") -> None:
        self.fault: str | None = None
        self._tokens = {"bos_token": bos_text, "eos_token": eos_text}
        self._template: jinja2.Template | None = None
        self._wants_parts = False
        if not source:
            self.fault = (
                "this model has no chat template: use /v1/completions or `local-tp complete`, or "
                "choose a model with a template"
            )
            return
        environment = _Sandbox()
        try:
            self._wants_parts = _wants_parts(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            self.fault = _line(
                f"the model's chat template is broken at line {error.lineno} ({error.message}): "
                "use /v1/completions, or choose another model"
            )

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for `messages`, ready for `encode_chat`.

        `variables` are whatever the template knows, such as `enable_thinking`. Raises
        `TemplateError` with the template's line if the template is absent, broken, refuses these
        messages, or exceeds its budget.
        """
        if self._template is None:
            raise TemplateError(self.fault)
        values = {
            **self._tokens,
            **variables,
            "messages": [_plain(message, self._wants_parts) for message in messages],
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
            BUDGET: _Budget(),
        }
        try:
            return _bounded(self._template.generate(values))
        except _Refused as error:
            raise TemplateError(_line(f"the chat template refuses this: {error}")) from error
        except MemoryError as error:
            raise TemplateError("the chat template ran out of memory: use another model") from error
        except _FAILURES as error:
            at = _template_line(error.__traceback__)
            where = "" if at is None else f" at line {at}"
            raise TemplateError(
                _line(
                    f"the chat template failed{where} ({error}): check the messages, or use "
                    "/v1/completions"
                )
            ) from error


def encode_chat(tokenizer: Tokenizer, rendered: str) -> list[int]:
    """Token ids of a rendered prompt, with one BOS token where the checkpoint wants one.

    Most templates write the BOS themselves; it is added only to a prompt that lacks it.
    """
    has_bos = bool(tokenizer.bos_text) and rendered.startswith(tokenizer.bos_text)
    return tokenizer.encode(rendered, add_bos=False if has_bos else None)


# ------------------------------------------------------------------------------- messages


def _plain(message: Message, wants_parts: bool) -> dict[str, Any]:
    """One message as the template wants it: no nulls, and content as text or as parts."""
    present = {key: value for key, value in message.items() if value is not None}
    content = present.get("content")
    if isinstance(content, str) and wants_parts:
        present["content"] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        texts = [_text(part) for part in content]
        parts = [{"type": "text", "text": text} for text in texts]
        present["content"] = parts if wants_parts else "\n".join(texts)
    if isinstance(calls := present.get("tool_calls"), list):
        present["tool_calls"] = [_call(call) for call in calls]
    return present


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call with its arguments as an object: the API has JSON text, templates write JSON."""
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return dict(call)
    try:
        arguments = json.loads(function["arguments"])
    except ValueError as error:
        raise TemplateError(
            _line(f"the arguments of tool call {function.get('name')!r} are not JSON: {error}")
        ) from error
    return {**call, "function": {**function, "arguments": arguments}}


def _text(part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(text, str):
        raise TemplateError(
            _line(f"a message part of type {kind!r} cannot be read by this model: send text only")
        )
    return text


def _wants_parts(tree: nodes.Template) -> bool:
    """Whether the template can only read content that is a list of parts.

    It then walks through the content of a message and never asks whether that is a string.
    """
    asks = any(test.name == "string" for test in tree.find_all(nodes.Test))
    return not asks and any(
        (isinstance(node, nodes.Getattr) and node.attr == "content")
        or (isinstance(node, nodes.Getitem) and node.arg == nodes.Const("content"))
        for loop in tree.find_all(nodes.For)
        for node in (loop.iter, *loop.iter.find_all((nodes.Getattr, nodes.Getitem)))
    )


# -------------------------------------------------------------------------------- sandbox


class _Refused(jinja2.TemplateError):
    """The template itself called `raise_exception`."""


_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class _Budget:
    """The loop turns that one rendering has left."""

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise SecurityError(f"its loops ran more than {MAX_STEPS:,} times")


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it is only its body."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as model templates expect it, where values and loops have bounds."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self.filters["tojson"] = _tojson
        self.filters["metered"] = _metered
        self.filters["sized"] = _sized
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "metered", [], [], None, None, lineno=loop.lineno)
        for joined in tree.find_all(nodes.Concat):
            joined.nodes = [
                nodes.Filter(part, "sized", [], [], None, None, lineno=joined.lineno)
                for part in joined.nodes
            ]
        tree.set_environment(self)
        return tree

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        """Refuse a forbidden attribute at once; Jinja would let its name pass as empty text."""
        raise SecurityError(f"attribute {attribute!r} of a {type(obj).__name__} is not allowed")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic whose result cannot outgrow `MAX_SIZE`."""
        _sized(left)
        _sized(right)
        if operator == "*":
            for count, value in ((left, right), (right, left)):
                if isinstance(count, int) and isinstance(value, str | list | tuple):
                    _within(count * len(value))
        if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
            if bits > MAX_BITS:
                raise SecurityError(f"it made a number of more than {MAX_BITS:,} bits")
        return super().call_binop(context, operator, left, right)


@jinja2.pass_context
def _metered(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    budget: _Budget = context[BUDGET]
    for value in values:
        budget.spend()
        yield value


def _sized(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        _within(len(value))
    return value


def _within(size: int) -> None:
    if size > MAX_SIZE:
        raise SecurityError(f"it made a value of more than {MAX_SIZE:,} characters or items")


def _bounded(pieces: Iterable[str]) -> str:
    kept, size = [], 0
    for piece in pieces:
        size += len(piece)
        _within(size)
        kept.append(piece)
    return "".join(kept)


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
    raise _Refused(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


# --------------------------------------------------------------------------------- errors


def _template_line(trace: TracebackType | None) -> int | None:
    """The innermost line of the template in a traceback, which Jinja has mapped to its source."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _line(message: str) -> str:
    """A message as one line of readable length, whatever a template put in it."""
    joined = " ".join(message.split())
    return joined if len(joined) <= 500 else f"{joined[:499]}…"
