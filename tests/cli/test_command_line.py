"""The command in a process of its own: output, exit code, one line on errors, nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import ROOT, local_tp

from local_tp import codec
from local_tp.checkpoint.read import read
from local_tp.core import Plan, Rig
from local_tp.engine.tokenizer import Tokenizer
from local_tp.hardware.memory_ratios import MemoryRatios
from local_tp.plan.explain import Explanation


def test_what_is_typed_wrong() -> None:
    line = local_tp("plan", "--modle=x").refusal()
    assert line == "local-tp: unrecognized arguments: --modle=x (see local-tp --help)"


def test_a_truncated_model(starter: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with starter.open("rb") as whole:
        cut.write_bytes(whole.read(50_000_000))
    line = local_tp("complete", "--prompt", "x", "--model", cut).refusal()
    assert line.startswith("local-tp: ")
    assert "cut.gguf" in line


def test_a_prompt_that_is_too_long_is_refused_before_any_worker(starter: Path) -> None:
    asked = ("complete", "--prompt", "a " * 300, "--context", "100", "--model", starter)
    line = local_tp(*asked).refusal()
    assert "the context holds 100: shorten it by" in line


def test_a_port_in_use_is_said_before_anything_is_loaded(starter: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = local_tp("serve", "--port", str(port), "--model", starter)
    assert ran.refusal() == (
        f"local-tp: port {port} on 127.0.0.1 is in use: "
        "choose another with --port, or --port 0 for any"
    )


def test_serve_looks_at_its_port_before_it_imports_the_page() -> None:
    """Importing Gradio takes seconds; the refusal must not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = (
            "import sys\n"
            "from local_tp.cli.main import main\n"
            f"code = main(['serve', '--port', '{taken.getsockname()[1]}'])\n"
            "sys.exit(0 if code == 2 and 'gradio' not in sys.modules else 1)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_plan_as_json_is_a_plan(starter: Path) -> None:
    ran = local_tp("plan", "--json", "--devices", "cpu,cpu,cpu", "--model", starter)
    data = json.loads(ran.out)
    explanation = codec.decode(Explanation, data.pop("explanation"))
    plan = codec.decode(Plan, data)
    assert (ran.code, ran.err, ran.left) == (0, "", [])
    assert [p.device for p in plan.placements] == ["cpu"] * 3
    assert plan.context == 4096
    assert plan.prediction is not None
    assert plan.prediction.decode > 0
    (use,) = explanation.devices
    assert use.ranks == (0, 1, 2)
    assert use.weights == sum(p.memory.weights for p in plan.placements)


def test_a_rig_as_json_is_a_rig() -> None:
    ran = local_tp("probe", "--json")
    rig = codec.decode(Rig, json.loads(ran.out))
    assert (ran.code, ran.err, ran.left) == (0, "", [])
    assert rig.devices[-1].id == "cpu"
    assert rig.ram > 0


def test_names_that_a_terminal_cannot_show(tmp_path: Path) -> None:
    (tmp_path / "modèle.gguf").write_bytes(b"x")
    environment = {"LOCAL_TP_MODELS": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    ran = local_tp("models", **environment)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1].startswith("  mod?le ")
    ran = local_tp("models", "list", "--json", **environment)
    assert json.loads(ran.out)[0]["name"] == "modèle"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells a writer otherwise")
def test_output_that_nobody_reads_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "local_tp", "probe"]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C is not a signal there")
def test_ctrl_c_while_a_model_loads(starter: Path) -> None:
    """The handler is set because a shell takes it from what it starts in the background."""
    program = (
        "import signal, sys, time\n"
        "from local_tp.cli import session\n"
        "from local_tp.cli.main import main\n"
        "def start(*arguments):\n"
        "    print('loading', flush=True)\n"
        "    time.sleep(30)\n"
        "session.start_crews = start\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.exit(main(['complete', '--prompt', 'x', '--model', {str(starter)!r}]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"loading\n"
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert time.monotonic() - started < 5
        assert process.stderr.read() == b"local-tp: stopped\n"


def test_complete_from_end_to_end(starter: Path) -> None:
    asked = ("--prompt", "The capital of France is", "--temperature", "0", "--max-tokens", "4")
    small = ("--context", "64", "--streams", "1", "--devices", "cpu", "--threads", "1")
    ran = local_tp("complete", "--json", *asked, *small, "--model", starter)
    assert ran.code == 0, ran.err
    assert ran.left == []
    report = json.loads(ran.out)
    tokenizer = Tokenizer.from_spec(read(starter).text)
    assert report["prompt_ids"] == tokenizer.encode("The capital of France is")
    assert report["text"] == tokenizer.decode(report["token_ids"], continues=True) == " Paris.\n\n"
    assert report["finish_reason"] == "length"
    assert report["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    plan = codec.decode(Plan, report["plan"])
    assert (plan.split, plan.context, plan.transport) == ("single", 64, "none")
    assert report["measured"]["0"]["weights"] == plan.placements[0].memory.weights
    assert report["timings"]["total"] >= report["timings"]["first_token"] > 0


def test_a_filled_cache_is_measured_and_the_ratio_kept(starter: Path, tmp_path: Path) -> None:
    small = ("--context", "96", "--streams", "2", "--devices", "cpu", "--threads", "1")
    home = {"LOCAL_TP_HOME": str(tmp_path)}
    ran = local_tp("bench", "--fill", "--json", *small, "--model", starter, **home)
    assert ran.code == 0, ran.err
    assert ran.left == []
    report = json.loads(ran.out)
    (rank,) = report["ranks"]
    assert (report["context"], report["streams"], rank["device"]) == (96, 2, "cpu")
    assert rank["loaded"] <= rank["peak"]
    (kept,) = MemoryRatios(tmp_path / "measurements", pytest.fail).entries()
    assert (kept.measured, kept.predicted) == (rank["peak"], rank["predicted"])
    assert (kept.conditions.context, kept.conditions.streams) == (96, 2)
