"""Server-sent events: frames of JSON as `data:` lines, `[DONE]` at the end, errors in the stream.

Knows nothing of what the frames say. The status is only sent once the first frame is there, so
whatever goes wrong before it is a proper HTTP error; what goes wrong after it is an error event,
on which OpenAI's client raises, and no `[DONE]`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from local_tp.api.errors import from_engine
from local_tp.errors import LocalTpError

Frame = dict[str, Any]
Frames = AsyncGenerator[Frame, None]
DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """A response that ends, and closes its frames, when they end or the client is gone.

    The frames themselves raise ClientDisconnect: a client that leaves is noticed between two
    tokens, not at the next one.
    """

    media_type = "text/event-stream"

    def __init__(self, first: Frame, rest: Frames) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]  # the length of a body that is not known yet
        self.first, self.rest = first, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.rest) as rest:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            await _send(send, encoded(self.first))
            try:
                async for frame in rest:
                    await _send(send, encoded(frame))
                await _send(send, DONE)
            except LocalTpError as error:
                await _send(send, encoded(from_engine(error).body))
            except ClientDisconnect:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def event_stream(frames: Frames) -> EventStream:
    """A stream that has begun. Raises what keeps the first frame from coming."""
    return EventStream(await anext(frames), frames)


def encoded(frame: Frame) -> bytes:
    """One event, in UTF-8: JSON has no bare line ends, so it is one line."""
    return f"data: {json.dumps(frame, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
