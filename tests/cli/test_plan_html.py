"""The plan as a page: the same facts as in the terminal, one file, nothing fetched."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from explained import GIB, LAYER, RIG, TENSOR, A, B, placement, plan

from local_tp.cli.plan_html import plan_html
from local_tp.cli.plan_svg import BAR, plan_svg
from local_tp.cli.plan_text import plan_text
from local_tp.cli.terminal import Look
from local_tp.core import Dimensions, ModelSpec, Plan
from local_tp.plan.explain import explain
from local_tp.traits import Traits

SPEC = ModelSpec(
    "tiny-Q4", "", "llama", Dimensions(30, 576, 9, 3, 64, 1536, 49152, 8192), Traits(), {}
)
VOID = {"meta", "br"}


class Checked(HTMLParser):
    """Every element is closed; collects what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.references += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(made: Plan, spec: ModelSpec = SPEC) -> str:
    return plan_html(spec, RIG, made, explain(RIG, made))


def words(html: str) -> str:
    body = re.sub(r"<(style|title)>.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.mark.parametrize(
    "made",
    [TENSOR, LAYER, plan(placement(0, A), split="single", copies=((B,),))],
    ids=["tensor", "layer", "copies"],
)
def test_one_whole_file_that_fetches_nothing(made: Plan) -> None:
    html = page(made)
    checked = Checked()
    checked.feed(html)
    assert checked.open == []
    assert checked.references == []
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


@pytest.mark.parametrize("made", [TENSOR, LAYER], ids=["tensor", "layer"])
def test_the_page_has_the_facts_of_the_terminal(made: Plan) -> None:
    shown = words(page(made))
    said = plan_text(SPEC, RIG, made, explain(RIG, made), Look(width=110))
    numbers = re.findall(r"\d[\d,.]*\d|\d", said)
    assert len(numbers) > 60
    missing = {number for number in numbers if number not in shown}
    assert missing == set()
    for line in (*made.notes, *made.changes):
        assert line.replace(A, "cuda:0").replace(B, "cuda:1") in shown


def test_the_picture_shows_every_byte_of_a_device() -> None:
    picture = ElementTree.fromstring(plan_svg(TENSOR, explain(RIG, TENSOR)))
    space = "{http://www.w3.org/2000/svg}"
    bars = [r for r in picture.iter(f"{space}rect") if "tp-" in r.get("class", "")]
    widths: dict[str, float] = {}
    for bar in bars:
        y = bar.get("y", "")
        widths[y] = widths.get(y, 0.0) + float(bar.get("width", "0"))
    first, second, beside = widths.values()
    assert first == pytest.approx(BAR, abs=0.5)
    assert second == pytest.approx(BAR * 12 / 24, abs=0.5)
    assert beside == pytest.approx(BAR, abs=0.5)
    titles = [title.text for title in picture.iter(f"{space}title")]
    assert f"weights: {2000 / 1024:.2f} GiB" in titles
    assert f"kept free: {GIB / GIB:.2f} GiB" in titles


def test_stages_are_frames_with_arrows_between() -> None:
    svg = plan_svg(LAYER, explain(RIG, LAYER))
    assert svg.count('class="frame"') == 2
    assert svg.count('class="arrow"') == 1
    assert "stage 1: layers 20 to 29" in svg
    assert "hand-over by the PC&#x27;s memory" in svg


def test_foreign_words_are_escaped() -> None:
    bad = "<img src=x onerror=alert(1)>"
    made = replace(TENSOR, model=bad, notes=(bad,), changes=(bad,), doubts=(bad,))
    html = page(made)
    assert "<img" not in html
    assert html.count("&lt;img") == 5, "the title, the model's line, and three lists"


def test_what_is_not_known_is_not_there() -> None:
    bare = plan(placement(0, A), prediction=None, notes=(), doubts=(), changes=(), alternatives=())
    html = page(bare)
    assert "<h2>Predicted" not in html
    assert "<h2>Why" not in html
    assert "None" not in html
