"""Templates against transformers' rendering of the same source; what strangers' ones may not do."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models

from local_tp.checkpoint.read import read
from local_tp.engine.template import ChatTemplate, encode_chat
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import TemplateError

HEADERS = """
{%- for message in messages %}
    {%- set content = '<|start|>' + message['role'] + '<|stop|>\\n\\n'+ message['content'] | trim %}
    {%- if loop.index0 == 0 %}
        {%- set content = bos_token + content %}
    {%- endif %}
    {{- content + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|stop|>\\n\\n' }}
{%- endif %}
"""
ALTERNATING = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate user/assistant,\\nstarting with user') }}
{% endif %}
{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]
{% elif message['role'] == 'assistant' %}{{ message.content }}{{ eos_token }}
{% else %}{{ raise_exception('only user and assistant') }}{% endif %}
{% endfor %}"""
TOOLS = """
{%- set ns = namespace(last=-1) %}
{%- for message in messages if message.role == 'user' %}{% set ns.last = loop.length %}{% endfor %}
{%- if tools %}
# Tools ({{ ns.last }} user turns)
{%- for tool in tools %}
{{ loop.index }}/{{ loop.length }} {{ tool | tojson(indent=2) }}{{ '' if loop.last else ',' }}
{%- endfor %}
{% endif %}
{%- for message in messages %}
{%- if message.role == 'system' %}{% continue %}{% endif %}
<{{ message.role }}>{% generation %}{{ message.content }}{% endgeneration %}
{%- for call in message.tool_calls or [] %}
{{ call.function.name }} {{ call.function.arguments | tojson }}
{%- endfor %}
{%- endfor %}
{% if enable_thinking is defined and not enable_thinking %}no thoughts{% endif %}
"""
CHAT = [
    {"role": "user", "content": "Wie heißt <du>? & \"quoted\" 'single' {{ x }}"},
    {"role": "assistant", "content": "Ich heiße 🤖.\n"},
    {"role": "user", "content": "  你好  "},
]
TOOL = {
    "type": "function",
    "function": {"name": "wetter", "description": "Größe <b>", "parameters": {"type": "object"}},
}
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def reference() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>"
    )


@pytest.fixture(scope="module")
def own_template(starter: Path) -> str:
    template = read(starter).text.chat_template
    assert template is not None
    return template


@pytest.mark.parametrize("prompt", [True, False])
def test_equals_transformers(reference: Any, own_template: str, prompt: bool) -> None:
    system = [{"role": "system", "content": "Sei kurz."}]
    for source, chats in (
        (own_template, [CHAT, system + CHAT, USER]),
        (HEADERS, [CHAT, system + CHAT, USER]),
        (ALTERNATING, [CHAT, USER]),
        (TOOLS, [CHAT, system + CHAT, USER]),
    ):
        template = ChatTemplate(source, "<s>", "</s>")
        for chat in chats:
            for options in ({}, {"tools": [TOOL, TOOL]}, {"enable_thinking": False}):
                expected = reference.apply_chat_template(
                    chat,
                    chat_template=source,
                    tokenize=False,
                    add_generation_prompt=prompt,
                    **options,
                )
                assert template.render(chat, add_generation_prompt=prompt, **options) == expected


def test_the_starter_writes_its_turns(own_template: str) -> None:
    rendered = ChatTemplate(own_template).render(USER)
    assert rendered.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert rendered.startswith("<|im_start|>system\n")


def test_tool_calls_are_written_as_json_once(reference: Any) -> None:
    def chat(arguments: Any) -> list[dict[str, Any]]:
        function = {"name": "wetter", "arguments": arguments}
        call = {"id": "1", "type": "function", "function": function}
        return [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}]

    expected = reference.apply_chat_template(
        chat({"ort": "Köln"}), chat_template=TOOLS, tokenize=False
    )
    template = ChatTemplate(TOOLS)
    assert template.render(chat('{"ort": "Köln"}'), add_generation_prompt=False) == expected
    assert template.render(chat({"ort": "Köln"}), add_generation_prompt=False) == expected
    with pytest.raises(TemplateError, match="tool call 'wetter' are not JSON"):
        template.render(chat("{ort"))


def test_content_in_parts_becomes_what_the_template_reads() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]}]
    strings = "{{ messages[0].content }}"
    either = (
        "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}"
        "{% for part in messages[0].content %}[{{ part.text }}]{% endfor %}{% endif %}"
    )
    walks = (
        "{% for m in messages %}{% for p in m['content'] %}[{{ p.text }}]{% endfor %}{% endfor %}"
    )
    assert ChatTemplate(strings).render(parts) == "a\nb"
    assert ChatTemplate(either).render(parts) == "a\nb"
    assert ChatTemplate(walks).render(parts) == "[a][b]"
    assert ChatTemplate(walks).render(USER) == "[hi]"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, "'image_url'"),
        ({"type": "text"}, "'text'"),
        ("loose", "'str'"),
    ],
)
def test_other_parts_are_refused_by_name(part: Any, named: str) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "look"}, part]}
    with pytest.raises(TemplateError, match=f"part of type {named}.*send text only"):
        ChatTemplate("{{ messages[0].content }}").render([message])


@pytest.mark.parametrize("source", [None, ""])
def test_without_a_template_the_way_out_is_named(source: str | None) -> None:
    template = ChatTemplate(source)
    assert template.fault is not None
    with pytest.raises(TemplateError, match=r"/v1/completions or `local-tp complete`.*a template"):
        template.render(USER)


def test_a_broken_template_is_known_at_once_and_fails_when_used() -> None:
    template = ChatTemplate("fine\n{% if messages %}\n{{ oh no }}")
    assert template.fault is not None
    with pytest.raises(TemplateError, match=r"broken at line 3 .*/v1/completions"):
        template.render(USER)
    assert ChatTemplate("fine").fault is None


def test_a_refusal_is_the_templates_own_words() -> None:
    template = ChatTemplate(ALTERNATING, "<s>", "</s>")
    with pytest.raises(TemplateError) as caught:
        template.render([{"role": "assistant", "content": "me first"}])
    assert str(caught.value) == (
        "the chat template refuses this: roles must alternate user/assistant, starting with user"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n\n{{ nothing() }}", "line 3 .*'nothing' is undefined"),
        ("a\n{{ messages[0].content.nothing.more }}", "line 2 .*no attribute 'nothing'"),
        ("{{ messages[7].role }}", "line 1 .*no element 7"),
        ("{{ messages[0].content + 1 }}", "line 1 .*concatenate"),
        ("{{ 1 / 0 }}", "line 1 .*division by zero"),
        ("{% for x in 5 %}{% endfor %}", "line 1 .*not iterable"),
        ("{% include 'other' %}", "line 1 .*no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}", "recursion"),
        ("\n{{ messages.__class__ }}", "line 2 .*'__class__' of a list is not allowed"),
        ("{{ ''.__class__.__mro__ }}", "'__class__' of a str is not allowed"),
        ("{{ ''|attr('__class__') }}", "'__class__' of a str is not allowed"),
        ("{{ '{0.__class__}'.format(messages) }}", "'__class__' of a list is not allowed"),
        ("{{ cycler.__init__.__globals__ }}", "'__init__' of a type is not allowed"),
        ("{{ raise_exception.__globals__ }}", "'__globals__' of a function is not allowed"),
        ("{% set x = messages.append(1) %}", "'append' of a list is not allowed"),
        ("{{ lipsum(100) }}", "'lipsum' is undefined"),
    ],
)
def test_what_fails_is_named_with_its_line(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        ChatTemplate(source).render(USER)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


DOUBLING = "{% set n = namespace(s='xx') %}{% for i in range(99) %}{% set n.s = BODY %}{% endfor %}"
LOOPS = "{% for i in range(9999) %}{% for j in range(9999) %}BODY{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        (LOOPS.replace("BODY", ""), "ran (more than 200,000 times|for more than 0.3 seconds)"),
        (LOOPS.replace("BODY", "x" * 1000), "more than 16,777,216 characters"),
        ("{{ 'x' * 10 ** 9 }}", "more than 16,777,216 characters"),
        ("{{ (10 ** 9) * messages }}", "more than 16,777,216 characters"),
        (DOUBLING.replace("BODY", "n.s ~ n.s"), "more than 16,777,216 characters"),
        (DOUBLING.replace("BODY", "n.s + n.s"), "more than 16,777,216 characters"),
        (DOUBLING.replace("'xx'", "3").replace("BODY", "n.s * n.s"), "more than 4,096 bits"),
        ("{{ 9 ** (9 ** 9) }}", "more than 4,096 bits"),
    ],
)
def test_endless_and_boundless_templates_are_stopped(source: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(TemplateError, match=message):
        ChatTemplate(source).render(USER)
    assert time.process_time() - began < 5


def test_json_is_not_escaped_for_html() -> None:
    value = {"a": "<é>", "b": [1, None]}
    source = "{{ x|tojson }}|{{ x|tojson(indent=2) }}|{{ x|tojson(separators=(',', ':')) }}"
    dense = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    plain, indented = (
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, ensure_ascii=False, indent=2),
    )
    assert ChatTemplate(source).render(USER, x=value) == f"{plain}|{indented}|{dense}"


def test_the_date_is_todays() -> None:
    before = time.strftime("%Y-%m-%d")
    rendered = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render(USER)
    assert rendered in (before, time.strftime("%Y-%m-%d"))


def test_bos_is_there_once(starter: Path) -> None:
    spec = read(starter).text
    adding, plain = (Tokenizer.from_spec(replace(spec, add_bos=add)) for add in (True, False))
    with_bos, without = adding.bos_text + "user", "user"
    assert encode_chat(adding, with_bos) == plain.encode(with_bos)
    assert encode_chat(adding, without) == [adding.bos, *plain.encode(without)]
    assert encode_chat(plain, without) == plain.encode(without)
    assert encode_chat(plain, with_bos) == plain.encode(with_bos)
    nameless = Tokenizer.from_spec(replace(spec, add_bos=True, bos=None))
    assert encode_chat(nameless, without) == plain.encode(without)
