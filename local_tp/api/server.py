"""The HTTP application and its port: `/v1/…` as OpenAI has it, `/health`, and nothing at `/`.

Knows nothing of how text is produced. `/v1` is an application of its own, so its errors have
OpenAI's shape whatever else is mounted beside it. Only pages of this server can use it from a
browser: no CORS headers are sent, and bodies must be declared as JSON, which browsers send to
another origin only with its leave. The `Host` header is not checked: on a machine whose name
server is not trusted, keep to 127.0.0.1 and put a proxy that checks it in front.
"""

from __future__ import annotations

import errno
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp

from local_tp.api import errors
from local_tp.api.body_limit import BodyLimit
from local_tp.api.chat import chat_routes
from local_tp.api.completions import completion_routes
from local_tp.engine.engine import Engine
from local_tp.errors import InputError, PortInUse

LARGEST_BODY = 16 * 1024 * 1024
BACKLOG = 128
GOODBYE_SECONDS = 2  # what running streams get to end in when the server is told to stop


def create_app(engine: Engine) -> FastAPI:
    """The API over a loaded model. `/` is free for a page to be mounted at."""
    app = FastAPI(title="local_tp", openapi_url=None)

    @app.get("/health", response_model=None)
    async def health() -> JSONResponse:
        found = engine.health()
        content = {
            "ok": found.ok,
            "state": found.state,
            "detail": found.detail,
            "model": engine.model,
            "running": found.running,
            "waiting": found.waiting,
            "workers": [
                {"rank": w.rank, "device": w.device, "pid": w.pid, "alive": w.alive}
                for w in found.workers
            ],
        }
        return JSONResponse(content, 200 if found.ok else 503)

    app.mount("/v1", _version_one(engine))
    return app


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, held from now on; port 0 takes any. Raises PortInUse or InputError.

    Call it before anything slow. Clients that connect before `serve` wait for their answer.
    """
    if not 0 <= port < 65536:
        raise InputError(f"port {port} does not exist: choose one from 0 to 65535 with --port")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if sys.platform == "win32":
            # There SO_REUSEADDR would let two servers hold one port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_bind(host, port, error) from error
    return listener


def url(listener: socket.socket) -> str:
    """Where a browser on this machine finds the server."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Tells its owner that it was asked to stop, before it waits for running streams to end.

    The signal is kept for after the event loop: raised within, as the library does, it tears
    through tasks that are still ending.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self.signal: int | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stop()
        self.force_exit = self.signal is not None
        self.signal = sig
        self.should_exit = True


def http_server(app: ASGIApp, on_stop: Callable[[], None] = lambda: None) -> Server:
    """A server that `run(sockets=[…])` starts, and `should_exit` stops from any thread."""
    return Server(
        uvicorn.Config(
            app,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GOODBYE_SECONDS,
        ),
        on_stop,
    )


def serve(
    app: ASGIApp, listener: socket.socket, on_stop: Callable[[], None] = lambda: None
) -> None:
    """Answer until interrupted. Closes `listener`; raises KeyboardInterrupt after Ctrl+C.

    `on_stop` runs in the signal handler and should end what is being streamed.
    """
    server = http_server(app, on_stop)
    server.run(sockets=[listener])
    if server.signal is not None:
        signal.raise_signal(server.signal)


def _version_one(engine: Engine) -> FastAPI:
    app = FastAPI(title="local_tp", openapi_url=None, redirect_slashes=False)
    errors.install(app)
    app.add_middleware(BodyLimit, limit=LARGEST_BODY)
    app.include_router(chat_routes(engine))
    app.include_router(completion_routes(engine))
    model = {
        "id": engine.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "local_tp",
        "context_length": engine.context,
    }

    @app.get("/models", response_model=None)
    async def list_models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [model]})

    @app.get("/models/{name:path}", response_model=None)
    async def retrieve_model(name: str, request: Request) -> JSONResponse:
        if name not in (engine.model, "default"):
            raise errors.model_not_found(name, engine.model)
        return JSONResponse(model)

    return app


def _cannot_bind(host: str, port: int, error: OSError) -> InputError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(host, port)
    if error.errno == errno.EACCES:
        return InputError(
            f"port {port} is reserved on this system: choose 1024 or above with --port"
        )
    return InputError(
        f"{host} is not an address of this machine ({error.strerror}): use --host 127.0.0.1"
    )
