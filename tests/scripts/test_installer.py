"""pip's output as progress, and its failures as one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launcher import installer


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("Collecting torch==2.13.0", "looking for torch"),
        ("  Downloading torch-2.13.0-cp311-cp311-x.whl.metadata (30 kB)", "looking at torch"),
        ("  Downloading torch-2.13.0-cp311-cp311-x.whl (915.0 MB)", "downloading torch (915.0 MB)"),
        ("Processing /a/b/markdown_it_py-4.3.0-py3-none-any.whl", "reading markdown_it_py"),
        ("  Using cached idna-3.20-py3-none-any.whl (71 kB)", "reading idna"),
        ("Installing collected packages: a, b, c", "installing 3 packages"),
        ("Building editable for local-tp (pyproject.toml): started", "building local-tp"),
        ("Requirement already satisfied: idna in ./x", None),
    ],
)
def test_progress_is_read_from_pips_lines(line: str, doing: str | None) -> None:
    assert installer.activity(line) == doing


def test_bytes_received_are_read() -> None:
    assert installer.received("Progress 12000000 of 915000000\n") == "12 of 915 MB"
    assert installer.received("Progress 12000000 of 0\n") is None
    assert installer.received("Collecting torch\n") is None


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            [
                "WARNING: Retrying after connection broken by 'NewConnectionError(: Failed: "
                "[Errno 111] Connection refused')'",
                "ERROR: Cannot install torch==2.13.0 because of conflicting dependencies.",
                "ERROR: ResolutionImpossible: for help visit",
            ],
            ["registry cannot be reached", "check the network", "Connection refused"],
        ),
        (["ERROR: [Errno 28] No space left on device"], ["the disk is full", "10 GB"]),
        (
            ["ERROR: Could not find a version", "ERROR: No matching distribution found for x", ""],
            ["pip failed", "No matching distribution found for x"],
        ),
        (
            ["ERROR: Cannot install a and b", "ERROR: ResolutionImpossible: for help"],
            ["Cannot install a and b"],
        ),
        (["HINT: Windows Long Path support"], ["path is too long"]),
        ([], ["nothing at all"]),
    ],
)
def test_a_failure_is_one_line_with_the_cause_and_the_log(
    lines: list[str], words: list[str]
) -> None:
    said = installer.explain(lines, Path("/x/install.log"))
    assert "\n" not in said
    assert str(Path("/x/install.log")) in said
    for word in words:
        assert word in said


def test_a_command_is_logged_whole_and_its_code_returned(tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    code = "import sys; print('Progress 1 of 2'); print('one'); print('two', file=sys.stderr)"
    command = [sys.executable, "-c", f"{code}; sys.exit(3)"]
    result, lines = installer.run_logged(command, tmp_path, log)
    assert result == 3
    assert lines == ["one", "two"]
    assert log.read_text("utf-8").splitlines()[-2:] == ["one", "two"]


def test_progress_is_sparse_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress = installer.Progress(terminal=False, clock=lambda: now[0])
    progress.heard("Collecting torch==2.13.0")
    progress.draw()
    now[0] = 65.0
    progress.heard("  Downloading torch-2.13.0-cp311.whl (915.0 MB)")
    progress.heard("Progress 12000000 of 915000000")
    progress.draw()
    progress.draw()
    progress.close()
    out = capsys.readouterr().out
    assert out == "  downloading torch (915.0 MB), 12 of 915 MB, 1 min 05 s\n"


def test_progress_is_redrawn_and_taken_away_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = installer.Progress(terminal=True, clock=lambda: 0.0)
    progress.draw()
    progress.draw()
    progress.close()
    text = "  starting pip, 0 s"
    assert capsys.readouterr().out == f"\r{text}\r{' ' * len(text)}\r"
