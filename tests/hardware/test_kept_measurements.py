"""What was measured once is known again without starting anything; a scope measures just itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_rigs import processor, rig

from local_tp.core import Rig
from local_tp.hardware.measuring import killable
from local_tp.hardware.measuring.killable import Program
from local_tp.hardware.measuring.measure import Programs, measure, standard_programs, with_kept
from local_tp.hardware.measuring.scope import Scope

FAULTY = Path(__file__).with_name("faulty_child.py")
NONE = Program((sys.executable, str(FAULTY), "crash"), 5.0, 5.0)
NOTHING = Programs(NONE, NONE, NONE, NONE, NONE)


def said(line: str) -> None:
    """For tests that do not look at the progress."""


@pytest.fixture(scope="module")
def machine() -> Rig:
    return rig(processor(), cores=2)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def summed(machine: Rig, kept: Path) -> Rig:
    """The machine after sums over two of its ranks were measured for real, and no more."""
    cpu = machine.devices[0]
    scope = Scope((), (), ((("shared-memory", "gloo"), (cpu, cpu)),))
    only = replace(NOTHING, collective=standard_programs().collective)
    return measure(machine, report=said, cache=kept, programs=only, scope=scope)


def test_a_scope_measures_just_itself(summed: Rig, machine: Rig) -> None:
    assert {c.transport for c in summed.collectives} == {"shared-memory", "gloo"}
    assert all(c.correct for c in summed.collectives)
    assert replace(summed, collectives=()) == machine


def test_what_was_kept_is_known_again_and_nothing_starts(
    summed: Rig, machine: Rig, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> None:
        raise AssertionError("a child was started")

    monkeypatch.setattr(killable, "run", run)
    assert with_kept(machine, kept, said).collectives == summed.collectives


def test_where_nothing_was_kept_nothing_is_known(machine: Rig, tmp_path: Path) -> None:
    assert with_kept(machine, tmp_path, said) == machine
