"""A server that runs for a while, and requests made by hand, for what OpenAI's client hides."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI

from local_tp.api.server import bind, http_server, url

CHAT: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": "Hi"}]}
TEXT: dict[str, Any] = {"model": "default", "prompt": "Hi"}
JSON = {"Content-Type": "application/json"}


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """Serve `app` on a free port of this machine; gives its address."""
    listener = bind("127.0.0.1", 0)
    server = http_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield url(listener)
    finally:
        server.should_exit = True
        thread.join(10)
    assert not thread.is_alive()


def asked(
    address: str,
    method: str,
    path: str,
    body: bytes | Iterator[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and parsed body of one request."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return response.status, fields, json.loads(response.read())
    finally:
        connection.close()


def left_open(address: str, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection on which a request was sent and nothing was read yet."""
    where, data = urlsplit(address), json.dumps(body).encode()
    connection = socket.create_connection((where.hostname, where.port), timeout=10)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def refused(address: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The error of a request that must be answered 400."""
    status, _, answer = asked(address, "POST", path, json.dumps(body).encode(), JSON)
    assert status == 400, answer
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["type"] == "invalid_request_error"
    error: dict[str, Any] = answer["error"]
    return error
