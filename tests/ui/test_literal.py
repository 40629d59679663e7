"""Typed text as Markdown: nothing in it can end its fence, and it comes back exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.literal import MARK, literal, typed

MARKUP = st.text(st.sampled_from(f"~`*_<>&[]()!#|-+=$\\ \t\n\r{MARK}aé1."), max_size=60)


@given(st.text() | MARKUP)
def test_it_comes_back_exactly(text: str) -> None:
    assert typed(literal(text)) == text
    assert typed(literal(literal(text))) == literal(text)


@given(MARKUP)
def test_nothing_in_it_can_close_the_fence(text: str) -> None:
    shown = literal(text)
    if shown != text:
        fence, body = shown.split(f"{MARK}\n", 1)
        assert fence == "~" * len(fence)
        assert len(fence) >= 3
        assert fence not in body
        assert body == text


@pytest.mark.parametrize(
    "text",
    ["why?", 'Tell me a story: once, it\'s "late" (really).', "Größe 12 m!", "日本語", "a; b"],
)
def test_plain_words_stay_as_they_are(text: str) -> None:
    assert literal(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " a",
        "a ",
        "a  b",
        "a\n",
        "a\nb",
        "1. one",
        "a*b*",
        "a _b_",
        "a `b`",
        "<b>",
        "a <b>",
        "&amp;",
        "see www.example.org",
        "see http://192.0.2.1/",
        "me@example.org",
        "[a](b)",
        "$$x$$",
        "a\\b",
        "a\tb",
        "a | b",
        "a~b~",
    ],
)
def test_anything_else_is_fenced(text: str) -> None:
    assert literal(text).startswith("~~~")


def test_a_fence_of_somebody_else_is_text() -> None:
    assert typed("~~~\ncode\n~~~") == "~~~\ncode\n~~~"
