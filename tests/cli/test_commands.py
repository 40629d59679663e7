"""Whole commands in this process: refusals with nothing started, answers without workers."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from talking_crew import TalkingCrew

from local_tp import codec
from local_tp.checkpoint.read import read
from local_tp.cli import session
from local_tp.cli.main import main
from local_tp.core import Plan
from local_tp.engine.generation import Generation
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import WorkerDied, WorkerFault
from local_tp.runtime.wire import Measured

Start = Callable[..., TalkingCrew]
Refuse = Callable[..., str]


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(session, "start_crews", start)


@pytest.fixture(scope="module")
def tokenizer(starter: Path) -> Tokenizer:
    return Tokenizer.from_spec(read(starter).text)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> Start:
    """Let commands run over a crew that says `text` and ends its turn."""

    def put(text: str, **changes: Any) -> TalkingCrew:
        end = min(tokenizer.stop_ids)
        crew = TalkingCrew([*tokenizer.encode(text, add_bos=False), end], **changes)
        monkeypatch.setattr(session, "start_crews", lambda *arguments: [crew])
        return crew

    return put


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Refuse:
    """The one line by which a command refuses what was asked for."""

    def run(*arguments: str | Path) -> str:
        assert main([str(argument) for argument in arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        line, *more = said.err.splitlines()
        assert line.startswith("local-tp: ")
        assert not more or (arguments[0] == "plan" and "MiB free" in line)
        return line

    return run


# ----------------------------------------------------------- refused before any worker starts


def test_model_files_that_cannot_be_used(refuse: Refuse, starter: Path, tmp_path: Path) -> None:
    assert "there is no model" in refuse("plan", "--model", tmp_path / "none.gguf")
    cut = tmp_path / "cut.gguf"
    with starter.open("rb") as whole:
        cut.write_bytes(whole.read(3_000_000))
    assert "cut.gguf" in refuse("complete", "--prompt", "x", "--model", cut)
    text = tmp_path / "notes.gguf"
    text.write_text("not a model at all, but long enough to have a header\n" * 20)
    assert "notes.gguf" in refuse("chat", "--prompt", "x", "--model", text)
    (tmp_path / "empty.gguf").touch()
    assert "empty.gguf" in refuse("bench", "--model", tmp_path / "empty.gguf")
    (tmp_path / "folder").mkdir()
    assert "folder" in refuse("plan", "--model", tmp_path / "folder")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("plan --devices cpu,tpu", "there is no device 'tpu'"),
        ("plan --split single --devices cpu,cpu", "takes one device, 2 were named"),
        ("plan --split hybrid --devices cpu,cpu", "needs three devices"),
        ("plan --context 100000", "lower it to 8,192"),
        ("plan --context 0 --devices cpu", "--context 0"),
        ("plan --reserve cpu=lots", "DEVICE=MiB"),
        ("plan --reserve cpu=999999999", "MiB free"),
        ("plan --streams 1000000", "MiB free"),
        ("chat --json", "add --prompt"),
        ("chat --prompt x --temperature -1", "--temperature"),
        ("complete --prompt=", "the prompt is empty"),
        ("complete --prompt x --max-tokens -3", "--max-tokens -3"),
        ("complete --prompt x --stop=", "--stop"),
        ("bench --runs 0", "--runs"),
        ("bench --prompt-tokens 90 --tokens 20 --context 100", "give 110 or more"),
        ("bench --prompt-tokens 9000", "lower it to 8,192"),
    ],
)
def test_what_cannot_be_done(arguments: str, words: str, refuse: Refuse, starter: Path) -> None:
    assert words in refuse(*arguments.split(), "--model", starter)


@pytest.mark.parametrize("command", ["complete", "chat"])
def test_a_prompt_that_is_too_long(command: str, refuse: Refuse, starter: Path) -> None:
    long = "word " * 200
    line = refuse(command, "--prompt", long, "--context", "64", "--model", starter)
    assert "the context holds 64" in line
    assert "--context 2" in line


def test_a_prompt_that_is_half_a_character(refuse: Refuse, starter: Path) -> None:
    assert "surrogate" in refuse("complete", "--prompt", "a\udcff", "--model", starter)


def test_placements_that_are_no_whole_model(
    refuse: Refuse, starter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", "--json", "--devices", "cpu,cpu", "--split", "layer", "--model", str(starter)]
    assert main(asked) == 0
    plan = json.loads(capsys.readouterr().out)
    path = tmp_path / "plan.json"

    def line(changed: list[dict[str, Any]]) -> str:
        path.write_text(json.dumps(plan | {"placements": changed}))
        return refuse("plan", "--placement", path, "--model", starter)

    first, second = plan["placements"]
    gap = second | {"layers": [second["layers"][0] + 1, 30]}
    assert f"stage 1 must hold layers from {second['layers'][0]}" in line([first, gap])
    assert "up to" in line([first])
    assert "ffn" in line([first | {"ffn": [0, 64]}, second])
    assert "there is no device 'cuda:7'" in line([first, second | {"device": "cuda:7"}])
    wrong = line([first, second | {"layer": 3}])
    assert "placements[1]: " in wrong
    assert "unknown key 'layer': did you mean layers?" in wrong
    path.write_text(json.dumps(plan))
    again = [*asked[:2], "--placement", str(path), *asked[-2:]]
    assert main(again) == 0, "what it prints, it takes"
    assert json.loads(capsys.readouterr().out)["placements"] == plan["placements"]


# -------------------------------------------------------------------------------- answers


def test_complete_prints_the_answer_and_the_speed_beside_it(
    start: Start, starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crew = start(" jumps over.\nThe end ☕")
    assert main(["complete", "--prompt", "The fox", "--model", str(starter)]) == 0
    said = capsys.readouterr()
    assert said.out == " jumps over.\nThe end ☕\n"
    assert said.err.startswith("[2 tokens in, ")
    assert "tokens/s" in said.err
    assert crew.closed


def test_complete_ends_where_it_is_told(
    start: Start, starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one two three four")
    asked = ["complete", "--prompt", "x", "--model", str(starter)]
    assert main([*asked, "--stop", " three"]) == 0
    assert capsys.readouterr().out == "one two\n"
    assert main([*asked, "--max-tokens", "1"]) == 0
    assert capsys.readouterr().out == "one\n"
    assert main([*asked, "--max-tokens", "0"]) == 2


def test_chat_answers_through_the_template_as_json(
    start: Start, starter: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    start("Hello ☕")
    asked = ["chat", "--system", "Be brief.", "--prompt", "Hi!", "--json", "--seed", "1"]
    assert main([*asked, "--devices", "cpu", "--model", str(starter)]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert said.err == ""
    assert report["text"] == "Hello ☕"
    assert report["finish_reason"] == "stop"
    assert report["token_ids"][-1] in tokenizer.stop_ids
    prompt = tokenizer.decode(report["prompt_ids"], skip_special=False)
    assert "system\nBe brief." in prompt
    assert "user\nHi!" in prompt
    assert report["usage"]["prompt_tokens"] == len(report["prompt_ids"])
    assert report["usage"]["completion_tokens"] == len(report["token_ids"])
    (measured,) = report["measured"].values()
    assert codec.decode(Measured, measured) == Measured(7, 8, 0.5)
    assert codec.decode(Plan, report["plan"]).split == "single"


def test_a_conversation_goes_on_until_the_input_ends(
    start: Start,
    starter: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = start("Fine.")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"How?\n\n{'word ' * 200}\nAnd now?\n"))
    assert main(["chat", "--context", "128", "--model", str(starter)]) == 0
    said = capsys.readouterr()
    assert said.out.count("Fine.\n") == 2, "the empty line and the one too long have no answer"
    assert "the context holds 128" in said.err
    assert crew.closed


def test_bench_reports_what_it_measured(
    start: Start, starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crew = start("on and on")
    sizes = ["--prompt-tokens", "40", "--tokens", "12", "--runs", "3"]
    assert main(["bench", "--json", "--threads", "1", *sizes, "--model", str(starter)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["prompt_tokens"], report["tokens"], report["threads"]) == (40, 12, 1)
    for name in ("prefill_tps", "decode_tps"):
        least, most = report["spread"][name]
        assert 0 < least <= report[name] <= most
    plan = codec.decode(Plan, report["plan"])
    assert (plan.context, plan.goal.streams) == (53, 1)
    assert plan.prediction is not None
    assert report["predicted"] == {
        "prefill_tps": plan.prediction.prefill,
        "decode_tps": plan.prediction.decode,
    }
    assert crew.closed
    assert main(["bench", *sizes, "--model", str(starter)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[1:]] == ["prefill", "decode"]


# ------------------------------------------------------------------------------ exit codes


def test_a_worker_that_dies_is_exit_code_1_in_one_line(
    start: Start, starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crew = start("never", failure_at=1, error=WorkerDied(1, "cpu", -9, "loading\nkilled"))
    assert main(["complete", "--json", "--prompt", "x", "--model", str(starter)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "local-tp: worker 1 on cpu died (signal 9): killed; start local-tp again\n"
    assert crew.closed


def test_a_worker_that_fails_brings_its_own_traceback(
    start: Start, starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("never", failure_at=1, error=WorkerFault(0, "cpu", "KeyError: 3", "Trace of the worker"))
    assert main(["complete", "--prompt", "x", "--model", str(starter)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["local-tp: worker 0 on cpu failed: KeyError: 3", "Trace of the worker"]


def test_ctrl_c_while_loading_is_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "start_crews", interrupted)
    assert main(["complete", "--prompt", "x", "--model", str(starter)]) == 130
    assert capsys.readouterr().err == "local-tp: stopped\n"


def test_ctrl_c_in_an_answer_ends_it_and_keeps_what_was_said(
    start: Start,
    starter: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = start("on and on")
    original = Generation.__iter__
    turns: list[str] = []

    def interrupted(generation: Generation) -> Any:
        chunks = original(generation)
        if not turns:
            turns.append("first")
            yield next(chunks)
            raise KeyboardInterrupt
        turns.append("rest")
        yield from chunks

    monkeypatch.setattr(Generation, "__iter__", interrupted)
    assert main(["complete", "--prompt", "x", "--model", str(starter)]) == 0
    assert capsys.readouterr().out.startswith("on")
    assert turns == ["first", "rest"]
    assert crew.closed
