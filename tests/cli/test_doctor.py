"""The doctor command as a person runs it, on this machine and on pasted ones."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import local_tp

from local_tp import codec
from local_tp.cli.main import main
from local_tp.core import Device, Link, Rig
from local_tp.facts import Finding, PairFacts
from local_tp.hardware.diagnose import diagnose
from local_tp.hardware.report.json import read_report, report_json
from local_tp.hardware.report.report import Report
from local_tp.hardware.rigs import load_rig

GIB = 1024**3
UUID = "GPU-00000001-1111-2222-3333-0123456789ab"
CSV = f"""\
PS C:\\> nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.used --format=csv
index, name, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB]
0, NVIDIA GeForce RTX 3060, {UUID}, 00000000:01:00.0, 12288 MiB, 300 MiB
1, NVIDIA GeForce RTX 3090, {UUID.replace("1-", "2-", 1)}, 00000000:04:00.0, 24576 MiB, 1 MiB
"""


def a_report() -> Report:
    """One whose finding no rule would make, to see that it is kept."""
    cards = tuple(
        Device(f"0000:0{i}:00.0", "cuda", "NVIDIA GeForce RTX 3090", 24 * GIB, 23 * GIB, uuid=UUID)
        for i in (1, 4)
    )
    link = Link(cards[0].id, cards[1].id, "p2p", facts=PairFacts(verdict="hangs"))
    finding = Finding("odd-smell", "error", (cards[1].id,), "smoke", "everything", "Unplug it.")
    return Report(Rig(cards, (link,)), (finding,), ("a line",))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(report_json(a_report()), encoding="utf-8")
    return path


def test_this_machine_in_a_moment_and_nothing_stays() -> None:
    ran = local_tp("doctor")
    assert (ran.code, ran.err, ran.left) == (0, "", [])
    assert ran.out.startswith("Findings: ")
    assert "\ncpu  " in ran.out
    assert "Speeds were not measured: local-tp doctor --measure does." in ran.out
    assert ran.seconds < 10


def test_json_is_a_report_of_this_machine() -> None:
    ran = local_tp("doctor", "--json")
    report = read_report(ran.out.encode(), "output")
    assert report is not None
    assert report.rig.devices[-1].kind == "cpu"
    assert report.unread == ()
    assert ran.err == ""


def test_findings_are_no_failure_and_a_report_is_kept_as_it_was(saved: Path) -> None:
    ran = local_tp("doctor", "--from", saved)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Findings: 1 error\n\nERROR  odd-smell: cuda:1 (NVIDIA GeForce")
    assert "smoke" in ran.out
    assert "Unplug it." in ran.out


def test_a_report_goes_round(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--from", str(saved), "--json", "--show-identifiers"]) == 0
    assert capsys.readouterr().out == saved.read_text(encoding="utf-8") + "\n"


def test_identifiers_go_unless_asked_for(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert UUID in saved.read_text(encoding="utf-8")
    assert main(["doctor", "--from", str(saved), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert UUID not in json.dumps(whole)
    assert [device["uuid"] for device in whole["rig"]["devices"]] == [None, None]


def test_pasted_output_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text(CSV, encoding="utf-8")
    assert main(["doctor", "--from", str(path), "--json"]) == 0
    report = codec.decode(Report, json.loads(capsys.readouterr().out))
    cards = [d for d in report.rig.devices if d.kind == "cuda"]
    assert [(card.id, card.total // GIB) for card in cards] == [
        ("0000:01:00.0", 12),
        ("0000:04:00.0", 24),
    ]
    assert UUID not in str(report)


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
    assert main(["doctor", "--from", "-"]) == 0
    out = capsys.readouterr().out
    assert "cuda:1  NVIDIA GeForce RTX 3090" in out
    assert "Speeds were not measured" not in out


def test_a_machine_of_the_collection(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rig", "rtx3090-x4", "--json"]) == 0
    report = codec.decode(Report, json.loads(capsys.readouterr().out))
    assert [device.kind for device in report.rig.devices] == ["cuda"] * 4 + ["cpu"]
    assert report.rig == load_rig("rtx3090-x4")
    plain = diagnose(report.rig)
    assert [replace(f, cost="") for f in report.findings] == [replace(f, cost="") for f in plain]
    narrow, before = (next(f for f in fs if f.id == "pcie-x4") for fs in (report.findings, plain))
    assert narrow.cost.startswith(f"{before.cost}; by the plan, Llama 3.3 70B in tensor split: ")
    assert "tokens/s of a prompt instead of " in narrow.cost
    assert main(["doctor", "--rig", "rtx3090-x4"]) == 0
    assert "Speeds were not measured: local-tp" not in capsys.readouterr().out


def test_a_machine_described_in_a_file(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rig", str(saved), "--json", "--show-identifiers"]) == 0
    assert codec.decode(Report, json.loads(capsys.readouterr().out)).rig == a_report().rig


def test_an_unknown_machine_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rig", "rtx3090-x3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("local-tp: there is no machine 'rtx3090-x3'")
    assert "rtx3090-x2-nvlink, rtx3090-x4" in line


def test_markdown_and_a_page(saved: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = local_tp("doctor", "--from", saved, "--markdown", "--html", page)
    assert ran.code == 0
    assert ran.out.startswith("### Hardware report: 1 error\n")
    assert ran.err == f"wrote {page}\n"
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "<svg" in html
    assert UUID not in html + ran.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "tells of no machine"),
        (b"The quick brown fox\n" * 20, "tells of no machine"),
        (bytes(range(256)) * 8, "tells of no machine"),
        (b'{"rig": {"devices": 5}}', "rig.devices: expected a list"),
        (b'{"rig": {"devices": [{"id": "a"}]}}', "rig.devices[0].kind: missing"),
    ],
    ids=["empty", "prose", "bytes", "no list", "damaged"],
)
def test_text_that_cannot_be_read_is_exit_code_2(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pasted.txt"
    path.write_bytes(content)
    assert main(["doctor", "--from", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert words in line
    assert str(path) in line


def test_files_that_are_not_there_or_cannot_be_written(saved: Path, tmp_path: Path) -> None:
    assert "No such file" in local_tp("doctor", "--from", tmp_path / "none").refusal()
    assert "directory" in local_tp("doctor", "--from", tmp_path).refusal()
    nowhere = tmp_path / "none" / "page.html"
    assert (
        f"cannot write {nowhere}"
        in local_tp("doctor", "--from", saved, "--html", nowhere).refusal()
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no endless file there")
def test_an_endless_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--from", "/dev/zero"]) == 2
    assert "/dev/zero is longer than 64 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "x", "--measure"],
        ["--from", "x", "--rig", "rtx3090"],
        ["--rig", "rtx3090", "--full"],
        ["--rig"],
        ["--measure", "--full"],
        ["--json", "--markdown"],
        ["--from"],
        ["--html"],
    ],
)
def test_what_does_not_go_together(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", *arguments])
    assert left.value.code == 2


def test_again_needs_something_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--again"]) == 2
    assert "add --measure or --full" in capsys.readouterr().err
