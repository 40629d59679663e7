"""Templates that were made to do harm: one error in a moment, with little memory; and that what
real templates do is not in the way.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from local_tp.engine.sandbox_budget import MAX_SECONDS, MAX_SIZE, Budget
from local_tp.engine.template import LONGEST, ChatTemplate
from local_tp.errors import TemplateError

resource = pytest.importorskip("resource")

USER = [{"role": "user", "content": "hi"}]
BIG = "{% set big = 'x' * 10000000 %}"
LIST = "{% set n = namespace(l=[1]) %}"

AMPLIFIED = {
    "center": "{{ 'x'.center(10 ** 10) }}",
    "ljust": "{{ 'x'.ljust(20000000) }}",
    "zfill": "{{ 'x'.zfill(20000000) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent with a star": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '{:>1000000000}'.format(1) }}",
    "format of a width": "{{ '{:>{w}}'.format(1, w=1000000000) }}",
    "format again and again": BIG + "{{ ('{0}' * 100).format(big) }}",
    "the filter": "{{ '%1000000000d'|format(1) }}",
    "replace": BIG + "{{ big.replace('x', big) }}",
    "replace nothing": BIG + "{{ big.replace('', 'xxxx') }}",
    "filter replace": BIG + "{{ big|replace('x', 'xxxxxxxx') }}",
    "join": BIG + "{{ ([big] * 100)|join }}",
    "join by": BIG + "{{ big.join('abcdefgh') }}",
    "indent": "{{ ('\n' * 100000)|indent(100000) }}",
    "indent by text": BIG + "{{ 'a\nb\nc\nd\n'|indent(big) }}",
    "json": "{{ [[[1]]]|tojson(indent=100000000) }}",
    "joined": BIG + "{{ (big ~ big ~ big)|length }}",
    "multiplied": "{{ ([[1] * 1000] * 1000000)|length }}",
    "summed": "{{ ([[1] * 1000] * 10000)|sum(start=[]) }}",
    "batch": "{{ [1]|batch(1000000000, 0)|list }}",
    "slice": "{{ [1]|slice(1000000000)|list }}",
    "digits": "{{ 1.5|round(1000000000) }}",
    "collected": LIST
    + BIG
    + "{% for i in range(99999) %}{% set n.l = [n.l, big[1:]] %}{% endfor %}",
    "block": BIG + "{% set y %}{% for i in range(9999) %}{{ big }}{% endfor %}{% endset %}",
    "text": "{% set y %}{% for i in range(99999) %}" + "x" * 60_000 + "{% endfor %}{% endset %}",
    "again": "{% for x in [1] recursive %}"
    + "x" * 60_000
    + "{% if loop.depth < 4 %}{{ loop(range(9999)) }}{% endif %}{% endfor %}",
    "date": "{{ strftime_now('%A' * 1000000) }}",
}
ENDLESS = {
    "macro": "{% macro f(n) %}{% if n %}{{ f(n-1) ~ f(n-1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "block": "{% block a %}{% if x is undefined %}{{ self.a() }}{% endif %}{% endblock %}",
    "caller": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call f() %}" * 20
    + "x"
    + "{% endcall %}" * 20,
    "recursive": "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "map": BIG + "{{ range(99999)|map('string')|map('replace', '', big)|list|length }}",
    "upper": BIG + "{{ ([big] * 1000)|map('upper')|map('length')|sum }}",
    "select": BIG + "{{ range(99999)|map('string')|select('in', big)|list }}",
    "tests": "{% for i in range(99999) %}{{ range(99999)|select('odd')|list|length }}{% endfor %}",
    "shared": LIST + "{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
    "shared, compared": LIST + "{% set m = namespace(l=[1]) %}{% for i in range(99) %}"
    "{% set n.l = (n.l, n.l) %}{% set m.l = (m.l, m.l) %}{% endfor %}{{ n.l == m.l }}",
    "shared by a macro": LIST + "{% macro f() %}{% set n.l = varargs %}{% endmacro %}"
    "{% for i in range(99) %}{{ f(n.l, n.l) }}{% endfor %}{{ n.l|string|length }}",
    "shared by names": "{% set n = namespace() %}{% set n.a = n %}{% set n.b = n %}{{ n }}",
    "shared by keys": LIST
    + "{% for i in range(99) %}{% set n.l = dict(a=n.l, b=n.l) %}{% endfor %}"
    "{{ n.l|tojson }}",
}
REACHING = {
    "class": "{{ ''.__class__ }}",
    "class by item": "{{ ''['__class__'] }}",
    "class by filter": "{{ ''|attr('__class__') }}",
    "class by map": "{{ ['']|map(attribute='__class__')|list }}",
    "class by format": "{{ '{0.__class__}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "environment": "{{ self.__init__ }}",
    "function": "{{ strftime_now.__code__ }}",
    "generator": "{{ ([1]|map('string')).gi_frame }}",
    "undefined": "{{ nothing.__class__ }}",
    "mro": "{{ dict.mro() }}",
    "fromkeys": "{{ dict.fromkeys(range(9)) }}",
    "encode": "{{ 'x'.encode() }}",
    "translate": "{{ 'x'.translate({120: 'y'}) }}",
    "expandtabs": "{{ '\t'.expandtabs(9) }}",
    "to_bytes": "{{ (1).to_bytes(9) }}",
    "append": "{{ messages.append(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends 'x' %}",
}
BROKEN = {
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "conditions": "{% if 1 %}" * 120 + "{% endif %}" * 120,
    "number": "{{ " + "9" * 5000 + " }}",
    "length": "x" * (LONGEST + 1),
    "lists": "{{ " + "[" * 400 + "]" * 400 + " }}",
    "filter": "{{ 1|nothing }}",
    "unclosed": "{% for x in y %}",
}


def peak() -> int:
    """The most memory this process has had, in bytes."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


@pytest.mark.parametrize(
    "source", (AMPLIFIED | ENDLESS | REACHING).values(), ids=(AMPLIFIED | ENDLESS | REACHING).keys()
)
def test_a_harmful_template_is_one_error(source: str) -> None:
    before = peak()
    template = ChatTemplate(source)
    assert template.fault is None or "No filter" in template.fault
    with pytest.raises(TemplateError) as caught:
        template.render(USER)
    assert "\n" not in str(caught.value)
    assert "out of memory" not in str(caught.value)
    assert peak() - before < 512 * 1024 * 1024


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_a_template_that_cannot_be_translated_is_a_fault(source: str) -> None:
    template = ChatTemplate(source)
    assert template.fault is not None
    assert "chat template is broken" in template.fault
    with pytest.raises(TemplateError, match="is broken"):
        template.render(USER)


def test_a_budget_grows_with_what_is_given() -> None:
    """So that a long conversation is not taken for a trap."""
    turns = [{"role": "user", "content": "word " * 20}] * 20_000
    source = (
        "{% set n = namespace(t='') %}{% for m in messages %}{% set n.t = m.role ~ ':' %}"
        "{{ n.t ~ (m.content|trim) }}{% for i in range(20) %}{% endfor %}{% endfor %}"
    )
    rendered = ChatTemplate(source).render(turns)
    assert rendered == ("user:" + ("word " * 20).strip()) * 20_000


def test_sizes_are_of_all_that_a_value_holds() -> None:
    budget = Budget()
    inner = ["abc"] * 10
    assert budget.size("abc") == 3
    assert budget.size(inner) == 10 * (16 + 3)
    assert budget.size([inner, inner]) == 2 * (16 + budget.size(inner))
    assert budget.size({"ab": inner}) == (16 + 2) + (16 + budget.size(inner))
    assert budget.size(3**100) > budget.size(3)
    with pytest.raises(Exception, match="16,777,216"):
        budget.made("x" * (MAX_SIZE + 1))
    assert MAX_SECONDS < 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a' ~ 1 ~ none ~ [1, 'b'] }}", "a1None[1, 'b']"),
        ("{{ 'a' ~ nothing }}|{{ nothing }}", "a|"),
        ("{{ '%05.1f|%s' % (2.25, 'x') }}", "002.2|x"),
        ("{{ '{:>5}|{a}'.format(1, a='b') }}", "    1|b"),
        ("{{ '%s-%s'|format('a', 1) }}", "a-1"),
        ("{{ ['a', 'b']|join(', ') }}{{ '-'.join(['c', 'd']) }}", "a, bc-d"),
        ("{{ messages|map(attribute='role')|join(',', attribute=none) }}", "user"),
        ("{{ messages|join('|', attribute='content') }}", "hi"),
        ("{{ 'aXbX'.replace('X', '-') }}{{ 'aXbX'|replace('X', '-', 1) }}", "a-b-a-bX"),
        ("{{ 'a\nb'|indent(2) }}|{{ 'a\nb'|indent('> ', first=true) }}", "a\n  b|> a\n> b"),
        ("{{ [1, 2, 3]|sum }} {{ [{'a': 2}]|sum(attribute='a') }}", "6 2"),
        ("{% for row in [1, 2, 3]|batch(2, 0) %}{{ row }}{% endfor %}", "[1, 2][3, 0]"),
        ("{{ (1, 2)[0] }}{{ 'abc'[::-1] }}{{ messages[1:]|length }}", "1cba0"),
        ("{{ {'b': 1, 'a': 2}|dictsort }}", "[('a', 2), ('b', 1)]"),
        ("{{ {'a': 1}.items()|list }}", "[('a', 1)]"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{{ 3.14159|round(2) }} {{ 7 // 2 }} {{ 2 ** 10 }} {{ 7 % 4 }}", "3.14 3 1024 3"),
        (
            "{% for x in [1, [2]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
            "12",
        ),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
         "{% if i > 4 %}{% break %}{% endif %}"
         "{{ loop.index }}{{ loop.cycle('a', 'b') }}{% endfor %}",
         "1a2b4b5a"),
        ("{% macro f(a, b='x') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
         "{{ f(1, 2, 3, c=4) }}",
         "12(3,){'c': 4}"),
        ("{% set n = namespace(a=1) %}{% macro f(m) %}{{ m.a }}{% endmacro %}{{ f(n) }}", "1"),
        ("{% filter upper %}a{% endfilter %}{% set x %}b{% endset %}{{ x }}", "Ab"),
        ("{{ messages[0].content is string and messages is sequence }}", "True"),
        ("{{ ['b', 'a']|sort|first }}{{ [1, 1]|unique|list }}{{ 'a,b'.split(',')|last }}", "a[1]b"),
        ("{{ [{'n': 1}, {'n': 1}]|groupby('n')|map('last')|map('length')|list }}", "[2]"),
        ("{{ messages|selectattr('role', 'equalto', 'user')|list|length }}", "1"),
        ("{{ 'x'|string|safe|escape }}{{ '<'|e }}", "x&lt;"),
    ],
)  # fmt: skip
def test_what_templates_do_works_as_in_jinja(source: str, expected: str) -> None:
    assert ChatTemplate(source).render(USER) == expected


# ------------------------------------------------------------------------ several templates

NAMED = (("rag", "R{{ documents|length }}"), ("tool_use", "T{{ tools|length }}"), ("other", "O"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "D"),
        ({"tools": [{"a": 1}]}, "T1"),
        ({"documents": [{"text": "a"}, {"text": "b"}]}, "R2"),
        ({"tools": [{"a": 1}], "documents": [{"text": "a"}]}, "T1"),
        ({"tools": [], "documents": []}, "D"),
    ],
)
def test_the_template_is_chosen_by_what_the_request_has(
    given: dict[str, Any], expected: str
) -> None:
    assert ChatTemplate("D", named=NAMED).render(USER, **given) == expected


def test_one_template_gets_all_that_was_given() -> None:
    source = "{{ tools }}{{ documents }}{{ enable_thinking }}{{ reasoning_effort }}"
    rendered = ChatTemplate(source).render(
        USER, tools=[1], documents=[2], enable_thinking=False, reasoning_effort="low"
    )  # type: ignore[list-item]
    assert rendered == "[1][2]Falselow"
    assert ChatTemplate("{{ tools is none }}{{ documents is none }}").render(USER) == "TrueTrue"


def test_a_broken_named_template_is_no_fault_of_the_default() -> None:
    template = ChatTemplate("D", named=[("tool_use", "{% x %}")])
    assert template.fault is None
    assert template.render(USER) == "D"
    with pytest.raises(TemplateError, match="broken at line 1"):
        template.render(USER, tools=[{"a": 1}])
