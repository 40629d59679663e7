"""What an output can show: width, colours, characters."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from local_tp.cli import terminal as terminal_module
from local_tp.cli.terminal import NARROWEST, WIDEST, Look, items, look, table, wrapped


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    # Not sys.stdout itself, which pytest sets anew between a fixture and its test.
    monkeypatch.setattr(terminal_module, "sys", SimpleNamespace(stdout=Terminal()))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


def test_a_terminal_has_its_width_and_colours(terminal: pytest.MonkeyPatch) -> None:
    assert look() == Look(width=90, colours=True, unicode=True)


@pytest.mark.parametrize(("columns", "width"), [("20", NARROWEST), ("300", WIDEST), ("80", 80)])
def test_the_width_has_limits(terminal: pytest.MonkeyPatch, columns: str, width: int) -> None:
    terminal.setenv("COLUMNS", columns)
    assert look().width == width


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(terminal: pytest.MonkeyPatch, name: str, value: str) -> None:
    terminal.setenv(name, value)
    assert not look().colours


def test_windows_own_old_terminal_has_none(terminal: pytest.MonkeyPatch) -> None:
    terminal.setattr(sys, "platform", "win32")
    terminal.delenv("WT_SESSION", raising=False)
    assert not look().colours
    terminal.setenv("WT_SESSION", "x")
    assert look().colours


def test_a_pipe_gets_neither_colours_nor_what_it_cannot_encode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert (look().colours, look().unicode) == (False, False)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    assert not look().unicode
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="UTF-8"))
    assert look().unicode


def test_text_on_lines_that_fit() -> None:
    narrow = Look(width=20)
    assert wrapped("one two three four five", narrow, "> ", "  ") == [
        "> one two three four",
        "  five",
    ]
    assert items(["a list entry of some length"], narrow) == [
        "  - a list entry of",
        "    some length",
    ]


def test_a_table_lines_up_and_cuts_its_first_column_where_it_must() -> None:
    rows = [("name", "MiB"), ("a", "1,000"), ("longer", "2")]
    assert table(rows, Look()) == ["  name      MiB", "  a       1,000", "  longer      2"]
    wide = [("a name that is far too long for it", "1"), ("b", "2")]
    assert max(map(len, table(wide, Look(width=20)))) <= 20


def test_control_characters_go_and_ascii_stays_readable() -> None:
    assert Look().plain("a\x1b[2Jb\nc") == "a [2Jb c"
    assert Look(unicode=False).plain("20 µs – 5 × 3 … é") == "20 us - 5 x 3 ... ?"
