"""Chat messages to a prompt, by the template that came with the model.

Knows nothing of tokens beyond their spelling. A template is a stranger's program: it runs in a
sandbox, with a budget, and whatever goes wrong in it is one `TemplateError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import jinja2
from jinja2 import nodes

from local_tp.engine.sandbox import Refused, Sandbox
from local_tp.engine.sandbox_budget import BUDGET, MAX_SIZE, Budget
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import TemplateError

LONGEST = 1 << 16  # characters of a template; to translate them takes most of a second

Message = Mapping[str, Any]

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


class ChatTemplate:
    """A model's chat templates. Safe to share between threads.

    `named` are further ones by what they are for: `tool_use` is taken for messages with tools, and
    `rag` for those with documents. `fault` says in one line why there can be no chat (no template,
    broken syntax), or is None; a model with a fault still serves plain completions.
    """

    def __init__(
        self,
        source: str | None,
        bos_text: str = "",
        eos_text: str = "",
        named: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._tokens = {"bos_token": bos_text, "eos_token": eos_text}
        self._named = {name: text for name, text in named if name in ("tool_use", "rag")}
        self._default = _Compiled(source)
        self._special: dict[str, _Compiled] = {}

    @property
    def fault(self) -> str | None:
        return self._default.fault

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for `messages`, ready for `encode_chat`.

        `variables` are whatever the template knows, such as `enable_thinking`. Raises
        `TemplateError` with the template's line if the template is absent, broken, refuses these
        messages, or exceeds its budget.
        """
        chosen = self._chosen("tool_use" if tools else "rag" if documents else "default")
        if chosen.template is None:
            raise TemplateError(chosen.fault)
        values = {
            **self._tokens,
            **variables,
            "messages": [_plain(message, chosen.wants_parts) for message in messages],
            "tools": list(tools) if tools else None,
            "documents": list(documents) if documents else None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            values[BUDGET] = Budget(values)
            return _bounded(chosen.template.generate(values))
        except Refused as error:
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

    def _chosen(self, purpose: str) -> _Compiled:
        if purpose not in self._named:
            return self._default
        if purpose not in self._special:
            self._special[purpose] = _Compiled(self._named[purpose])
        return self._special[purpose]


class _Compiled:
    """One template, or why there is none."""

    def __init__(self, source: str | None) -> None:
        self.template: jinja2.Template | None = None
        self.wants_parts = False
        self.fault: str | None = None
        if not source:
            self.fault = (
                "this model has no chat template: use /v1/completions or `local-tp complete`, or "
                "choose a model with a template"
            )
        elif len(source) > LONGEST:
            self.fault = _broken(f"it has {len(source):,} characters, {LONGEST:,} are the most")
        else:
            self._compile(source)

    def _compile(self, source: str) -> None:
        environment = Sandbox()
        try:
            self.wants_parts = _wants_parts(environment.parse(source))
            self.template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            self.fault = _broken(str(error.message), f" at line {error.lineno}")
        except (RecursionError, MemoryError):
            self.fault = _broken("it is nested too deeply")
        except (SyntaxError, ValueError, OverflowError) as error:  # Python refuses its translation
            self.fault = _broken(str(error))


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


# ------------------------------------------------------------------------ results, errors


def _template_line(trace: TracebackType | None) -> int | None:
    """The innermost line of the template in a traceback, which Jinja has mapped to its source."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _broken(why: str, where: str = "") -> str:
    return _line(
        f"the model's chat template is broken{where} ({why}): use /v1/completions, or choose "
        "another model"
    )


def _bounded(pieces: Iterable[str]) -> str:
    """The prompt, of at most `MAX_SIZE` characters."""
    kept, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_SIZE:
            raise TemplateError(
                f"the chat template wrote more than {MAX_SIZE:,} characters: send shorter messages"
            )
        kept.append(piece)
    return "".join(kept)


def _line(message: str) -> str:
    """A message as one line of readable length, whatever a template put in it."""
    joined = " ".join(message.split())
    return joined if len(joined) <= 500 else f"{joined[:499]}…"
