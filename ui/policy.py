"""The page's Content-Security-Policy: a browser that shows it contacts no other host.

Knows nothing of the page. Answers and questions may name pictures, fonts or frames of other hosts;
to fetch one would tell that host who reads what, and when.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "Content-Security-Policy"
# Gradio starts from inline scripts and compiles the `js` of events; its styles are inline, too.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)


class LocalOnly:
    """Adds the policy to every HTTP response of `app`; streams pass through as they come."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = POLICY
            await send(message)

        await self.app(scope, receive, send_with_policy if scope["type"] == "http" else send)
