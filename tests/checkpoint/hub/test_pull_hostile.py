"""Hubs and repositories that lie, lead astray or never end: refused, and nothing is written."""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from hub_server import COMMIT, Asked, FakeHub, send
from pulling import GGUF, fetch, here, refused, sized, weights

from local_tp.checkpoint.hub.client import Hub
from local_tp.errors import CheckpointError


@pytest.mark.parametrize(
    "path",
    [
        "../../outside.gguf",
        "/etc/outside.gguf",
        "a/../../outside.gguf",
        "C:/outside.gguf",
        "a\\..\\outside.gguf",
        "nul.gguf",
        "COM1/model.gguf",
        "a//b.gguf",
        "./b.gguf",
        "trailing /b.gguf",
        "dots./b.gguf",
        "stream.gguf:evil.gguf",
        "line\nbreak.gguf",
        "a/b/c/d/e.gguf",
        "x" * 300 + ".gguf",
        ".hidden/model.gguf",
    ],
)
def test_names_that_could_lead_elsewhere(fake: FakeHub, tmp_path: Path, path: str) -> None:
    fake.add("owner/evil", {path: weights(1)})
    assert "which is no safe name for one: it is refused" in refused("owner/evil")
    assert [p.name for p in tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lfs": {"oid": "abc", "size": 5}}, "a SHA-256 is needed"),
        ({"lfs": {"oid": "0" * 64, "size": -1}}, "size = -1"),
        ({"lfs": {"oid": "0" * 64, "size": 1 << 60}}, "at most 4,398,046,511,104"),
        ({"lfs": {"oid": "0" * 64, "size": "7"}}, "size = '7'"),
        ({"lfs": 5}, "an object is needed"),
        ({"path": 5}, "text is needed"),
    ],
)
def test_entries_that_are_none(fake: FakeHub, change: dict[str, Any], words: str) -> None:
    fake.changed = lambda entries: [e | change for e in entries]
    assert words in refused("owner/model-GGUF:Q8_0")


@pytest.mark.parametrize("lie", [299_000, 301_000])
def test_a_size_that_is_a_lie_is_refused_before_it_is_written(
    fake: FakeHub, tmp_path: Path, lie: int
) -> None:
    fake.changed = lambda entries: [e | sized(e, lie) for e in entries]
    said = refused("owner/model-GGUF:Q8_0")
    assert f"has {lie:,} bytes in the listing and 300,004 when it is sent" in said
    assert sum(map(len, here(tmp_path).values())) == 0


def test_a_body_without_a_length_and_without_an_end(fake: FakeHub, tmp_path: Path) -> None:
    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server != "storage":
            return False
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        for _ in range(1000):
            handler.wfile.write(bytes(1 << 20))
        return True

    fake.trouble = trouble
    assert "and more than 300,004 when it is sent" in refused("owner/model-GGUF:Q8_0")
    assert sum(map(len, here(tmp_path).values())) <= 300_004


def test_a_listing_without_an_end(fake: FakeHub) -> None:
    fake.endless = True
    assert "does not end after" in refused("owner/model-GGUF:Q8_0")
    assert len(fake.asked) <= 42


def test_a_listing_that_goes_on_elsewhere(fake: FakeHub) -> None:
    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if "/tree/" not in asked.path:
            return False
        send(handler, 200, b"[]", Link=f'<{fake.storage}/more>; rel="next"')
        return True

    fake.trouble = trouble
    assert "goes on at 127.0.0.1, another place: it is refused" in refused("owner/model-GGUF")
    assert fake.ranges_of("storage") == []


@pytest.mark.parametrize("where", ["revision", "tree"])
def test_an_answer_that_is_too_long_or_no_json(fake: FakeHub, where: str) -> None:
    body = b"[" + b"1," * 6_000_000

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if f"/{where}/" not in asked.path:
            return False
        send(handler, 200, body)
        return True

    fake.trouble = trouble
    assert "with more than 8,388,608 bytes: it is refused" in refused("owner/model-GGUF")
    body = b"<html>"
    assert "something that is not JSON" in refused("owner/model-GGUF")
    body = b"[" * 100_000
    assert "something that is not JSON" in refused("owner/model-GGUF")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file:///etc/passwd", "leads to an address that is none"),
        ("", "from one address to the next"),
    ],
)
def test_redirects_that_lead_nowhere(fake: FakeHub, place: str, words: str) -> None:
    own = f"{fake.endpoint}/owner/model-GGUF/resolve/{COMMIT}/m-Q8_0.gguf"
    fake.elsewhere = lambda path: place or own
    assert words in refused("owner/model-GGUF:Q8_0")


def test_a_redirect_away_from_encryption_is_refused() -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": "http://hub.test/x"})

    with httpx.Client(transport=httpx.MockTransport(answers)) as http:
        connection = Hub(http, "https://hub.test", "secret", wait=lambda seconds: None)
        with pytest.raises(CheckpointError, match=r"hub\.test without encryption"):
            connection.bytes("/x", 10, "owner/model")


@pytest.mark.skipif(os.name == "nt", reason="its links need a right")
def test_a_link_in_the_model_folder_is_not_written_through(fake: FakeHub, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = tmp_path / "models/owner/model-GGUF"
    folder.mkdir(parents=True)
    (folder / "m-Q8_0.gguf").symlink_to(victim)
    fetch("owner/model-GGUF:Q8_0")
    assert victim.read_bytes() == b"precious"
    assert (folder / "m-Q8_0.gguf").read_bytes() == GGUF["m-Q8_0.gguf"]
