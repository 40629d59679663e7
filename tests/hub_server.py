"""A small hub on this machine: its API, its redirects to another host, and its bad days.

Two real HTTP servers on two ports: the hub, and the place that large files are sent from. What
requests came, with their headers, can be read afterwards.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "1234567890abcdef1234567890abcdef12345678"
SMALL = 4096  # larger files are kept apart and have a SHA-256

Files = dict[str, bytes]


@dataclass
class Asked:
    """A request that came."""

    server: str
    path: str
    range: str | None
    token: str | None


@dataclass
class FakeHub:
    """What the hub has, and how it behaves. `trouble` may answer instead, if it returns true."""

    repositories: dict[str, Files] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    changed: Callable[[list[dict[str, Any]]], list[Any]] = lambda entries: entries
    gated: bool = False
    needs_token: str | None = None
    ranges: bool = True
    page: int = 1000
    endless: bool = False
    elsewhere: Callable[[str], str] | None = None  # where a large file is said to be
    trouble: Callable[[BaseHTTPRequestHandler, str, Asked], bool] = lambda *_: False
    sent: Callable[[bytes], bytes] = lambda data: data  # what is really sent of a large file
    asked: list[Asked] = field(default_factory=list)
    endpoint: str = ""
    storage: str = ""
    _entries: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, files: Files) -> None:
        self.repositories[name] = files

    def listed(self, name: str) -> list[dict[str, Any]]:
        """The entries of a repository; a file's checksums are taken once."""
        made = []
        for path, data in self.repositories[name].items():
            key = (path, id(data))
            if key not in self._entries:
                self._entries[key] = entry(path, data)
            made.append(self._entries[key])
        return made

    def tokens(self, server: str) -> set[str | None]:
        return {asked.token for asked in self.asked if asked.server == server}

    def ranges_of(self, server: str) -> list[str | None]:
        return [asked.range for asked in self.asked if asked.server == server]


@contextmanager
def running(fake: FakeHub) -> Iterator[FakeHub]:
    servers = [_server(fake, name) for name in ("hub", "storage")]
    fake.endpoint, fake.storage = (f"http://127.0.0.1:{s.server_address[1]}" for s in servers)
    threads = [threading.Thread(target=s.serve_forever, args=(0.01,)) for s in servers]
    for thread in threads:
        thread.start()
    try:
        yield fake
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def _server(fake: FakeHub, name: str) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            token = self.headers.get("Authorization")
            asked = Asked(name, self.path, self.headers.get("Range"), token)
            fake.asked.append(asked)
            try:
                if not fake.trouble(self, name, asked):
                    _HUB[name](fake, self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    return _Server(("127.0.0.1", 0), Handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves in the midst of an answer is what some tests are about."""


def send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str | int
) -> None:
    handler.send_response(status)
    for key, value in ({"Content-Length": len(body)} | headers).items():
        handler.send_header(key.replace("_", "-"), str(value))
    handler.end_headers()
    handler.wfile.write(body)


def entry(path: str, data: bytes) -> dict[str, Any]:
    """A file as the tree of a repository lists it."""
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    made: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": blob}
    if len(data) > SMALL:
        sha256 = hashlib.sha256(data).hexdigest()
        made["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 130}
    return made


def _hub(fake: FakeHub, handler: BaseHTTPRequestHandler) -> None:
    url = urlsplit(handler.path)
    wanted = f"Bearer {fake.needs_token}"
    if fake.needs_token is not None and handler.headers.get("Authorization") != wanted:
        gated = {"X-Error-Code": "GatedRepo"} if fake.gated else {}
        send(handler, 403 if handler.headers.get("Authorization") else 401, b"{}", **gated)
        return
    if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/main", url.path):
        if match[1] not in fake.repositories:
            send(handler, 404, b"{}", X_Error_Code="RepoNotFound")
            return
        info = {"id": match[1], "sha": COMMIT, "gated": False, "tags": []} | fake.info
        send(handler, 200, json.dumps(info).encode())
    elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/" + COMMIT, url.path):
        _tree(fake, handler, match[1], url.query)
    elif match := re.fullmatch(rf"/([^/]+/[^/]+)/resolve/{COMMIT}/(.+)", url.path):
        name, path = match[1], unquote(match[2])
        data = fake.repositories.get(name, {}).get(path)
        if data is None:
            send(handler, 404, b"", X_Error_Code="EntryNotFound")
        elif len(data) > SMALL:
            place = fake.elsewhere or (lambda path: f"{fake.storage}/{name}/{path}")
            send(handler, 302, Location=place(path))
        else:
            send(handler, 200, data)
    else:
        send(handler, 404)


def _tree(fake: FakeHub, handler: BaseHTTPRequestHandler, name: str, query: str) -> None:
    entries = fake.changed(fake.listed(name))
    match = re.search(r"cursor=(\d+)", query)
    start = int(match[1]) if match else 0
    headers = {}
    if fake.endless or start + fake.page < len(entries):
        following = f"{fake.endpoint}{urlsplit(handler.path).path}?recursive=true"
        headers["Link"] = f'<{following}&cursor={start + fake.page}>; rel="next"'
    page = entries[: fake.page] if fake.endless else entries[start : start + fake.page]
    send(handler, 200, json.dumps(page).encode(), **headers)


def _storage(fake: FakeHub, handler: BaseHTTPRequestHandler) -> None:
    owner, name, path = unquote(urlsplit(handler.path).path).lstrip("/").split("/", 2)
    data = fake.sent(fake.repositories[f"{owner}/{name}"][path])
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range") or "")
    if match is None or not fake.ranges:
        send(handler, 200, data)
        return
    start, stop = int(match[1]), min(int(match[2] or len(data)) + 1, len(data))
    span = f"bytes {start}-{stop - 1}/{len(data)}"
    send(handler, 206, data[start:stop], Content_Range=span)


_HUB = {"hub": _hub, "storage": _storage}
