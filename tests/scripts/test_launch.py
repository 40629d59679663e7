"""The launcher's command line, the wrappers around it, and what it hands over to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import launch
import pytest
from launcher.environment import Environment
from launcher_fakes import fill, put

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="runs a shell or makes links")


def test_own_flags_are_taken_out_and_the_rest_keeps_its_order() -> None:
    flags = ["--no-browser", "--port", "0", "--model", "x.gguf"]
    assert launch.parse(flags) == (False, (), tuple(flags))
    assert launch.parse(["--setup-only", "--extras", "test", "--extras=bench"]) == (
        True,
        ("test", "bench"),
        (),
    )


@pytest.mark.parametrize("arguments", [["--extras"], ["--extras="], ["--setup-only", "--port"]])
def test_flags_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    assert launch.main(arguments) == 2


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["--no-browser"], True),
        (["--model", "x"], False),
        (["--model=x"], False),
        (["--help"], False),
        (["--models-folder", "x"], True),
    ],
)
def test_the_starter_is_fetched_only_when_no_model_is_named(flags: list[str], wanted: bool) -> None:
    assert launch.wants_starter(flags) is wanted


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_a_python_that_fits(version: tuple[int, int]) -> None:
    assert launch.version_problem(version) is None


@pytest.mark.parametrize("version", [(2, 7), (3, 10), (3, 15), (4, 0)])
def test_a_python_that_does_not_fit_is_named(version: tuple[int, int]) -> None:
    problem = launch.version_problem(version)
    assert problem is not None
    assert f"{version[0]}.{version[1]}" in problem
    assert "3.11" in problem


# ------------------------------------------------------------------------------ the shell around


@posix
def test_the_wrappers_are_written_for_their_systems() -> None:
    batch = (ROOT / "start.bat").read_bytes()
    assert batch.count(b"\n") == batch.count(b"\r\n") > 10
    assert b"pause" in batch
    for name in ("start.sh", "test.sh", ".ci/run"):
        content = (ROOT / name).read_bytes()
        assert content.startswith(b"#!/bin/sh\n")
        assert b"\r" not in content
        assert os.access(ROOT / name, os.X_OK)


@posix
def test_start_says_what_to_do_where_there_is_no_python(tmp_path: Path) -> None:
    for tool in ("dirname", "uname"):
        place_of = shutil.which(tool)
        assert place_of is not None
        (tmp_path / tool).symlink_to(place_of)
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "start.sh")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("start: local_tp needs Python 3.11 to 3.14")
    assert "python.org" in done.stderr


def checkout_with_app(checkout: Environment, app: str) -> Environment:
    """A checkout that is ready, whose Python is the one that runs the tests."""
    fill(checkout)
    checkout.python.unlink()
    checkout.python.symlink_to(sys.executable)
    put(checkout.root, "app.py", app)
    return checkout


@posix
def test_app_gets_its_flags_and_its_exit_code_comes_back(checkout: Environment) -> None:
    ready = checkout_with_app(checkout, "import sys; print(*sys.argv[1:]); sys.exit(7)")
    code = (
        "import sys; from pathlib import Path; import launch\n"
        "from launcher.environment import Environment\n"
        "launch.run_app(Environment(Path(sys.argv[1])), sys.argv[2:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ready.root), "--no-browser", "--title", "a b"],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("--no-browser --title a b\n", 7)


@posix
def test_a_starter_that_cannot_be_fetched_is_a_set_up_problem(
    checkout: Environment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = checkout_with_app(checkout, "")
    package = checkout.root / "elsewhere"
    put(package, "local_tp/__main__.py", "import sys; sys.exit(int(sys.argv[1] != 'models'))")
    monkeypatch.setenv("PYTHONPATH", str(package))
    assert launch.fetch_starter(ready) == 0
    put(package, "local_tp/__main__.py", "import sys; sys.exit(1)")
    assert launch.fetch_starter(ready) == 2
    assert "--model" in capsys.readouterr().err
    put(package, "local_tp/__main__.py", "import sys; sys.exit(130)")
    assert launch.fetch_starter(ready) == 130
