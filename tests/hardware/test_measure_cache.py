"""Kept measurements: found again whole, or not at all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from local_tp.hardware.measuring.cache import Cache, Measured, default_folder
from local_tp.hardware.measuring.killable import Outcome
from local_tp.hardware.measuring.readings import Reading

SUBJECT = ("pair", "cuda RTX 3090 0000:01:00.0", "driver 610.1")
FOUND = Measured(
    (
        Outcome(
            (Reading("forth", 26.1e9), Reading("wrong", 0.0, "forth", 64, True)), "hangs", "why"
        ),
    ),
)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, said: list[str]) -> Cache:
    return Cache(tmp_path / "kept", said.append)


def only_file(cache: Cache) -> Path:
    assert cache.folder is not None
    (file,) = cache.folder.iterdir()
    return file


def test_what_is_kept_is_found(cache: Cache, said: list[str]) -> None:
    assert cache.find(SUBJECT) is None
    cache.keep(SUBJECT, FOUND)
    assert cache.find(SUBJECT) == FOUND
    assert cache.find((*SUBJECT[:2], "driver 610.2")) is None
    assert said == []


def test_a_later_measurement_replaces_it(cache: Cache) -> None:
    cache.keep(SUBJECT, FOUND)
    later = Measured((Outcome((), "done"),))
    cache.keep(SUBJECT, later)
    assert cache.find(SUBJECT) == later
    only_file(cache)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"subject": []}', b"[" * 100_000, b'{"subject": 1}'],
    ids=["empty", "cut", "binary", "list", "partial", "deep", "type"],
)
def test_a_corrupt_file_is_said_and_replaced(cache: Cache, said: list[str], content: bytes) -> None:
    cache.keep(SUBJECT, FOUND)
    only_file(cache).write_bytes(content)
    assert cache.find(SUBJECT) is None
    assert len(said) == 1
    assert said[0].startswith(f"kept measurements {only_file(cache).name} cannot be read")
    assert "\n" not in said[0]
    cache.keep(SUBJECT, FOUND)
    assert cache.find(SUBJECT) == FOUND


def test_an_entry_of_another_subject_under_this_name_is_not_taken(cache: Cache) -> None:
    cache.keep(SUBJECT, FOUND)
    entry = json.loads(only_file(cache).read_text())
    entry["subject"][0] = "device"
    only_file(cache).write_text(json.dumps(entry))
    assert cache.find(SUBJECT) is None


def test_without_a_folder_nothing_is_kept(said: list[str]) -> None:
    nowhere = Cache(None, said.append)
    nowhere.keep(SUBJECT, FOUND)
    assert nowhere.find(SUBJECT) is None
    assert said == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    Cache(tmp_path / "file" / "kept", said.append).keep(SUBJECT, FOUND)
    assert len(said) == 1
    assert said[0].startswith("measurements cannot be kept in")


def test_a_write_that_fails_leaves_the_old_one(
    cache: Cache, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.keep(SUBJECT, FOUND)

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.keep(SUBJECT, Measured(()))
    assert "No space left" in said[0]
    assert cache.find(SUBJECT) == FOUND
    only_file(cache)


@pytest.mark.skipif(sys.platform == "win32", reason="the folder is named by POSIX there")
def test_the_folder_is_the_program_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_TP_HOME", "/srv/llm")
    assert default_folder() == Path("/srv/llm/measurements")
