"""The plan card by its text: numbers, escapes, every rank."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_engine import MIB, FakeMeasured, FakeWorker, placement, plan

from local_tp.core import Span
from ui.plan_card import plan_card, size, span


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_rank_is_there_and_many_start_folded(count: int) -> None:
    html = plan_card(plan(*(placement(r) for r in range(count))), {}, ())
    assert re.findall(r"<b>Worker (\d)</b>", html) == [str(r) for r in range(count)]
    assert html.count(" open>") == (count if count <= 3 else 0)


def test_predicted_and_measured_stand_side_by_side() -> None:
    measured = {1: FakeMeasured(41 * MIB + MIB // 2, 300 * MIB, 1.25)}
    words = text(plan_card(plan(placement(0), placement(1)), measured, ()))
    assert "Weights 40.0 MiB – KV cache 20.0 MiB – Workspace 10.0 MiB – Total 70.0 MiB –" in words
    assert "Weights 41.0 MiB 41.5 MiB KV cache 20.0 MiB – Workspace 10.0 MiB –" in words
    assert words.endswith("Total 71.0 MiB –")
    assert "loading added 300 MiB in 1.2 s" in words


def test_what_a_rank_holds() -> None:
    words = text(plan_card(plan(placement(0), placement(1)), {}, ()))
    assert "Layers all 30 Query heads 3 to 5 of 6 KV heads 1 of 2" in words
    assert "FFN columns 512 to 1,023 of 1,024 Vocabulary 1,024 to 2,047 of 2,048" in words


def test_bars_are_shares_of_the_largest_rank() -> None:
    small = replace(placement(1), weights=35 * MIB, kv=0, workspace=0)
    html = plan_card(plan(placement(0), small), {}, ())
    widths = re.findall(r'<i class="tp-(\w+)" style="width:([\d.]+)%">', html)
    assert widths == [
        ("weights", "57.14"),
        ("kv", "28.57"),
        ("workspace", "14.29"),
        ("weights", "50.00"),
        ("kv", "0.00"),
        ("workspace", "0.00"),
    ]


def test_the_whole_plan_in_words() -> None:
    made = plan(placement(0), placement(1), notes=("chosen: 58 against 41",), bound="memory")
    words = text(plan_card(made, {}, ()))
    assert "Split within layers, 2 workers Transport shared memory Context 100 tokens" in words
    assert "Predicted 58.3 tokens/s writing Limited by memory" in words
    assert "Why this plan chosen: 58 against 41" in words
    assert "stage" not in words


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("operation launches", "many small operations"),
        ("exchange between ranks", "exchange between workers"),
        ("memory bandwidth", "memory bandwidth"),
    ],
)
def test_the_limit_in_words_for_people(bound: str, words: str) -> None:
    shown = text(plan_card(plan(placement(0), bound=bound), {}, ()))
    assert f"Limited by {words} weights" in shown


def test_stages_are_named_where_there_are_several() -> None:
    made = plan(placement(0), placement(1, stage=1), split="layer")
    assert "Worker 1 cpu · stage 1" in text(plan_card(made, {}, ()))


def test_foreign_words_are_escaped() -> None:
    bad = "<img src=x onerror=alert(1)>"
    made = plan(placement(0, device=bad), notes=(bad,), bound=bad)
    html = plan_card(made, {}, ())
    assert "<img" not in html
    assert html.count("&lt;img src=x") == 3


def test_workers_are_alive_or_not() -> None:
    workers = (FakeWorker(0, "cpu", 41, True), FakeWorker(1, "cpu", 42, False))
    html = plan_card(plan(placement(0), placement(1)), {}, workers)
    assert 'tp-good" role="img" aria-label="alive, process 41"' in html
    assert 'tp-bad" role="img" aria-label="not alive, process 42"' in html


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1.00 KiB"),
        (1023 * 1024, "1.00 MiB"),
        (15 * MIB, "15.0 MiB"),
        (120 * MIB, "120 MiB"),
        (12 * 1024 * MIB, "12.0 GiB"),
        (2048 * 1024 * MIB, "2,048 GiB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words


def test_spans() -> None:
    assert span(Span(0, 0), 9) == "none"
    assert span(Span(0, 9), 9) == "all 9"
    assert span(Span(4, 5), 9) == "4 of 9"
    assert span(Span(3, 6), 9) == "3 to 5 of 9"
