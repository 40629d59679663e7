"""The status lines by value."""

from __future__ import annotations

from fake_engine import FakeHealth, FakeWorker

from local_tp.engine.generation import Timings
from ui.status import health_line, status_line


def test_numbers_of_an_answer() -> None:
    html = status_line(Timings(300, 101, 0.5, 2.5), 1000, "stop")
    assert "<b>50.0 tokens/s</b>" in html
    assert "<span>first token 0.50 s</span><span>300 in</span><span>101 out</span>" in html
    assert "context 401 of 1,000 (40%)" in html
    assert 'style="width:40.1%"' in html


def test_before_the_first_token() -> None:
    html = status_line(Timings(300, 0, None, 0.5), 1000, None)
    assert "<b>reading the prompt…</b></span><span>300 in</span><span>0 out</span>" in html


def test_why_it_ended() -> None:
    cut = Timings(10, 20, 0.1, 1.0)
    assert "cut at max tokens" in status_line(cut, 1000, "length")
    assert "the context is full" in status_line(cut, 30, "length")
    assert "stopped" in status_line(cut, 1000, "cancelled")
    assert "tp-high" in status_line(cut, 30, "length")


def test_health() -> None:
    workers = (FakeWorker(0, "cpu", 1, True), FakeWorker(1, "cpu", None, False))
    good = health_line(FakeHealth(True, "ready", "", workers[:1], running=2, waiting=1))
    assert "ready · 1 of 1 workers · 2 answering · 1 waiting" in good
    bad = health_line(FakeHealth(False, "restarting", "worker <1> died", workers))
    assert "restarting · 1 of 2 workers · worker &lt;1&gt; died" in bad
    assert "tp-bad" in bad
