"""The whole measurement: on this machine's processor, and with children that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
import torch
from small_rigs import A, B, card, linked, processor, rig

from local_tp.core import Rig
from local_tp.facts import SoftwareFacts
from local_tp.hardware.measuring.killable import Program
from local_tp.hardware.measuring.measure import (
    Programs,
    measure,
    standard_programs,
    with_kept_build,
)
from local_tp.hardware.probe import probe

FAULTY = Path(__file__).with_name("faulty_child.py")


def faulty(way: str, *arguments: str, seconds: float = 30.0, start: float = 30.0) -> Program:
    return Program((sys.executable, str(FAULTY), way, *arguments), seconds, start)


def all_faulty(way: str) -> Programs:
    return Programs(*[faulty(way)] * 5)


def quietly(line: str) -> None:
    """For tests that do not look at the progress."""


def measured(machine: Rig, programs: Programs, folder: Path, *, full: bool = False) -> Rig:
    return measure(machine, full=full, report=quietly, cache=None, models=folder, programs=programs)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measurements")


@pytest.fixture(scope="module")
def processors() -> Rig:
    """Two processors, so that there is a pair, and ranks that sum."""
    cpu = next(device for device in probe().devices if device.kind == "cpu")
    return rig(cpu, replace(cpu, id="cpu:1"), cores=2)


@pytest.fixture(scope="module")
def known(processors: Rig, kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """Everything measured for real; the pair as two processors of one kind."""
    models = tmp_path_factory.mktemp("models")
    (models / "sub").mkdir()
    (models / "sub" / "model.gguf").write_bytes(os.urandom(1024) * 65536)
    return measure(processors, report=quietly, cache=kept, models=models)


def test_the_processor_is_measured_for_real(known: Rig) -> None:
    for dtype, rate in known.host.matmul:
        assert 1e8 < rate < 1e14, dtype
    assert known.host.matmul[0][0] == "float32"
    assert known.devices[0].facts.matmul
    assert known.devices[0].flops == max(
        rate for dtype, rate in known.devices[0].facts.matmul if dtype in ("bfloat16", "float16")
    )
    assert known.host.memory_bandwidth is not None
    assert known.host.memory_bandwidth_one is not None
    assert 1e8 < known.host.memory_bandwidth < 1e13
    assert 1e8 < known.host.memory_bandwidth_one < 1e13


def test_a_pair_of_processors_is_checked_and_good(known: Rig) -> None:
    (link,) = known.links
    assert (link.a, link.b, link.facts.verdict) == ("cpu", "cpu:1", "good")
    assert link.verified
    assert link.measured
    assert link.kind == "p2p"
    assert link.facts.forth is not None
    assert link.facts.back is not None
    assert link.bandwidth == min(link.facts.forth, link.facts.back)
    assert link.latency is not None
    assert 0 < link.latency < 1


def test_sums_over_processes_are_right_and_timed(known: Rig) -> None:
    assert [(c.transport, c.nbytes) for c in known.collectives] == [
        (transport, nbytes)
        for transport in ("shared-memory", "gloo")
        for nbytes in (8192, 65536, 1048576)
    ]
    for collective in known.collectives:
        assert collective.correct
        assert collective.devices == ("cpu", "cpu:1")
        assert 1e-6 < collective.seconds < 1


def test_the_disk_is_read_or_it_is_said_why_not(known: Rig) -> None:
    said = [line for line in known.unknown if line.startswith("model folder: not measured")]
    assert (known.host.disk_read is None) == bool(said)
    assert known.host.disk_read is None or known.host.disk_read > 1e5


def test_what_is_kept_is_not_measured_again(
    known: Rig, processors: Rig, kept: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    again = measure(
        processors, report=lines.append, cache=kept, models=tmp_path, programs=all_faulty("crash")
    )
    assert again.collectives == known.collectives
    assert again.links == known.links
    assert again.devices == known.devices
    assert lines.count("  as measured before") == 4


def test_another_driver_is_another_subject(processors: Rig, kept: Path, tmp_path: Path) -> None:
    later = measure(
        replace(processors, driver="611.0"),
        report=quietly,
        cache=kept,
        models=tmp_path,
        programs=all_faulty("crash"),
    )
    assert later.links[0].facts.verdict == "failed"


def test_again_ignores_what_is_kept(processors: Rig, kept: Path, tmp_path: Path) -> None:
    programs = all_faulty("crash")
    later = measure(
        processors, report=quietly, cache=kept, again=True, models=tmp_path, programs=programs
    )
    assert later.links[0].facts.verdict == "failed"


def test_a_child_that_hangs_is_killed_at_its_limit(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    programs = replace(all_faulty("crash"), pair=faulty("hang", str(pid_file), seconds=0.3))
    started = time.monotonic()
    machine = measured(rig(card(A), card(B), processor()), programs, tmp_path)
    assert time.monotonic() - started < 15
    (link,) = machine.links
    assert (link.facts.verdict, link.kind, link.verified) == ("hangs", "host", False)
    assert f"{A} to {B}: not measured: the test hung and was stopped: no answer for 0.3 s" in (
        machine.unknown
    )
    assert not psutil.pid_exists(int(pid_file.read_text()))


def test_a_hang_is_kept_and_a_failure_is_not(tmp_path: Path) -> None:
    machine, kept = rig(card(A), card(B)), tmp_path / "kept"
    hanging = replace(all_faulty("crash"), pair=faulty("hang", seconds=0.2))
    for programs in (hanging, all_faulty("copy")):
        found = measure(machine, report=quietly, cache=kept, models=tmp_path, programs=programs)
        assert found.links[0].facts.verdict == "hangs"


def test_one_that_never_gets_ready_has_failed_not_hung(tmp_path: Path) -> None:
    programs = replace(all_faulty("crash"), pair=faulty("deaf", start=0.3))
    machine = measured(rig(card(A), card(B)), programs, tmp_path)
    assert machine.links[0].facts.verdict == "failed"
    assert any("it was not ready after" in line for line in machine.unknown)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("crash", "CUDA error: an illegal memory access (exit code 7)"),
        ("die", "it wrote nothing (signal 11)"),
        ("babble", "it answered 'NCCL version 2.30'"),
    ],
)
def test_a_child_that_fails_is_said_to_with_its_last_line(
    way: str, why: str, tmp_path: Path
) -> None:
    machine = measured(rig(card(A), card(B)), all_faulty(way), tmp_path)
    assert machine.links[0].facts.verdict == "failed"
    assert f"{A}: not measured: the test failed: {why}" in machine.unknown
    assert f"{A} to {B}: not measured: the test failed: {why}" in machine.unknown


def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    absent = Program((str(tmp_path / "absent"),), 1.0)
    machine = measured(rig(processor()), Programs(*[absent] * 5), tmp_path)
    assert any("it cannot be started" in line for line in machine.unknown)


@pytest.mark.parametrize(
    ("way", "why"), [("one-hangs", "the test hung"), ("one-crashes", "rank 1 has had enough")]
)
def test_one_rank_s_trouble_is_the_transport_s(way: str, why: str, tmp_path: Path) -> None:
    programs = replace(all_faulty("copy"), collective=faulty(way, seconds=0.5))
    machine = measured(rig(card(A), card(B)), programs, tmp_path)
    assert machine.collectives == ()
    line = next(u for u in machine.unknown if u.startswith(f"nccl over {A}, {B}: not measured"))
    assert why in line


def test_directions_follow_the_link_as_it_stands(tmp_path: Path) -> None:
    machine = linked(rig(card(A), card(B)), (B, A, None))
    (link,) = measured(machine, all_faulty("copy"), tmp_path).links
    assert (link.a, link.b, link.facts.forth, link.facts.back) == (B, A, 20e9, 30e9)
    assert (link.kind, link.bandwidth) == ("p2p", 20e9)


def test_torch_tells_its_build_once(tmp_path: Path) -> None:
    """The build of this machine's torch, asked of it in a process that is told of a card."""
    machine = replace(rig(card(A)), software=SoftwareFacts(torch=version("torch")))
    kept = tmp_path / "kept"
    programs = replace(all_faulty("crash"), build=standard_programs().build)
    lines: list[str] = []
    assert with_kept_build(machine, kept, quietly) == machine
    found = measure(machine, report=lines.append, cache=kept, models=tmp_path, programs=programs)
    own = tuple(torch.cuda.get_arch_list())
    assert found.software == replace(
        machine.software, torch_cuda=torch.version.cuda, torch_architectures=own
    )
    assert f"  torch {torch.__version__}: {', '.join(own) or 'no graphics cards'}" in lines
    assert with_kept_build(machine, kept, quietly).software == found.software
    other = replace(machine, software=SoftwareFacts(torch="1.0"))
    assert with_kept_build(other, kept, quietly) == other


def test_without_torch_nobody_asks_it(tmp_path: Path) -> None:
    machine = measured(rig(card(A)), all_faulty("crash"), tmp_path)
    assert "torch: not measured: it is not installed" in machine.unknown


def test_a_full_card_is_left_alone_and_it_is_said(tmp_path: Path) -> None:
    machine = measured(rig(card(A, free=0), card(B)), all_faulty("copy"), tmp_path)
    assert any(
        u.startswith(f"{A} to {B}: not measured: {A} has 0 MiB free") for u in machine.unknown
    )
    assert machine.links == ()


def test_measuring_anew_replaces_what_was_said(tmp_path: Path) -> None:
    machine = rig(card(A), card(B))
    failed = measured(machine, all_faulty("crash"), tmp_path)
    assert any(line.startswith(f"{A} to {B}:") for line in failed.unknown)
    well = measured(failed, all_faulty("copy"), tmp_path)
    assert not any(line.startswith(f"{A} to {B}:") for line in well.unknown)
    assert [link.facts.verdict for link in well.links] == ["good"]


@pytest.mark.gpu(cards=1)
def test_a_card_is_measured_for_real(tmp_path: Path) -> None:
    machine = measure(probe(), report=print, cache=None, models=tmp_path)
    for device in machine.devices:
        if device.kind == "cuda":
            assert device.bandwidth is not None
            assert 1e10 < device.bandwidth < 2e13
            assert device.facts.copy_to is not None
            assert device.facts.copy_from is not None
            assert dict(device.facts.matmul)["float32"] > 1e11
            assert device.facts.pcie_loaded is not None


@pytest.mark.gpu(cards=2)
def test_every_pair_of_cards_gets_a_verdict(tmp_path: Path) -> None:
    machine = measure(probe(), full=True, report=print, cache=None, models=tmp_path)
    for link in machine.links:
        assert link.facts.verdict is not None
        assert (link.kind == "host") == (link.facts.verdict != "good")
    assert any(c.transport == "gloo" and c.correct for c in machine.collectives)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_control_c_leaves_no_child(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = tmp_path / "measuring.py"
    command = [sys.executable, str(FAULTY), "hang", str(pid_file)]
    program.write_text(
        "import json, sys\nfrom pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from small_rigs import processor, rig\n"
        "from local_tp.hardware.measuring.killable import Program\n"
        "from local_tp.hardware.measuring.measure import Programs, measure\n"
        "hang = Program(tuple(json.loads(sys.argv[2])), 60.0)\n"
        "measure(rig(processor()), report=print, cache=None, models=Path(sys.argv[1]),\n"
        "        programs=Programs(*[hang] * 5))\n"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(program), str(FAULTY.parent), json.dumps(command)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, problems = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in problems
    assert not psutil.pid_exists(int(pid_file.read_text()))
