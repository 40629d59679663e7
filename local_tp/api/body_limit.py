"""A bound on request bodies, held while they arrive.

Knows nothing of what is in them. A body whose declared length is too large is not read at all; one
of undeclared length is given up at the first byte too many.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from local_tp.api.errors import ApiError


class BodyLimit:
    """ASGI middleware; `limit` in bytes."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        message = f"the request body is larger than {self.limit:,} bytes: send a shorter one"
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > self.limit:
            refusal = ApiError(413, message, code="request_too_large").response()
            await refusal(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            event = await receive()
            received += len(event.get("body", b""))
            if received > self.limit:
                # The one exception that FastAPI lets through while it reads a body.
                raise HTTPException(413, message)
            return event

        await self.app(scope, counted, send)
