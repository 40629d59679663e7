"""What is in the model folder, and what a name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tp.checkpoint.local_models import LocalModel, installed, resolve
from local_tp.errors import CheckpointError


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with one of everything."""
    root = tmp_path / "models"
    files = {
        "Zeta.Q4_0.gguf": 10,
        "maker/beta/beta.gguf": 20,
        "big-00001-of-00002.gguf": 30,
        "big-00002-of-00002.gguf": 40,
        "alpha/config.json": 1,
        "alpha/model-00001-of-00002.safetensors": 50,
        "alpha/model-00002-of-00002.safetensors": 60,
        "alpha/nested/ignored.gguf": 1,
        "half/config.json": 1,
        "notes.txt": 1,
        ".starter-x/part.gguf": 1,
        "a/b/c/d/deep.gguf": 1,
    }
    for name, size in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    monkeypatch.setenv("LOCAL_TP_MODELS", str(root))
    return root


def test_files_parts_and_folders_are_listed(models: Path) -> None:
    assert installed() == (
        LocalModel("alpha", models / "alpha", 110),
        LocalModel("big", models / "big-00001-of-00002.gguf", 70),
        LocalModel("maker/beta/beta", models / "maker/beta/beta.gguf", 20),
        LocalModel("Zeta.Q4_0", models / "Zeta.Q4_0.gguf", 10),
    )


def test_a_folder_that_is_not_there_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_TP_MODELS", str(tmp_path / "absent"))
    assert installed() == ()


def test_a_link_that_leads_round_in_circles_ends(models: Path) -> None:
    (models / "maker" / "loop").symlink_to(models, target_is_directory=True)
    assert "Zeta.Q4_0" in {model.name for model in installed()}


def test_names_and_paths_resolve(models: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.gguf"
    elsewhere.write_bytes(b"x")
    assert resolve("alpha") == models / "alpha"
    assert resolve("big") == models / "big-00001-of-00002.gguf"
    assert resolve("Zeta.Q4_0.gguf") == models / "Zeta.Q4_0.gguf"
    assert resolve(elsewhere) == elsewhere
    assert resolve(str(tmp_path)) == tmp_path


def test_an_unknown_name_says_what_is_there(models: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        resolve("gamma")
    said = str(refused.value)
    assert "there is no model 'gamma': use starter, alpha, big, maker/beta/beta, Zeta.Q4_0" in said
    assert str(models) in said
    assert "\n" not in said


def test_many_models_are_not_all_named(models: Path) -> None:
    for number in range(12):
        (models / f"model{number}.gguf").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=" and 6 more "):
        resolve("gamma")


def test_the_starter_is_a_name(starter: Path) -> None:
    assert resolve("starter") == starter
