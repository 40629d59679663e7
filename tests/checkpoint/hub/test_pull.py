"""Fetching models from a hub on this machine: whole, resumed and checked."""

from __future__ import annotations

import hashlib
import shutil
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from hub_server import COMMIT, Asked, FakeHub, entry, send
from pulling import FOLDER, GGUF, fetch, here, refused, sized, weights

from local_tp.checkpoint.hub.choice import SeveralVariants
from local_tp.checkpoint.hub.pull import Progress, Pulled

# ------------------------------------------------------------------------------- what is fetched


def test_a_folder_model_without_pickles_and_other_kinds(fake: FakeHub, tmp_path: Path) -> None:
    done = fetch("owner/model")
    kept = [
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert [str(file.path) for file in done.choice.files] == kept
    assert here(tmp_path) == {f"owner/model/{name}": FOLDER[name] for name in kept}
    assert done.pulled.path == tmp_path / "models" / "owner" / "model"
    assert done.pulled.nbytes == sum(len(FOLDER[name]) for name in kept)
    assert done.pulled.fresh
    assert done.choice.notes == (
        "2 other weight files such as 'pytorch_model.bin' are left out: only safetensors are safe "
        "to read",
    )
    assert done.progress[-1] == Progress(
        kept[-1], done.pulled.nbytes, done.pulled.nbytes, done.pulled.nbytes
    )
    again = fetch("owner/model")
    assert not again.pulled.fresh
    assert again.progress == []


def test_a_small_file_of_another_version_is_replaced(fake: FakeHub, tmp_path: Path) -> None:
    fetch("owner/model")
    config = b'{"model_type": "other"}'
    fake.add("owner/model", {**FOLDER, "config.json": config})
    fake.asked.clear()
    assert fetch("owner/model").pulled.fresh
    assert here(tmp_path)["owner/model/config.json"] == config
    assert fake.ranges_of("storage") == []


def test_all_parts_of_one_quantization(fake: FakeHub, tmp_path: Path) -> None:
    done = fetch("hf.co/owner/model-GGUF:q6_k")
    names = [name for name in GGUF if name.startswith("Q6_K/")]
    assert here(tmp_path) == {f"owner/model-GGUF/{name}": GGUF[name] for name in names}
    assert done.pulled.path == tmp_path / "models/owner/model-GGUF" / names[0]
    assert done.choice.notes == ("mmproj-m-f16.gguf is left out: it is no language model",)


def test_the_default_is_one_that_runs_here_and_others_are_named(fake: FakeHub) -> None:
    done = fetch("owner/model-GGUF")
    assert done.choice.label == "Q4_0"
    assert [v.label for v in done.choice.others] == ["Q4_0", "Q8_0", "Q6_K"]


def test_a_program_is_asked_to_choose(fake: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(SeveralVariants) as error:
        fetch("owner/model-GGUF", ask=True)
    assert [(v.label, v.nbytes) for v in error.value.variants] == [
        ("Q4_0", 200_004),
        ("Q8_0", 300_004),
        ("Q6_K", 400_008),
    ]
    assert not (tmp_path / "models").exists()


def test_what_the_hubs_own_cache_has_is_not_fetched(fake: FakeHub, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub-home/hub/models--owner--model-GGUF/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "m-Q8_0.gguf").write_bytes(GGUF["m-Q8_0.gguf"])
    done = fetch("owner/model-GGUF:Q8_0")
    assert done.pulled == Pulled(snapshot / "m-Q8_0.gguf", 300_004, fresh=False)
    assert not (tmp_path / "models").exists()


# ------------------------------------------------------------------ interruptions and checksums


def test_an_interrupted_one_goes_on_where_it_stopped(fake: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch("owner/model-GGUF:Q8_0", stop_at=1)
    digest = hashlib.sha256(GGUF["m-Q8_0.gguf"]).hexdigest()
    part = tmp_path / "models/owner/model-GGUF" / f"m-Q8_0.gguf.{digest[:12]}.part"
    kept = part.stat().st_size
    assert 0 < kept < 300_004
    fake.asked.clear()
    done = fetch("owner/model-GGUF:Q8_0")
    assert fake.ranges_of("storage") == [f"bytes={kept}-300003"]
    assert done.progress[0] == Progress("m-Q8_0.gguf", kept, 300_004, 0)
    assert done.progress[-1] == Progress("m-Q8_0.gguf", 300_004, 300_004, 300_004 - kept)
    assert here(tmp_path) == {"owner/model-GGUF/m-Q8_0.gguf": GGUF["m-Q8_0.gguf"]}


def test_a_body_that_ends_too_early_is_gone_on_with(fake: FakeHub, tmp_path: Path) -> None:
    data, cut = GGUF["m-Q8_0.gguf"], [100_000, 50_000]

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server != "storage" or not cut:
            return False
        start = int((asked.range or "bytes=0-").removeprefix("bytes=").split("-")[0])
        status = 206 if asked.range else 200
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data) - start))
        if asked.range:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        handler.wfile.write(data[start : start + cut.pop(0)])
        handler.close_connection = True
        return True

    fake.trouble = trouble
    done = fetch("owner/model-GGUF:Q8_0")
    assert fake.ranges_of("storage") == [None, "bytes=100000-300003", "bytes=150000-300003"]
    assert here(tmp_path) == {"owner/model-GGUF/m-Q8_0.gguf": data}
    assert len(done.waits) == 2


def test_a_busy_server_is_asked_again_and_not_for_ever(fake: FakeHub, tmp_path: Path) -> None:
    answers = [503, 429, 500]

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server != "storage" or not answers:
            return False
        send(handler, answers.pop(0), Retry_After=7)
        return True

    fake.trouble = trouble
    done = fetch("owner/model-GGUF:Q8_0")
    assert done.waits == [7.0, 7.0, 7.0]
    assert here(tmp_path) == {"owner/model-GGUF/m-Q8_0.gguf": GGUF["m-Q8_0.gguf"]}

    def busy(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        send(handler, 502)
        return True

    fake.trouble = busy
    assert "(the server answers 502): check the connection and start again" in refused(
        "owner/model-GGUF:Q4_0"
    )


def test_a_server_without_ranges_begins_anew(fake: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch("owner/model-GGUF:Q8_0", stop_at=1)
    fake.ranges = False
    done = fetch("owner/model-GGUF:Q8_0")
    assert done.progress[-1].done == 300_004
    assert here(tmp_path) == {"owner/model-GGUF/m-Q8_0.gguf": GGUF["m-Q8_0.gguf"]}


@pytest.mark.parametrize("name", ["m-Q8_0.gguf", "config.json"])
def test_a_wrong_checksum_never_gets_the_name(fake: FakeHub, tmp_path: Path, name: str) -> None:
    repository = "owner/model" if name == "config.json" else "owner/model-GGUF"
    data = fake.repositories[repository][name]
    right = entry(name, data)
    fake.add(repository, {**fake.repositories[repository], name: data[:-1] + b"?"})
    fake.changed = lambda entries: [right if e["path"] == name else e for e in entries]
    said = refused("owner/model" if name == "config.json" else "owner/model-GGUF:Q8_0")
    assert f"{repository}: {name} arrived with another checksum than the hub states" in said
    assert here(tmp_path) == {}


def test_a_damaged_part_is_fetched_once_more(fake: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch("owner/model-GGUF:Q8_0", stop_at=1)
    (part,) = (tmp_path / "models/owner/model-GGUF").glob("*.part")
    with part.open("r+b") as file:
        file.write(b"WRONG")
    fetch("owner/model-GGUF:Q8_0")
    assert here(tmp_path) == {"owner/model-GGUF/m-Q8_0.gguf": GGUF["m-Q8_0.gguf"]}


def test_a_full_disk_is_seen_before_a_byte_is_fetched(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    fake.changed = lambda entries: [e | sized(e, 5_000_000_000) for e in entries]
    said = refused("owner/model-GGUF:Q8_0")
    assert said == (
        f"owner/model-GGUF:Q8_0 needs 5.0 GB more on the disk of {tmp_path} and 100 MB are free: "
        "free 5.0 GB there, or set LOCAL_TP_MODELS to a folder on another disk"
    )
    assert fake.ranges_of("storage") == []


def test_a_folder_that_cannot_be_written_is_named(fake: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    said = refused("owner/model-GGUF:Q8_0")
    assert said.startswith(f"cannot write {tmp_path / 'models'}")
    assert "set LOCAL_TP_MODELS to another folder" in said


def test_two_at_once_do_not_write_one_file(fake: FakeHub, tmp_path: Path) -> None:
    lines: list[str] = []

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server == "storage" and not lines:
            lines.append("")
            lines[0] = refused("owner/model-GGUF:Q8_0")
        return False

    fake.trouble = trouble
    fetch("owner/model-GGUF:Q8_0")
    assert lines == [
        "another process is fetching owner/model-GGUF: m-Q8_0.gguf: wait until it is done"
    ]
    assert here(tmp_path) == {"owner/model-GGUF/m-Q8_0.gguf": GGUF["m-Q8_0.gguf"]}


# --------------------------------------------------------------------------- tokens and refusals


def test_the_token_goes_to_the_hub_and_nowhere_else(
    fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    fake.needs_token = "secret"
    fetch("owner/model-GGUF:Q8_0")
    assert fake.tokens("hub") == {"Bearer secret"}
    assert fake.tokens("storage") == {None}
    assert len(fake.ranges_of("storage")) == 1


def test_the_token_of_somebody_who_logged_in(fake: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "hub-home").mkdir()
    (tmp_path / "hub-home" / "token").write_text("secret\n")
    fake.needs_token = "secret"
    assert fetch("owner/model-GGUF:Q8_0").pulled.fresh


def test_a_gated_repository_says_what_to_do(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.gated, fake.needs_token = True, "secret"
    page = f"{fake.endpoint}/owner/model"
    assert refused("owner/model") == (
        f"owner/model is gated: accept its terms at {page}, then set HF_TOKEN to your token"
    )
    monkeypatch.setenv("HF_TOKEN", "another")
    assert refused("owner/model") == (
        f"owner/model is gated and your token was not let in: accept its terms at {page}"
    )
    fake.gated = False
    assert "forbids owner/model: use a token that may read it" in refused("owner/model")


def test_offline_and_unknown_and_no_address(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused("owner/other")
    assert said == (
        f"{fake.endpoint} has no owner/other: check its spelling, or if private set HF_TOKEN"
    )
    monkeypatch.setenv("HF_ENDPOINT", "nowhere")
    assert "HF_ENDPOINT is 'nowhere', which is no address" in refused("owner/model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(fake.asked)
    assert "HF_HUB_OFFLINE says to ask nothing of the hub" in refused("owner/model")
    assert len(fake.asked) == asked


def test_no_server_at_all(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot get owner/model from http://127.0.0.1:9" in refused("owner/model")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"pytorch_model.bin": b"x"}, "run their maker's code when they are read: look for a GGUF"),
        ({"README.md": b"x"}, "holds no model that can be read"),
        ({"model.safetensors": weights(1)}, "has no config.json"),
        (
            {"config.json": b"{}", "model-00001-of-00003.safetensors": weights(1)},
            "lacks 2 of 3 weight files",
        ),
        ({"m-Q4_0-00001-of-00002.gguf": weights(1)}, "lacks 1 parts of Q4_0"),
    ],
)
def test_what_is_no_whole_model(
    fake: FakeHub, tmp_path: Path, files: dict[str, bytes], words: str
) -> None:
    fake.add("owner/odd", files)
    assert words in refused("owner/odd")
    assert not (tmp_path / "models").exists()


def test_a_quantization_that_is_not_there_or_there_twice(fake: FakeHub) -> None:
    assert refused("owner/model-GGUF:Q5_K_M") == (
        "owner/model-GGUF has no Q5_K_M: choose one of Q4_0 (201 kB), Q8_0 (301 kB), Q6_K (401 kB)"
    )
    assert "has no GGUF files, so no Q4_0: leave out :Q4_0" in refused("owner/model:Q4_0")
    fake.add("owner/two", {"base-Q4_0.gguf": weights(1), "chat-Q4_0.gguf": weights(2)})
    assert "name one as in owner/two:base-Q4_0" in refused("owner/two:Q4_0")
    assert fetch("owner/two:chat-Q4_0").pulled.path.name == "chat-Q4_0.gguf"
