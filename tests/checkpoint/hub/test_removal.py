"""What removing a model deletes, what it leaves, and whose models it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local_tp.checkpoint.hub.found import LocalModel, scan
from local_tp.checkpoint.hub.hub_cache import cached_models
from local_tp.checkpoint.hub.removal import removal, remove
from local_tp.errors import CheckpointError

GGUF = b"GGUF" + bytes(96)
SAFETENSORS = (2).to_bytes(8, "little") + b"{}"


def lay(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def left(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def own(root: Path, name: str) -> LocalModel:
    return next(model for model in scan(root, "yours") if model.name == name)


def deleted(model: LocalModel, own: Path, cache: Path) -> int:
    what = removal(model, own, cache)
    remove(what)
    return what.nbytes


def test_all_parts_go_and_the_neighbours_stay(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "o/n/n-Q4_0-00001-of-00002.gguf": GGUF,
            "o/n/n-Q4_0-00002-of-00002.gguf": GGUF,
            "o/n/n-Q8_0.gguf": GGUF,
            "o/n/n-Q8_0.gguf.0123456789ab.part": b"half",
            "o/n/n-Q4_0-00002-of-00002.gguf.0123456789ab.part": b"half",
        },
    )
    assert deleted(own(tmp_path, "o/n/n-Q4_0"), tmp_path, tmp_path / "no") == 204
    assert left(tmp_path / "o/n") == ["n-Q8_0.gguf", "n-Q8_0.gguf.0123456789ab.part"]
    assert deleted(own(tmp_path, "o/n/n-Q8_0"), tmp_path, tmp_path / "no") == 104
    assert left(tmp_path) == []


def test_a_folder_model_goes_and_folders_in_it_stay(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": SAFETENSORS, "sub/n.gguf": GGUF}
    lay(tmp_path / "o/n", files)
    assert deleted(own(tmp_path, "o/n"), tmp_path, tmp_path / "no") == 12
    assert left(tmp_path / "o/n") == ["sub", "sub/n.gguf"]


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    lay(tmp_path, {"elsewhere/n.gguf": GGUF, "elsewhere/deep/m.gguf": GGUF})
    models = tmp_path / "models"
    models.mkdir()
    (models / "n.gguf").symlink_to(tmp_path / "elsewhere/n.gguf")
    (models / "linked").symlink_to(tmp_path / "elsewhere/deep")
    assert deleted(own(models, "n"), models, tmp_path / "no") == 0
    with pytest.raises(CheckpointError, match="where a link in your model folder leads"):
        removal(own(models, "linked/m"), models, tmp_path / "no")
    assert left(models) == ["linked"]
    assert left(tmp_path / "elsewhere") == ["deep", "deep/m.gguf", "n.gguf"]


def cache(root: Path) -> Path:
    """Two commits of a repository, which share a file."""
    repository = root / "models--o--n"
    lay(repository, {f"blobs/{name}": GGUF + name.encode() for name in ("q4", "q8", "old", "read")})
    lay(repository, {"refs/main": b"new"})
    links = {
        "new/n-Q4_0.gguf": "q4",
        "new/n-Q8_0.gguf": "q8",
        "new/README.md": "read",
        "old/n-Q4_0.gguf": "old",
        "old/n-Q8_0.gguf": "q8",
    }
    for name, blob in links.items():
        link = repository / "snapshots" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.join("..", "..", "blobs", blob))
    return repository


def test_one_quantization_of_the_hubs_cache_in_every_commit(tmp_path: Path) -> None:
    repository = cache(tmp_path)
    four, eight = cached_models(tmp_path)
    assert (four.name, eight.name) == ("o/n:Q4_0", "o/n:Q8_0")
    assert deleted(four, tmp_path / "no", tmp_path) == 100 + 2 + 100 + 3
    assert left(repository / "blobs") == ["q8", "read"]
    assert left(repository / "snapshots") == [
        "new",
        "new/README.md",
        "new/n-Q8_0.gguf",
        "old",
        "old/n-Q8_0.gguf",
    ]
    (eight,) = cached_models(tmp_path)
    assert deleted(eight, tmp_path / "no", tmp_path) == 102 + 104 + 3
    assert left(tmp_path) == []


def test_an_unfinished_repository_of_the_hubs_cache(tmp_path: Path) -> None:
    lay(tmp_path / "models--o--n", {"blobs/ab.incomplete": b"12345"})
    (model,) = cached_models(tmp_path)
    assert deleted(model, tmp_path / "no", tmp_path) == 5
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("Ollama", "belongs to Ollama, whose folder is left alone: run `ollama rm x:1b`"),
        ("LM Studio", "belongs to LM Studio, whose folder is left alone: delete it under My"),
        ("text-generation-webui", "delete it from"),
        ("more folders", "delete it from"),
    ],
)
def test_other_programs_models_are_refused(tmp_path: Path, source: str, words: str) -> None:
    lay(tmp_path, {"x.gguf": GGUF})
    model = LocalModel("x:1b", tmp_path / "x.gguf", 100, source, (tmp_path / "x.gguf",))
    with pytest.raises(CheckpointError) as refused:
        removal(model, tmp_path / "own", tmp_path / "cache")
    assert words in str(refused.value)
    assert left(tmp_path) == ["x.gguf"]
