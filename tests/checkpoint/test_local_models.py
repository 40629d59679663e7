"""What is on this disk, in the person's folder and in other programs', and what a name means."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local_tp.checkpoint.hub.found import LocalModel
from local_tp.checkpoint.local_models import installed, own_models, resolve
from local_tp.errors import CheckpointError

GGUF = b"GGUF" + bytes(6)
SAFETENSORS = (2).to_bytes(8, "little") + b"{}"
DIGEST = "a1" * 32


def lay(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def models(home: Path, tmp_path: Path) -> Path:
    """A model folder with one of everything."""
    root = tmp_path / "models"
    lay(
        root,
        {
            "Zeta.Q4_0.gguf": GGUF,
            "maker/beta/beta.gguf": GGUF + bytes(10),
            "big-00001-of-00002.gguf": GGUF + bytes(20),
            "big-00002-of-00002.gguf": GGUF + bytes(30),
            "alpha/config.json": b"{}",
            "alpha/model-00001-of-00002.safetensors": SAFETENSORS,
            "alpha/model-00002-of-00002.safetensors": SAFETENSORS,
            "alpha/nested/ignored.gguf": GGUF,
            "half/config.json": b"{}",
            "notes.txt": b"x",
            "mmproj-beta.gguf": GGUF,
            ".starter-x/part.gguf": GGUF,
            "a/b/c/d/deep.gguf": GGUF,
        },
    )
    return root


def listed() -> dict[str, tuple[str, int, str | None]]:
    return {m.name: (m.source, m.nbytes, m.problem) for m in installed()}


# ------------------------------------------------------------------------- the model folder


def test_files_parts_and_folders_are_listed(models: Path) -> None:
    parts = tuple(models / f"big-0000{n}-of-00002.gguf" for n in (1, 2))
    shards = tuple(models / f"alpha/model-0000{n}-of-00002.safetensors" for n in (1, 2))
    beta, zeta = models / "maker/beta/beta.gguf", models / "Zeta.Q4_0.gguf"
    assert own_models() == (
        LocalModel("alpha", models / "alpha", 20, files=shards),
        LocalModel("big", parts[0], 70, files=parts),
        LocalModel("maker/beta/beta", beta, 20, files=(beta,)),
        LocalModel("Zeta.Q4_0", zeta, 10, files=(zeta,)),
    )
    assert installed() == own_models()


def test_a_folder_that_is_not_there_is_empty(home: Path) -> None:
    assert installed() == ()


def test_a_link_that_leads_round_in_circles_ends(models: Path) -> None:
    (models / "maker" / "loop").symlink_to(models, target_is_directory=True)
    assert [model.name for model in own_models()].count("Zeta.Q4_0") == 1


@pytest.mark.parametrize(
    ("files", "name", "problem"),
    [
        ({"m.gguf": b""}, "m", "m.gguf is empty"),
        ({"m.gguf": b"<html>"}, "m", "m.gguf is no GGUF file"),
        ({"m-00002-of-00003.gguf": GGUF}, "m", "1 of 3 parts are here"),
        ({"o/m.gguf.0123456789ab.part": GGUF}, "o/m", "not fetched to its end"),
        ({"m/config.json": b"{}", "m/model.safetensors": b"x" * 20}, "m", "damaged or incomplete"),
        (
            {"m/config.json": b"{}", "m/model.safetensors.0123.part": b"x"},
            "m",
            "not fetched to its end",
        ),
        (
            {
                "m/config.json": b"{}",
                "m/a.safetensors": SAFETENSORS,
                "m/model.safetensors.index.json": b'{"weight_map": {"x": "a.safetensors", '
                b'"y": "b.safetensors", "z": "b.safetensors"}}',
            },
            "m",
            "1 of 2 weight files are here",
        ),
        (
            {
                "m/config.json": b"{}",
                "m/a.safetensors": SAFETENSORS,
                "m/model.safetensors.index.json": b"[" * 10_000,
            },
            "m",
            "model.safetensors.index.json is damaged",
        ),
    ],
)
def test_what_is_broken_or_partial_says_so(
    home: Path, tmp_path: Path, files: dict[str, bytes], name: str, problem: str
) -> None:
    lay(tmp_path / "models", files)
    ((found, (_, _, said)),) = listed().items()
    assert found == name
    assert said is not None
    assert problem in said
    with pytest.raises(CheckpointError, match=r"cannot be used \(.*\): fetch it again") as refused:
        resolve(name)
    assert problem in str(refused.value)


def test_a_link_whose_data_is_gone(models: Path) -> None:
    (models / "Zeta.Q4_0.gguf").unlink()
    (models / "Zeta.Q4_0.gguf").symlink_to(models / "nowhere")
    assert "Zeta.Q4_0.gguf cannot be read" in (listed()["Zeta.Q4_0"][2] or "")


# ------------------------------------------------------------------------------ other folders


def hub_cache(home: Path, files: dict[str, bytes], commit: str = "c0ffee") -> Path:
    """A repository as the hub's own programs keep it: links to blobs."""
    repository = home / ".cache/huggingface/hub/models--owner--name"
    for number, (name, data) in enumerate(files.items()):
        blob = repository / "blobs" / f"{commit}{number}"
        lay(repository, {f"blobs/{blob.name}": data})
        link = repository / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    lay(repository, {"refs/main": commit.encode()})
    return repository / "snapshots" / commit


def test_the_hubs_cache(home: Path) -> None:
    whole = {"config.json": b"{}", "model.safetensors": SAFETENSORS, "tokenizer.json": b"{}"}
    snapshot = hub_cache(home, whole)
    assert listed() == {"owner/name": ("Hugging Face cache", 10, None)}
    assert resolve("owner/name") == snapshot
    hub_cache(home, {"n-Q4_0.gguf": GGUF, "UD/n-UD-IQ1_S-00001-of-00001.gguf": GGUF}, "beef")
    assert set(listed()) == {"owner/name", "owner/name:Q4_0", "owner/name:UD-IQ1_S"}
    found = resolve("owner/name:q4_0")
    assert (found.name, found.parent.name) == ("n-Q4_0.gguf", "beef")


def test_the_hubs_cache_where_it_is_said_to_be(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub_cache(home, {"n-Q4_0.gguf": GGUF})
    os.rename(home / ".cache/huggingface", tmp_path / "elsewhere")
    assert listed() == {}
    monkeypatch.setenv("HF_HOME", str(tmp_path / "elsewhere"))
    assert set(listed()) == {"owner/name:Q4_0"}
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "other"))
    assert listed() == {}
    assert not snapshot.exists()


def test_an_unfinished_repository_in_the_hubs_cache(home: Path) -> None:
    repository = home / ".cache/huggingface/hub/models--owner--name"
    lay(repository, {"blobs/ab.incomplete": b"x"})
    assert listed() == {"owner/name": ("Hugging Face cache", 0, "not fetched to its end")}


def test_lm_studio(home: Path, tmp_path: Path) -> None:
    lay(home / ".lmstudio/models", {"pub/n-GGUF/n-Q4_0.gguf": GGUF, "pub/n-GGUF/mmproj.gguf": GGUF})
    assert listed() == {"pub/n-GGUF/n-Q4_0": ("LM Studio", 10, None)}
    assert resolve("pub/n-GGUF") == home / ".lmstudio/models/pub/n-GGUF/n-Q4_0.gguf"
    lay(tmp_path / "big-disk", {"pub/other/o.gguf": GGUF})
    settings = json.dumps({"downloadsFolder": str(tmp_path / "big-disk")})
    lay(tmp_path / "studio", {"settings.json": settings.encode()})
    lay(home, {".lmstudio-home-pointer": f"{tmp_path / 'studio'}\n".encode()})
    assert set(listed()) == {"pub/n-GGUF/n-Q4_0", "pub/other/o"}


def manifest(*layers: dict[str, object]) -> bytes:
    return json.dumps({"schemaVersion": 2, "layers": layers}).encode()


def model_layer(size: int, digest: str = f"sha256:{DIGEST}") -> dict[str, object]:
    return {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": size}


def test_ollama_by_the_names_that_people_know(home: Path) -> None:
    root = home / ".ollama/models"
    good = manifest(model_layer(10), {"mediaType": "x", "digest": "y", "size": 1})
    lay(
        root,
        {
            f"blobs/sha256-{DIGEST}": GGUF,
            "manifests/registry.ollama.ai/library/llama3.2/3b": good,
        },
    )
    blob = root / "blobs" / f"sha256-{DIGEST}"
    assert listed() == {"llama3.2:3b": ("Ollama", 10, None)}
    assert resolve("llama3.2:3b") == blob
    os.rename(
        root / "manifests/registry.ollama.ai/library/llama3.2/3b",
        root / "manifests/registry.ollama.ai/library/llama3.2/latest",
    )
    assert set(listed()) == {"llama3.2:latest"}
    assert resolve("llama3.2") == blob


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("registry.ollama.ai/some/model/7b", "some/model:7b"),
        ("hf.co/owner/model-GGUF/Q4_0", "hf.co/owner/model-GGUF:Q4_0"),
    ],
)
def test_ollama_from_other_places(home: Path, place: str, name: str) -> None:
    root = home / ".ollama/models"
    lay(root, {f"blobs/sha256-{DIGEST}": GGUF, f"manifests/{place}": manifest(model_layer(10))})
    assert listed() == {name: ("Ollama", 10, None)}
    assert resolve(name).name == f"sha256-{DIGEST}"


@pytest.mark.parametrize(
    ("text", "blob", "problem"),
    [
        (b"[" * 10_000, GGUF, "its manifest cannot be read"),
        (b"[]", GGUF, "its manifest cannot be read"),
        (manifest(model_layer(10, "sha256:../../../etc/passwd")), GGUF, "manifest cannot be read"),
        (manifest(), GGUF, "its manifest names no model"),
        (manifest(model_layer(10)), b"", "incomplete: its file is not as large"),
        (manifest(model_layer(0)), None, "not fetched to its end"),
        (manifest(model_layer(6)), b"<html>", "is no GGUF file"),
        (manifest(model_layer(10), model_layer(10)), GGUF, "it is in 2 files"),
        (manifest({"mediaType": "application/vnd.ollama.image.tensor"}), GGUF, "is no GGUF file"),
    ],
)
def test_ollama_what_cannot_be_used(
    home: Path, text: bytes, blob: bytes | None, problem: str
) -> None:
    root = home / ".ollama/models"
    lay(root, {"manifests/registry.ollama.ai/library/m/1b": text})
    if blob is not None:
        lay(root, {f"blobs/sha256-{DIGEST}": blob})
    assert problem in (listed()["m:1b"][2] or "")


def test_text_generation_webui_and_more_folders(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(
        home / "Downloads/text-generation-webui-main/user_data/models",
        {
            "n-Q4_0.gguf": GGUF,
            "owner_name/config.json": b"{}",
            "owner_name/model.safetensors": SAFETENSORS,
        },
    )
    assert listed() == {
        "n-Q4_0": ("text-generation-webui", 10, None),
        "owner_name": ("text-generation-webui", 10, None),
    }
    lay(tmp_path / "nas", {"x.gguf": GGUF})
    folders = os.pathsep.join([str(tmp_path / "nas"), str(tmp_path / "absent")])
    monkeypatch.setenv("LOCAL_TP_MORE_MODELS", folders)
    assert listed()["x"] == ("more folders", 10, None)


def test_one_file_in_two_folders_counts_once_and_names_stay_apart(models: Path, home: Path) -> None:
    studio = home / ".lmstudio/models"
    lay(studio, {"big.gguf": GGUF, "starter.gguf": GGUF})
    (studio / "linked.gguf").symlink_to(models / "Zeta.Q4_0.gguf")
    names = [model.name for model in installed()]
    assert names == [
        "alpha",
        "big",
        "maker/beta/beta",
        "Zeta.Q4_0",
        "lm-studio/big",
        "lm-studio/starter",
    ]
    assert resolve("big") == models / "big-00001-of-00002.gguf"
    assert resolve("lm-studio/big") == studio / "big.gguf"
    assert resolve("linked") == studio / "linked.gguf"


# ------------------------------------------------------------------------------------ names


def test_names_and_paths_resolve(models: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.gguf"
    elsewhere.write_bytes(b"x")
    assert resolve("alpha") == models / "alpha"
    assert resolve("big") == models / "big-00001-of-00002.gguf"
    assert resolve("Zeta.Q4_0.gguf") == models / "Zeta.Q4_0.gguf"
    assert resolve(elsewhere) == elsewhere
    assert resolve(str(tmp_path)) == tmp_path


def test_a_repository_and_a_quantization_name_what_was_pulled(models: Path) -> None:
    lay(models, {"o/n-GGUF/n-Q4_0.gguf": GGUF, "o/n-GGUF/n-Q8_0.gguf": GGUF})
    assert resolve("o/n-GGUF:Q8_0") == models / "o/n-GGUF/n-Q8_0.gguf"
    assert resolve("https://huggingface.co/o/n-GGUF:n-Q4_0") == models / "o/n-GGUF/n-Q4_0.gguf"
    with pytest.raises(CheckpointError) as refused:
        resolve("o/n-GGUF")
    assert str(refused.value) == (
        "o/n-GGUF is 2 models here: name one of o/n-GGUF/n-Q4_0, o/n-GGUF/n-Q8_0"
    )


def test_an_unknown_name_says_what_is_there(models: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        resolve("gamma")
    said = str(refused.value)
    assert "there is no model 'gamma': use starter, alpha, big, maker/beta/beta, Zeta.Q4_0" in said
    assert str(models) in said
    assert "\n" not in said
    with pytest.raises(CheckpointError, match="fetch it with `local-tp models pull o/gamma:Q4_0`"):
        resolve("o/gamma:Q4_0")


def test_many_models_are_not_all_named(models: Path) -> None:
    for number in range(12):
        (models / f"model{number}.gguf").write_bytes(GGUF)
    with pytest.raises(CheckpointError, match=" and 6 more "):
        resolve("gamma")


def test_the_starter_is_a_name(starter: Path) -> None:
    assert resolve("starter") == starter
