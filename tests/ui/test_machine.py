"""The machine's page: a process that reports, its progress, its end, and what is drawn of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest
from fake_engine import FakeEngine
from gradio_client import Client
from test_page import client, served

from local_tp.core import Device, Rig
from local_tp.facts import Finding
from local_tp.hardware.report.json import report_json
from local_tp.hardware.report.report import Report
from ui.machine import STYLE, Examination, View, status

GIB = 1024**3


def a_report() -> Report:
    card = Device("0000:01:00.0", "cuda", "NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB)
    finding = Finding("narrow-link", "warning", (card.id,), "x1 <here>", "much", "Move it.")
    return Report(Rig((card,)), (finding,))


def says(program: str, tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "report.json").write_text(report_json(a_report()), encoding="utf-8")
    whole = f"import pathlib, sys, time\nhere = pathlib.Path({str(tmp_path)!r})\n{program}"
    return sys.executable, "-c", whole


REPORTS = """
for line in ("measuring one", "measuring two"):
    print(line, file=sys.stderr, flush=True)
print((here / "report.json").read_text())
"""
WAITS = """
print("measuring", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_progress_line_by_line_and_then_the_report(tmp_path: Path) -> None:
    mine = Examination()
    views = list(mine.run(says(REPORTS, tmp_path)))
    assert [(view.phase, view.lines) for view in views] == [
        ("running", ()),
        ("running", ("measuring one",)),
        ("running", ("measuring one", "measuring two")),
        ("ended", ("measuring one", "measuring two")),
    ]
    assert views[-1].report == a_report()
    assert mine.shown


def test_a_long_report_does_not_block(tmp_path: Path) -> None:
    program = "print(' ' * 1_000_000)\n" + REPORTS
    assert list(Examination().run(says(program, tmp_path)))[-1].report == a_report()


DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"


@pytest.mark.parametrize("program", [WAITS, DEAF + WAITS], ids=["plain", "deaf to Ctrl+C"])
def test_stop_ends_the_process(program: str, tmp_path: Path) -> None:
    mine = Examination()
    views = mine.run(says(program, tmp_path))
    assert next(views).phase == "running"
    assert next(views).lines == ("measuring",)
    (child,) = children()
    assert mine.busy
    started = time.monotonic()
    mine.stop()
    rest = list(views)
    assert rest[-1].phase == "stopped"
    assert time.monotonic() - started < 5
    assert not child.is_running()
    assert not mine.busy
    assert not mine.shown


def test_leaving_early_ends_the_process(tmp_path: Path) -> None:
    views = Examination().run(says(WAITS, tmp_path))
    next(views)
    assert len(children()) == 1
    views.close()  # type: ignore[attr-defined]
    assert children() == []


@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("print('local-tp: no', file=sys.stderr); sys.exit(2)", "local-tp: no"),
        ("print('no report')", "the machine's report cannot be read"),
        ("print('{\"rig\": 1}')", "rig: expected an object"),
    ],
)
def test_what_fails_says_why(program: str, last: str, tmp_path: Path) -> None:
    view = list(Examination().run(says(program, tmp_path)))[-1]
    assert (view.phase, view.report) == ("failed", None)
    assert view.lines[-1].endswith(last)
    assert 'role="alert"' in status(view)


def test_a_new_run_ends_the_one_before(tmp_path: Path) -> None:
    mine = Examination()
    before = mine.run(says(WAITS, tmp_path))
    next(before)
    assert list(mine.run(says(REPORTS, tmp_path)))[-1].phase == "ended"
    assert [view.phase for view in before] == ["stopped"]
    assert children() == []


def test_progress_is_text() -> None:
    lines = tuple(f"<{i}>" for i in range(20))
    shown = status(View("running", lines))
    assert "&lt;19&gt;" in shown
    assert "<19>" not in shown
    assert "&lt;11&gt;" not in shown
    assert "Looking at the machine" in status(View("running", ()))
    assert status(View("ended", lines)) == ""


def test_this_machine_over_http(tmp_path: Path) -> None:
    with served(FakeEngine()) as address:
        tab: Client = client(address, tmp_path)
        said, report, markdown = tab.predict(api_name="/machine")
    assert said == ""
    assert '<div class="tp-report">' in report
    assert "<svg" in report
    assert markdown.startswith("### Hardware report: ")


def test_the_look_says_nothing_of_other_pages() -> None:
    """Gradio repeats each rule within its own container, where a list in `:is()` breaks."""
    machine = STYLE[STYLE.index("body:not") :]
    assert ":is(" not in machine
    assert "url(" not in STYLE


def children() -> list[psutil.Process]:
    return [c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE]
