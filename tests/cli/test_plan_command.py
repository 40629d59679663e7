"""The plan command in this process: other machines and models, files, refusals, overrides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local_tp import codec
from local_tp.cli import session
from local_tp.cli.main import build_parser, main
from local_tp.cli.plan import another_card, refusal_json, with_changes
from local_tp.core import Plan, Rig
from local_tp.errors import DoesNotFit, InputError, PlanError
from local_tp.facts import SoftwareFacts
from local_tp.hardware.rigs import load_rig
from local_tp.plan.explain import Explanation

Capture = pytest.CaptureFixture[str]
MIB = 1 << 20
TWO = ("--rig", "rtx3090-x2")


def planned(capsys: Capture, *arguments: str | Path) -> tuple[Plan, Explanation]:
    """What `local-tp plan --json` prints."""
    assert main(["plan", "--json", *map(str, arguments)]) == 0
    data = json.loads(capsys.readouterr().out)
    explanation = codec.decode(Explanation, data.pop("explanation"))
    return codec.decode(Plan, data), explanation


def refused(capsys: Capture, *arguments: str | Path) -> tuple[str, list[str]]:
    """The line by which it refuses, and what follows."""
    assert main(["plan", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    line, *more = said.err.splitlines()
    return line, more


# ------------------------------------------------- machines and models that are not here


def test_a_model_and_a_machine_that_are_not_here(capsys: Capture) -> None:
    plan, explanation = planned(capsys, "llama-3.1-70b", "--quant", "Q4_K_M", *TWO)
    cards = [device.id for device in load_rig("rtx3090-x2").devices if device.kind == "cuda"]
    assert sorted({p.device for p in plan.placements}) == cards
    assert plan.goal.dtype == "stored"
    assert any("cannot run as it is" in note for note in plan.notes)
    for use in explanation.devices:
        assert sum(nbytes for _, nbytes in use.terms) == use.weights + use.kv + use.workspace
        assert use.weights + use.kv + use.workspace + use.reserve <= use.free


def test_a_report_of_another_machine(capsys: Capture, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"rig": codec.encode(load_rig("rtx3060"))}))
    plan, explanation = planned(capsys, "llama-3.2-1b", "--rig", report)
    assert plan.split == "single"
    assert explanation.devices[0].name.startswith("RTX 3060")


def test_a_bare_config(capsys: Capture, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 16,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    plan, _ = planned(capsys, "--model-config", path, "--quant", "Q8_0", "--rig", "rtx3060")
    weights = sum(p.memory.weights for p in plan.placements)
    assert 1200 * MIB < weights < 1700 * MIB


# ---------------------------------------------------------------------------------- files


def test_a_saved_plan_is_the_same_plan_again(capsys: Capture, tmp_path: Path) -> None:
    file, page = tmp_path / "plan.json", tmp_path / "plan.html"
    asked = ("llama-3.1-8b", *TWO)
    changed = ("--context", "8192", "--streams", "2", "--kv-format", "float16")
    first, explanation = planned(capsys, *asked, *changed, "--save", file, "--html", page)
    again, same = planned(capsys, *asked, "--placement", file)
    assert again.placements == first.placements
    assert again.prediction == first.prediction
    assert (again.context, again.pages, again.transport) == (8192, first.pages, first.transport)
    assert (again.goal.streams, again.goal.kv_format) == (2, "float16")
    assert same.devices == explanation.devices
    assert "<svg" in page.read_text(encoding="utf-8")
    line, more = refused(capsys, "llama-3.1-8b", "--rig", "rtx4090", "--placement", file)
    assert "plan.json is for another machine: there is no device '0000:02:00.0'" in line
    assert more == []
    line, _ = refused(capsys, "llama-3.1-8b", "--rig", "rtx5060ti-x2", "--placement", file)
    assert "plan.json was made for RTX 3090 at 0000:01:00.0, where this machine has" in line
    line, _ = refused(capsys, "llama-3.2-1b", *TWO, "--placement", file)
    assert "local-tp: " in line


def test_what_a_saved_plan_costs_is_said(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    one = ("llama-3.1-8b", *TWO)
    planned(capsys, *one, "--devices", "cuda:0,cuda:1", "--split", "layer", "--save", file)
    again, _ = planned(capsys, *one, "--placement", file)
    assert again.split == "layer"
    (note,) = [note for note in again.notes if note.startswith("as plan.json says: predicted")]
    assert "the best plan reaches" in note


def test_a_place_that_cannot_be_written(capsys: Capture, tmp_path: Path) -> None:
    for option in ("--save", "--html"):
        line, _ = refused(capsys, "llama-3.2-1b", "--rig", "rtx3060", option, tmp_path)
        assert line.startswith(f"local-tp: cannot write {tmp_path}: ")


# ------------------------------------------------------------------------------- refusals


NO_ROOM = ("llama-3.1-70b", "--quant", "Q8_0", *TWO, "--offload", "none")


def test_no_room_is_a_line_with_terms_and_settings_below(capsys: Capture) -> None:
    line, more = refused(capsys, *NO_ROOM)
    assert "MiB and has 24,084 MiB free: " in line
    assert more[0].startswith("What 0000:0")
    assert more[1].split()[0] == "weights"
    assert "What would make it fit" in more


def test_no_room_as_json(capsys: Capture) -> None:
    assert main(["plan", "--json", *NO_ROOM]) == 2
    said = capsys.readouterr()
    refusal = json.loads(said.out)["refusal"]
    assert said.err == f"local-tp: {refusal['message']}\n"
    assert refusal["kind"] == "DoesNotFit"
    assert refusal["need"] > refusal["have"]
    assert sum(nbytes for _, nbytes in refusal["terms"]) == refusal["need"]
    assert refusal["settings"]


def test_refusals_of_other_kinds_as_json() -> None:
    assert refusal_json(PlanError("not so")) == {"kind": "PlanError", "message": "not so"}
    whole = refusal_json(DoesNotFit("cpu", 3, 2, "less", (("weights", 3),), ("--streams 1",)))
    assert whole["terms"] == [["weights", 3]]
    assert whole["settings"] == ["--streams 1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--rig rtx3090 --measure", "leave out --rig"),
        ("--rig rtx9999", "there is no machine 'rtx9999'"),
        ("gpt-17 --rig rtx3090", "models are known by shape"),
        ("llama-3.2-1b --rig rtx3090 --threads 0", "--threads 0"),
        ("llama-3.2-1b --rig rtx3090 --devices cuda:1", "there is no device 'cuda:1'"),
        ("llama-3.2-1b --rig rtx3090-x2 --devices cuda:0 --shares 1,2", "2 numbers for 1 dev"),
        ("llama-3.2-1b --rig rtx3090 --context 999999", "lower it to"),
    ],
)
def test_what_cannot_be_planned(capsys: Capture, arguments: str, words: str) -> None:
    line, more = refused(capsys, *arguments.split())
    assert words in line
    assert more == []


# ------------------------------------------------------------------------------ this machine


def test_where_nothing_is_doubtful_measure_says_so(capsys: Capture, starter: Path) -> None:
    assert main(["plan", "--measure", "--devices", "cpu", str(starter)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("nothing was measured: no unmeasured number decides")
    assert "Memory, MiB" in said.out


def test_other_commands_run_what_plan_shows(capsys: Capture, starter: Path) -> None:
    options = ["--streams", "2", "--context", "700", "--format", "float32", "--model", str(starter)]
    shown, _ = planned(capsys, *options)
    run = session.plan(build_parser().parse_args(["chat", *options]))
    assert run.plan.placements == shown.placements
    assert (run.plan.transport, run.plan.goal) == (shown.transport, shown.goal)
    assert [device.id for device in run.devices] == [p.device for p in shown.placements]


def test_stored_formats_are_planned_and_not_run(capsys: Capture, starter: Path) -> None:
    plan, _ = planned(capsys, "--devices", "cpu", "--format", "stored", starter)
    held = sum(p.memory.weights for p in plan.placements)
    assert held == pytest.approx(starter.stat().st_size, rel=0.05)
    parsed = build_parser().parse_args(["chat", "--format", "stored", "--model", str(starter)])
    with pytest.raises(PlanError, match="--format stored is for planning"):
        session.plan(parsed)


def with_cards(monkeypatch: pytest.MonkeyPatch, software: SoftwareFacts) -> Rig:
    rig = replace(load_rig("rtx3090-x2"), software=software)
    monkeypatch.setattr(session, "this_machine", lambda: rig)
    return rig


def test_what_would_end_a_run_is_refused_beforehand(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, starter: Path
) -> None:
    with_cards(monkeypatch, SoftwareFacts(driver="610.1", torch="2.13.0+cpu"))
    line, more = refused(capsys, starter)
    assert "torch 2.13.0+cpu is built for the processor only" in line
    assert more == []
    with_cards(monkeypatch, SoftwareFacts(driver="610.1", torch="2.13.0", torch_cuda="13.0"))
    assert main(["plan", str(starter)]) == 0


# ----------------------------------------------------------------------- what would change


def test_another_card_is_one_of_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for rig, kind in (("rtx3090", "cuda"), ("rx7900xtx-x2", "rocm"), ("cpu-ddr5", "cuda")):
        card = another_card(load_rig(rig))
        assert card is not None
        assert (card.kind, card.total) == (kind, 8 << 30)
        assert card.bandwidth is not None
        assert card.free < card.total


def test_asking_what_would_change_ends_in_time(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from local_tp.cli import plan as command
    from local_tp.cli.decide import decide
    from local_tp.cli.subject import spec_of

    parsed = build_parser().parse_args(["plan", "llama-3.1-8b", *TWO])
    spec = spec_of(parsed, session.say)
    decided = decide(parsed, spec, load_rig("rtx3090-x2"), session.say, own=False)
    assert len(with_changes(decided).changes) > 1
    monkeypatch.setattr(command, "CHANGES_SECONDS", -1.0)
    assert len(with_changes(decided).changes) == 1


def test_help_tells_an_error_of_the_parser_from_a_refusal(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(["plan", "--format", "int3"])
    assert left.value.code == InputError.exit_code
    assert "choose from as-stored, float32" in capsys.readouterr().err


def test_every_setting_reaches_the_plan(capsys: Capture) -> None:
    asked: dict[str, Any] = {
        "--devices": "cuda:1,cuda:0",
        "--split": "tensor",
        "--shares": "3,1",
        "--reserve": "cuda:0=2048",
        "--context": "2048",
        "--streams": "1",
        "--kv-format": "float16",
        "--offload": "none",
    }
    words = [word for option in asked.items() for word in option]
    plan, explanation = planned(capsys, "llama-3.1-8b", *TWO, *words)
    first, second = plan.placements
    assert (first.device, second.device) == ("0000:02:00.0", "0000:01:00.0")
    assert first.ffn.size == pytest.approx(3 * second.ffn.size, rel=0.02)
    assert plan.context == 2048
    reserves = {use.label: use.reserve for use in explanation.devices}
    assert reserves["cuda:0"] == 2048 * MIB
    assert any(note.startswith("as asked (--devices") for note in plan.notes)
