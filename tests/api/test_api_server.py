"""The HTTP side: addresses, bounds, clients that leave, servers that stop, and ports."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest
from fastapi.responses import PlainTextResponse
from http_side import CHAT, JSON, TEXT, asked, left_open, running
from scripted_engine import ScriptedEngine, ScriptedHealth, ScriptedWorker
from starlette.types import Receive, Scope, Send

from local_tp.api.server import LARGEST_BODY, bind, create_app, http_server, url
from local_tp.errors import InputError, PortInUse


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# ------------------------------------------------------------------------------- endpoints


def test_models(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    assert [model.id for model in client.models.list()] == ["tiny/bytes-Q4_1.gguf"]
    assert client.models.retrieve(engine.model).owned_by == "local_tp"
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("gpt-4o")
    assert raised.value.code == "model_not_found"


def test_health(address: str, engine: ScriptedEngine) -> None:
    status, _, body = asked(address, "GET", "/health")
    assert status == 200
    assert body == {
        "ok": True,
        "state": "ready",
        "detail": "2 workers",
        "model": "tiny/bytes-Q4_1.gguf",
        "running": 0,
        "waiting": 0,
        "workers": [{"rank": 0, "device": "cpu", "pid": 4711, "alive": True}],
    }
    gone = (ScriptedWorker(0, "cpu", None, False),)
    engine.state = ScriptedHealth(False, "failed", "worker 0 on cpu died (signal 9)", gone)
    status, _, body = asked(address, "GET", "/health")
    assert status == 503
    assert body["detail"] == "worker 0 on cpu died (signal 9)"
    assert body["workers"] == [{"rank": 0, "device": "cpu", "pid": None, "alive": False}]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/embeddings", 404, "not_found"),
        ("POST", "/v1/chat", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
def test_wrong_addresses(address: str, method: str, path: str, status: int, code: str) -> None:
    found, _, body = asked(address, method, path)
    assert found == status
    assert body["error"]["code"] == code
    assert path in body["error"]["message"]


def test_a_page_can_be_mounted_at_the_root(engine: ScriptedEngine) -> None:
    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse('"a page"')(scope, receive, send)

    app = create_app(engine)
    app.mount("/", page)
    with running(app) as address:
        assert asked(address, "GET", "/")[2] == "a page"
        assert asked(address, "GET", "/health")[2]["ok"]
        assert asked(address, "GET", "/v1/chat/completions")[0] == 405
        assert asked(address, "GET", "/v1/other")[2]["error"]["code"] == "not_found"


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies(address: str, declared: bool) -> None:
    block = b" " * 1024 * 1024
    blocks = LARGEST_BODY // len(block) + 1
    body = block * blocks if declared else iter([block] * blocks)
    status, _, answer = asked(address, "POST", "/v1/completions", body, JSON)
    assert status == 413
    assert answer["error"]["code"] == "request_too_large"


def test_other_origins_get_no_leave(address: str, engine: ScriptedEngine) -> None:
    headers = JSON | {"Origin": "https://example.com"}
    _, fields, _ = asked(
        address, "POST", "/v1/chat/completions", json.dumps(CHAT).encode(), headers
    )
    assert not [name for name in fields if name.startswith("access-control")]
    status, fields, _ = asked(address, "OPTIONS", "/v1/chat/completions", headers=headers)
    assert status == 405
    assert not [name for name in fields if name.startswith("access-control")]


def test_streams_are_not_held_back(address: str, engine: ScriptedEngine) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    engine.answer, engine.pause = "x" * 1000, 0.05
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(CHAT | {"stream": True}).encode(), JSON
    )
    response = connection.getresponse()
    assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert response.getheader("cache-control") == "no-cache"
    assert response.getheader("x-accel-buffering") == "no"
    assert response.getheader("content-length") is None
    assert b'"role":"assistant"' in response.readline()
    assert engine.threads[0].is_alive()  # it has 50 seconds of text to go
    response.close()
    connection.close()


# ------------------------------------------------------------------------ clients that leave


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("stream", "after"), [(True, 3), (True, 0), (False, 0)])
def test_leaving_cancels_at_once(
    address: str, engine: ScriptedEngine, path: str, stream: bool, after: int
) -> None:
    """After some tokens of a stream, or while the first (or the whole answer) is waited for."""
    engine.answer, engine.pause = "x" * 1000, 0.02 if after else 60
    body = (CHAT if "chat" in path else TEXT) | {"stream": stream, "n": 2, "max_tokens": 1000}
    with left_open(address, path, body) as connection:
        received = b""
        while received.count(b"data:") < after:
            received += connection.recv(4096)
        wait_until(lambda: len(engine.submitted) == 2)
        assert not any(left.is_set() for left in engine.cancelled.values())
        left_at = time.perf_counter()
    for left in engine.cancelled.values():
        assert left.wait(5)
    assert time.perf_counter() - left_at < 2
    assert len(engine.cancelled) == 2


def test_leaving_through_the_client(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.answer, engine.pause = "x" * 1000, 0.02
    stream = client.chat.completions.create(model="default", messages=CHAT["messages"], stream=True)
    next(iter(stream))
    stream.close()
    assert engine.cancelled[0].wait(5)


def test_a_server_that_stops_cancels(engine: ScriptedEngine) -> None:
    engine.answer, engine.pause = "x" * 1000, 60
    listener = bind("127.0.0.1", 0)
    server = http_server(create_app(engine))
    server.config.timeout_graceful_shutdown = 0
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with left_open(url(listener), "/v1/chat/completions", CHAT):
        wait_until(lambda: bool(engine.submitted))
        server.should_exit = True
        assert engine.cancelled[0].wait(5)
    thread.join(10)
    assert not thread.is_alive()


SERVING = """
from scripted_engine import ScriptedEngine
from local_tp.api.server import bind, create_app, serve, url

listener = bind("127.0.0.1", 0)
print(url(listener), flush=True)
try:
    serve(create_app(ScriptedEngine()), listener)
except KeyboardInterrupt:
    print("interrupted", listener.fileno())
"""


def test_serve_until_interrupted() -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert asked(address, "GET", "/health")[2]["state"] == "ready"  # waits for `serve`
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    assert output.split() == ["interrupted", "-1"]  # its socket is closed
    assert process.returncode == 0


# ----------------------------------------------------------------------------------- ports


def test_port_in_use() -> None:
    with bind("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use") as raised:
            bind("127.0.0.1", port)
        assert raised.value.exit_code == 2
    bind("127.0.0.1", port).close()  # given back with the socket


@pytest.mark.parametrize(
    ("host", "port", "remedy"),
    [("127.0.0.1", 65536, "--port"), ("192.0.2.1", 0, "--host"), ("no host", 0, "--host")],
)
def test_addresses_that_cannot_be(host: str, port: int, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        bind(host, port)


@pytest.mark.parametrize(
    ("host", "start"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:")]
)
def test_url(host: str, start: str) -> None:
    with bind(host, 0) as listener:
        assert url(listener) == f"{start}{listener.getsockname()[1]}"
