"""The plan card by its text: numbers, escapes, every rank."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_engine import MIB, FakeMeasured, FakeWorker, placement, plan

from local_tp.core import Span
from local_tp.prediction import Alternative, Memory, Prediction
from ui.plan_card import plan_card, size, span


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_rank_is_there_and_many_start_folded(count: int) -> None:
    html = plan_card(plan(*(placement(r) for r in range(count))), {}, ())
    assert re.findall(r"<b>Worker (\d)</b>", html) == [str(r) for r in range(count)]
    assert html.count(" open>") == (count if count <= 3 else 0)


TERMS = "Activations of a chunk 6.00 MiB – Logits 3.00 MiB – Buffers between ranks 1.00 MiB –"


def test_predicted_and_measured_stand_side_by_side() -> None:
    measured = {1: FakeMeasured(41 * MIB + MIB // 2, 300 * MIB, 1.25)}
    words = text(plan_card(plan(placement(0), placement(1)), measured, ()))
    assert f"Weights 40.0 MiB – Keys and values 20.0 MiB – {TERMS} Total 70.0 MiB –" in words
    assert f"Weights 41.0 MiB 41.5 MiB Keys and values 20.0 MiB – {TERMS} Total 71.0" in words
    assert words.endswith("Total 71.0 MiB –")
    assert "loading added 300 MiB in 1.2 s" in words


def test_what_lies_elsewhere_follows_the_total() -> None:
    memory = replace(placement(0).memory, host=9 * MIB, replicated=2 * MIB)
    words = text(plan_card(plan(replace(placement(0), memory=memory)), {}, ()))
    after = words.partition("Total 70.0 MiB – ")[2]
    assert after == (
        "Of the weights, held by other ranks too 2.00 MiB – In the PC&#x27;s memory 9.00 MiB –"
    )


def test_what_a_rank_holds() -> None:
    words = text(plan_card(plan(placement(0), placement(1)), {}, ()))
    assert "Layers all 30 Query heads 3 to 5 of 6 KV heads 1 of 2" in words
    assert "FFN columns 512 to 1,023 of 1,024 Vocabulary 1,024 to 2,047 of 2,048" in words


def test_bars_are_shares_of_the_largest_rank() -> None:
    small = replace(placement(1), memory=Memory(weights=35 * MIB))
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


def with_bound(bound: str) -> Prediction:
    return Prediction(912.0, 58.31, 0.5614, 160.0, bound)


def test_the_whole_plan_in_words() -> None:
    made = plan(
        placement(0),
        placement(1),
        notes=("chosen: 58 against 41",),
        alternatives=(
            Alternative("layer split", ("cpu",), "it is slower", with_bound("memory")),
            Alternative("one card", (), "it has no room"),
        ),
        changes=("with another card: faster",),
        doubts=("link a b: not measured",),
        prediction=with_bound("memory"),
    )
    words = text(plan_card(made, {}, ()))
    assert "Split within layers, 2 workers Transport shared memory Context 100 tokens" in words
    assert (
        "Predicted 58.3 tokens/s writing 912 tokens/s reading 0.56 s to the first token "
        "160.0 tokens/s of 4 at once Limited by memory" in words
    )
    assert "Why this plan chosen: 58 against 41 Other plans" in words
    assert "Other plans layer split (58.3 tokens/s): it is slower one card: it has no" in words
    assert "What would change this with another card: faster Not certain link a b" in words
    assert "stage" not in words


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("operation launches", "many small operations"),
        ("operation launches on cpu", "many small operations on cpu"),
        ("exchange between ranks", "exchange between workers"),
        ("memory bandwidth on cuda:0", "memory bandwidth on cuda:0"),
    ],
)
def test_the_limit_in_words_for_people(bound: str, words: str) -> None:
    shown = text(plan_card(plan(placement(0), prediction=with_bound(bound)), {}, ()))
    assert f"Limited by {words} weights" in shown


def test_without_a_prediction_nothing_is_predicted() -> None:
    words = text(plan_card(plan(placement(0), prediction=None), {}, ()))
    assert "Predicted" not in words
    assert "Limited" not in words


def test_every_replica_has_its_workers() -> None:
    made = plan(placement(0), copies=(("cuda:1",),))
    measured = {1: FakeMeasured(39 * MIB, 300 * MIB, 1.0)}
    words = text(plan_card(made, measured, (FakeWorker(1, "cuda:1", 42, False),)))
    assert "2 workers" in words
    assert "Replicas 2" in words
    first, second = words.split("Worker 1")
    assert "Worker 0 cpu" in first
    assert "39.0 MiB" not in first
    assert second.startswith(" cuda:1")
    assert "Weights 40.0 MiB 39.0 MiB" in second


def test_experts_and_streamed_layers_are_named_where_there_are_some() -> None:
    held = replace(placement(0), experts=Span(0, 8), streamed=Span(20, 30))
    words = text(plan_card(plan(held), {}, ()))
    assert "Experts all 8 Streamed layers 20 to 29 of 30" in words


def test_stages_are_named_where_there_are_several() -> None:
    made = plan(placement(0), placement(1, stage=1), split="layer")
    assert "Worker 1 cpu · stage 1" in text(plan_card(made, {}, ()))


def test_foreign_words_are_escaped() -> None:
    bad = "<img src=x onerror=alert(1)>"
    made = plan(placement(0, device=bad), notes=(bad,), prediction=with_bound(bad))
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
