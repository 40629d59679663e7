"""What can be typed: every command has its help, and whatever else is typed gets one line."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from local_tp.cli.main import build_parser, main

COMMANDS = {
    "probe": ["--json"],
    "plan": [
        "MODEL",
        "--model",
        "--devices",
        "--split",
        "--shares",
        "--context",
        "--reserve",
        "--format",
        "--kv-format",
        "--offload",
        "--objective",
        "--floor",
        "--placement",
        "--rig",
        "--quant",
        "--model-config",
        "--measure",
        "--json",
        "--html",
        "--save",
    ],
    "models": ["list", "pull", "inspect", "rm"],
    "models list": ["--json"],
    "models pull": ["OWNER/NAME[:QUANT]", "starter", "--json"],
    "models inspect": ["MODEL", "--json"],
    "models rm": ["MODEL", "--yes"],
    "chat": ["--prompt", "--system", "--temperature", "--seed", "--max-tokens", "--model"],
    "complete": ["--prompt", "--top-k", "--top-p", "--min-p", "--stop", "--model"],
    "serve": ["--host", "--port", "--browser", "--no-browser", "--streams"],
    "bench": ["--prompt-tokens", "--tokens", "--runs", "--json", "--threads"],
}


def leaves(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert leaves([*command.split(), "--help"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert f"usage: local-tp {command}" in said.out
    for word in COMMANDS[command]:
        assert word in said.out


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaves(["--help"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert {command.split()[0] for command in COMMANDS} <= listed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaves(["--version"]) == 0
    assert capsys.readouterr().out == f"local-tp {version('local-tp')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["talk"], "'talk'"),
        (["plan", "--devcies", "cpu"], "--devcies"),
        (["plan", "extra", "more"], "more"),
        (["chat", "extra"], "extra"),
        (["plan", "--split", "diagonal"], "'diagonal'"),
        (["plan", "--format", "int3"], "'int3'"),
        (["plan", "--kv-format", "int3"], "'int3'"),
        (["plan", "--objective", "best"], "'best'"),
        (["plan", "--offload", "disk"], "'disk'"),
        (["plan", "--floor", "fast"], "'fast'"),
        (["chat", "--rig", "rtx3090"], "--rig"),
        (["plan", "--context", "long"], "'long'"),
        (["plan", "--model"], "--model"),
        (["complete"], "--prompt"),
        (["models", "pull"], "OWNER/NAME"),
        (["models", "rm", "x", "--json"], "--json"),
        (["serve", "--port", "http"], "'http'"),
        (["bench", "--runs", "1.5"], "'1.5'"),
    ],
)
def test_what_cannot_be_read_gets_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leaves(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("local-tp")
    assert words in line
    assert "--help" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_alone_has_the_options_that_it_has_among_all(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is imported for one command is the module that has it."""
    first, *action = command.split()
    helps = []
    for parser in (build_parser(first), build_parser()):
        with pytest.raises(SystemExit):
            parser.parse_args([first, *action, "--help"])
        helps.append(capsys.readouterr().out)
    assert helps[0] == helps[1]
    other = "probe" if first != "probe" else "bench"
    with pytest.raises(SystemExit):
        build_parser(first).parse_args([other])
    assert f"invalid choice: '{other}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["models"], False),
        (["models", "list"], False),
        (["models", "--json"], True),
        (["models", "list", "--json"], True),
        (["models", "--json", "list"], True),
    ],
)
def test_json_counts_before_and_after_the_action(arguments: list[str], expected: bool) -> None:
    assert build_parser().parse_args(arguments).json is expected
