"""The models command as a person sees it: what it lists, fetches, describes and removes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from command_line import ROOT
from hub_server import COMMIT, Asked, FakeHub, running

from local_tp.checkpoint.local_models import resolve
from local_tp.cli.main import main
from local_tp.cli.models_pull import duration

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything in it, and a model folder beside it."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCAL_TP_MODELS", str(tmp_path / "models"))
    return home


@pytest.fixture
def fake(home: Path, starter: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that has the starter model's file, and others that only look like quantizations."""
    with running(FakeHub(info={"cardData": {"license": "apache-2.0"}})) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.endpoint)
        sizes = {"m-Q8_0.gguf": 3_000_000, "m-Q2_K.gguf": 2_000_000, "mmproj-m-f16.gguf": 5_000}
        others = {name: b"GGUF" + bytes(size - 4) for name, size in sizes.items()}
        fake.add("o/n-GGUF", {"m-Q4_1.gguf": starter.read_bytes()} | others)
        yield fake


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    code = main(["models", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def refusal(capsys: Capture, *arguments: str) -> str:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    return line


# -------------------------------------------------------------------------------------- list


def test_models_are_listed_by_source_name_size_and_place(
    home: Path, starter: Path, tmp_path: Path, capsys: Capture
) -> None:
    models, studio = tmp_path / "models", home / ".lmstudio" / "models"
    code, nothing, _ = run(capsys)
    assert code == 0
    assert str(models) in nothing
    assert "local-tp models pull starter" in nothing
    models.mkdir()
    os.symlink(starter, models / "small.gguf")
    studio.mkdir(parents=True)
    (studio / "half-00001-of-00002.gguf").write_bytes(b"GGUF")
    size = starter.stat().st_size
    small = {"name": "small", "path": str(models / "small.gguf"), "bytes": size}
    half = {"name": "half", "path": str(studio / "half-00001-of-00002.gguf"), "bytes": 4}
    assert json.loads(run(capsys, "list", "--json")[1]) == [
        small | {"source": "yours", "problem": None},
        half | {"source": "LM Studio", "problem": "1 of 2 parts are here"},
    ]
    assert run(capsys)[1].splitlines() == [
        f"models in {models}:",
        f"  small       98 MB  {models / 'small.gguf'}",
        "in LM Studio:",
        f"  half         1 kB  {studio / 'half-00001-of-00002.gguf'}  (1 of 2 parts are here)",
    ]
    assert main(["plan", "--model", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"].startswith("small")


# -------------------------------------------------------------------------------------- pull


def test_pull_says_what_it_takes_and_where_it_is(
    fake: FakeHub, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "models/o/n-GGUF/m-Q4_1.gguf"
    code, out, err = run(capsys, "pull", "o/n-GGUF")
    lines = err.splitlines()
    assert (code, out) == (0, f"{target}\n")
    assert lines[:4] == [
        "o/n-GGUF Q4_1: m-Q4_1.gguf, 98 MB, licence apache-2.0",
        "it has 3 quantizations: Q2_K 2 MB, Q8_0 3 MB, Q4_1 98 MB",
        "taking Q4_1, as none is named: `local-tp models pull o/n-GGUF:Q8_0` would take another",
        "mmproj-m-f16.gguf is left out: it is no language model",
    ]
    assert lines[4] == "  0%  0 kB of 98 MB  m-Q4_1.gguf"
    assert lines[-2].startswith("100%  98 MB of 98 MB  ")
    assert lines[-1] == "it is whole and its checksums are right"
    code, out, err = run(capsys, "pull", "o/n-GGUF:q4_1")
    assert (code, out) == (0, f"{target}\n")
    assert err.splitlines()[-1] == "it was here already, by name and size"
    assert resolve("o/n-GGUF") == target


def test_pull_for_programs(fake: FakeHub, tmp_path: Path, capsys: Capture) -> None:
    code, out, err = run(capsys, "pull", "o/n-GGUF", "--json")
    (event,) = map(json.loads, out.splitlines())
    assert (code, event["event"]) == (2, "error")
    assert [v["quant"] for v in event["variants"]] == ["Q2_K", "Q8_0", "Q4_1"]
    assert len(err.splitlines()) == 1
    code, out, err = run(capsys, "pull", "o/n-GGUF:Q8_0", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    size = len(fake.repositories["o/n-GGUF"]["m-Q8_0.gguf"])
    assert events[0] == {
        "event": "chosen",
        "repository": "o/n-GGUF",
        "commit": COMMIT,
        "quant": "Q8_0",
        "licence": "apache-2.0",
        "bytes": size,
        "files": [{"path": "m-Q8_0.gguf", "bytes": size}],
        "notes": ["mmproj-m-f16.gguf is left out: it is no language model"],
    }
    assert (events[-2]["event"], events[-2]["done"]) == ("progress", size)
    path = tmp_path / "models/o/n-GGUF/m-Q8_0.gguf"
    assert events[-1] == {"event": "done", "path": str(path), "bytes": size, "fetched": True}


def test_a_terminal_gets_one_line_that_changes(
    fake: FakeHub, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["models", "pull", "o/n-GGUF:Q8_0"]) == 0
    (line,) = [line for line in terminal.getvalue().split("\n") if "\r" in line]
    shown = line.split("\r")[1:]
    assert shown[0].rstrip() == "  0%  0 kB of 3 MB  m-Q8_0.gguf"
    assert shown[-1].startswith("100%  3 MB of 3 MB  ")
    assert max(map(len, shown)) < 110


def test_what_cannot_be_pulled(fake: FakeHub, capsys: Capture) -> None:
    assert "'gpt' is no name of a repository: write OWNER/NAME" in refusal(capsys, "pull", "gpt")
    assert "has no o/other: check its spelling" in refusal(capsys, "pull", "o/other")
    said = refusal(capsys, "pull", "o/n-GGUF:Q5_0")
    assert "has no Q5_0: choose one of Q2_K (2 MB), Q8_0 (3 MB), Q4_1 (98 MB)" in said


def test_a_quantization_that_does_not_run_yet_is_said(fake: FakeHub, capsys: Capture) -> None:
    fake.add("o/few-GGUF", {"m-IQ2_XXS.gguf": b"GGUF" + bytes(2_000_000)})
    err = run(capsys, "pull", "o/few-GGUF:IQ2_XXS")[2]
    assert "this version may not run IQ2_XXS yet" in err


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C is not a signal there")
def test_ctrl_c_keeps_what_has_arrived(fake: FakeHub, tmp_path: Path, capsys: Capture) -> None:
    sent = 1_000_000

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server != "storage" or asked.range is not None:
            return False
        data = fake.repositories["o/n-GGUF"]["m-Q4_1.gguf"]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:sent])
        time.sleep(10)  # the rest never comes
        return True

    fake.trouble = trouble
    process = subprocess.Popen(
        [sys.executable, "-m", "local_tp", "models", "pull", "o/n-GGUF:Q4_1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    folder = tmp_path / "models/o/n-GGUF"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and sum(p.stat().st_size for p in folder.glob("*.part")) < 1:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-2:] == [
        "what has arrived is kept: `local-tp models pull o/n-GGUF:Q4_1` goes on with it",
        "local-tp: stopped",
    ]
    (part,) = folder.iterdir()
    assert part.suffix == ".part"
    assert part.stat().st_size == sent
    assert "not fetched to its end" in run(capsys)[1]
    assert run(capsys, "pull", "o/n-GGUF:Q4_1")[0] == 0
    assert fake.ranges_of("storage")[-1] == f"bytes={sent}-98362431"


def test_durations_in_words() -> None:
    times = (0.4, 59.4, 200, 7500, 400_000)
    assert [duration(t) for t in times] == ["0 s", "59 s", "3 min 20 s", "2 h 5 min", "111 h 6 min"]


# ----------------------------------------------------------------------------------- inspect


def test_inspect_before_any_download(fake: FakeHub, capsys: Capture) -> None:
    code, out, err = run(capsys, "inspect", "o/n-GGUF")
    assert code == 0
    assert err == "looking at Q4_1 of 3 quantizations: Q2_K 2 MB, Q8_0 3 MB, Q4_1 98 MB\n"
    assert out.splitlines() == [
        "o/n-GGUF:Q4_1",
        "  family         llama",
        "  parameters     135 million",
        "  dimensions     30 layers, hidden 576, 9 query and 3 KV heads of 64, ffn 1,536,",
        "                 vocabulary 49,152",
        "  context        8,192 tokens",
        "  weights        97 MB: Q4_1 68.7%, Q8_0 31.1%, F32 0.146%",
        "  files          m-Q4_1.gguf, 98 MB",
        "  licence        apache-2.0",
        "  chat template  yes",
        "  runs here      yes",
        "",
        "Memory for one conversation on one device, MiB",
        "  context  weights  keys and values, f16  f32",
        "    4,096       93                    90  180",
        "    8,192       93                   180  360",
    ]
    fetched = 0
    for span in fake.ranges_of("storage"):
        start, stop = map(int, (span or "").removeprefix("bytes=").split("-"))
        fetched += stop + 1 - start
    assert fetched < 4_000_000


def test_inspect_as_json(home: Path, starter: Path, capsys: Capture) -> None:
    found = json.loads(run(capsys, "inspect", str(starter), "--json")[1])
    memory = found.pop("memory")
    # two vectors of 3 heads of 64 in each of 30 layers, for 4,096 tokens
    assert memory[0]["float16"] == 2 * 3 * 64 * 30 * 4096 * 2
    assert memory[1]["float32"] == 2 * 3 * 64 * 30 * 8192 * 4
    assert memory[0]["weights"] == found["bytes"] == sum(found["formats"].values())
    assert (found["parameters"], found["active_parameters"]) == (134_515_008, 134_515_008)
    assert (found["supported"], found["refusal"], found["context"]) == (True, None, 8192)
    assert found["files"] == [{"path": starter.name, "bytes": 98_362_432}]
    assert found["dimensions"]["kv_heads"] == 3


def test_inspect_a_model_known_by_its_shape(home: Path, capsys: Capture) -> None:
    out = run(capsys, "inspect", "gpt-oss-20b")[1]
    assert "  parameters     20.9 billion, of which a token meets 4.19 billion" in out
    assert "12 layers see 128" in out
    assert "32 experts of 2,880 of which 4 are active" in out
    assert "runs here      no: it is known here by its shape alone" in out
    assert "licence" not in out


def test_what_cannot_be_inspected(home: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "there is no model 'nothing'" in refusal(capsys, "inspect", "nothing")
    assert "is not here: fetch it with" in refusal(capsys, "inspect", "starter")
    (tmp_path / "x.gguf").write_bytes(b"x")
    assert "is not a GGUF file" in refusal(capsys, "inspect", str(tmp_path / "x.gguf"))


# ---------------------------------------------------------------------------------------- rm


def test_rm_asks_and_says_what_it_frees(
    home: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models/o/n/n-Q4_0.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF" + bytes(4_999_996))
    announced = f"o/n/n-Q4_0 in {file}: deleting it frees 5 MB"

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, out, err = run(capsys, "rm", "o/n")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        announced,
        "local-tp: there is nobody to ask whether to delete it: add --yes",
    ]

    class Person(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Person("n\n"))
    assert run(capsys, "rm", "o/n") == (
        1,
        "",
        f"{announced}\ndelete it? [y/N] nothing was deleted\n",
    )
    assert file.exists()
    monkeypatch.setattr(sys, "stdin", Person("y\n"))
    code, out, _ = run(capsys, "rm", "o/n:Q4_0")
    assert (code, out) == (0, "deleted o/n/n-Q4_0: 5 MB are free again\n")
    assert list((tmp_path / "models").iterdir()) == []
    assert "there is no model 'o/n' here" in refusal(capsys, "rm", "o/n", "--yes")


def test_rm_leaves_other_programs_models_alone(home: Path, capsys: Capture) -> None:
    file = home / ".lmstudio/models/o/n/n.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF....")
    said = refusal(capsys, "rm", "o/n", "--yes")
    assert "belongs to LM Studio, whose folder is left alone" in said
    assert file.exists()
