"""One connection to the hub: requests with a token, redirects, patience, and limits on answers.

Knows nothing of repositories. The token goes to the hub's own address and to no other, however
a redirect asks; no answer is kept beyond the bytes that its caller allows. The hub's library is not
used for this: it begins interrupted files anew, checks their sizes alone, and bounds no listing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx

from local_tp import settings
from local_tp.errors import CheckpointError

Wait = Callable[[float], None]
Result = TypeVar("Result")

TRIES = 4
_MOST_REDIRECTS = 5
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 30.0
_LONGEST_ANSWER = 60.0  # seconds for a JSON answer, however slowly it trickles in
_TIMES = httpx.Timeout(30.0, connect=15.0)


class Interrupted(Exception):
    """The connection broke or the server was busy: the same may be asked again."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Answer:
    """The opening of an answer; `body` yields blocks until the connection ends."""

    status: int
    headers: httpx.Headers
    body: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub as one person sees it. `wait` sleeps between tries."""

    http: httpx.Client
    endpoint: str
    token: str | None
    wait: Wait = time.sleep

    def json(self, path: str, most: int, what: str) -> tuple[object, httpx.Headers]:
        """The JSON under a path or an address of the hub, of at most `most` bytes.

        Raises `CheckpointError`, which names `what` was asked for.
        """
        data, headers = self.bytes(path, most, what)
        try:
            return json.loads(data), headers
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"{self.endpoint} answered for {what} with something that is not JSON: check "
                "HF_ENDPOINT, or try again later"
            ) from error

    def bytes(self, path: str, most: int, what: str) -> tuple[bytes, httpx.Headers]:
        """A whole answer of at most `most` bytes. Raises `CheckpointError`."""

        def whole() -> tuple[bytes, httpx.Headers]:
            until = time.monotonic() + _LONGEST_ANSWER
            with self.opened(path, what) as answer:
                data = bytearray()
                for block in answer.body:
                    data += block
                    if len(data) > most:
                        raise CheckpointError(
                            f"{self.endpoint} answers for {what} with more than {most:,} bytes: "
                            "it is refused"
                        )
                    if time.monotonic() > until:
                        raise Interrupted("it answers too slowly")
                return bytes(data), answer.headers

        return self.patiently(whole, what)

    def patiently(self, once: Callable[[], Result], what: str) -> Result:
        """`once`, and again after a wait where it was interrupted. Raises `CheckpointError`."""
        for tried in range(TRIES):
            try:
                return once()
            except Interrupted as error:
                if tried + 1 == TRIES:
                    raise self.gave_up(error, what) from error
                self.pause(tried, error)
        raise AssertionError("the last try returns or raises")

    def pause(self, tried: int, error: Interrupted) -> None:
        """Waits for as long as the server asked, or twice as long after each try."""
        asked = 2.0 ** (tried - 1) if error.wait is None else error.wait
        self.wait(min(asked, _LONGEST_WAIT))

    def gave_up(self, error: Interrupted, what: str) -> CheckpointError:
        return CheckpointError(
            f"cannot get {what} from {self.endpoint} ({error}): check the connection and start "
            "again"
        )

    @contextmanager
    def opened(self, path: str, what: str, span: str | None = None) -> Iterator[Answer]:
        """An answer whose body is still to be read, after redirects; `span` is a Range header.

        Raises `Interrupted`, or `CheckpointError` for a refusal.
        """
        url = httpx.URL(path if "://" in path else f"{self.endpoint}{path}")
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                request = self.http.build_request("GET", url, headers=self._headers(url, span))
                response = self.http.send(request, stream=True)
                try:
                    if response.has_redirect_location:
                        url = self._next(url, response, what)
                        continue
                    self._check(response, what)
                    yield Answer(response.status_code, response.headers, _blocks(response))
                    return
                finally:
                    response.close()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Interrupted(_reason(error)) from error
        except httpx.InvalidURL as error:
            raise CheckpointError(f"{self.endpoint} leads to an address that is none") from error
        raise CheckpointError(
            f"{self.endpoint} leads from one address to the next for {what} and never answers: "
            "try again later"
        )

    def is_own(self, url: httpx.URL) -> bool:
        """Whether an address belongs to the hub: the same scheme, host and port."""
        return _origin(url) == _origin(httpx.URL(self.endpoint))

    def _headers(self, url: httpx.URL, span: str | None) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if self.token is not None and self.is_own(url):
            headers["Authorization"] = f"Bearer {self.token}"
        if span is not None:
            headers["Range"] = span
        return headers

    def _next(self, url: httpx.URL, response: httpx.Response, what: str) -> httpx.URL:
        target = url.join(response.headers["Location"])
        if target.scheme not in ("http", "https") or not target.host:
            raise CheckpointError(f"{self.endpoint} leads to an address that is none for {what}")
        if url.scheme == "https" and target.scheme == "http":
            raise CheckpointError(
                f"{self.endpoint} leads to {target.host} without encryption for {what}: it is "
                "refused"
            )
        return target

    def _check(self, response: httpx.Response, what: str) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        if status in _BUSY:
            raise Interrupted(f"the server answers {status}", _retry_after(response))
        if status in (401, 403, 404):
            raise CheckpointError(self._refusal(status, response.headers, what))
        raise CheckpointError(f"{self.endpoint} answers {status} for {what}: try again later")

    def _refusal(self, status: int, headers: httpx.Headers, what: str) -> str:
        code = headers.get("X-Error-Code", "")
        page = f"{self.endpoint}/{what.partition(':')[0].partition(' ')[0]}"
        if code == "GatedRepo":
            if self.token is None:
                return (
                    f"{what} is gated: accept its terms at {page}, then set HF_TOKEN to your token"
                )
            return f"{what} is gated and your token was not let in: accept its terms at {page}"
        if status == 404 and code in ("EntryNotFound", "RevisionNotFound"):
            return f"{self.endpoint} has no such file for {what}: it was moved; start again"
        if status in (401, 404):
            otherwise = "set HF_TOKEN" if self.token is None else "use a token that may read it"
            return f"{self.endpoint} has no {what}: check its spelling, or if private {otherwise}"
        return f"{self.endpoint} forbids {what}: use a token that may read it (HF_TOKEN)"


@contextmanager
def hub(wait: Wait = time.sleep) -> Iterator[Hub]:
    """The hub that the settings name. Raises `CheckpointError` in offline mode."""
    if settings.hub_offline():
        raise CheckpointError(
            "HF_HUB_OFFLINE says to ask nothing of the hub: unset it, or name a model that is here "
            "(`local-tp models`)"
        )
    endpoint = settings.hub_endpoint()
    try:
        address = httpx.URL(endpoint)
        sound = address.scheme in ("http", "https") and bool(address.host)
    except httpx.InvalidURL:
        sound = False
    if not sound:
        raise CheckpointError(
            f"HF_ENDPOINT is {endpoint!r}, which is no address: set one such as "
            "https://huggingface.co"
        )
    with httpx.Client(timeout=_TIMES, headers={"User-Agent": "local-tp"}) as http:
        yield Hub(http, endpoint, settings.hub_token(), wait)


def _blocks(response: httpx.Response) -> Iterator[bytes]:
    """The body in small blocks, as it was sent: nothing is unpacked."""
    try:
        yield from response.iter_raw()  # of larger blocks a broken connection would lose the last
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise Interrupted(_reason(error)) from error


def _reason(error: Exception) -> str:
    said = str(error).splitlines()
    return said[0][:120] if said and said[0] else type(error).__name__


def _retry_after(response: httpx.Response) -> float | None:
    stated = response.headers.get("Retry-After", "").strip()
    return float(stated) if stated.isdecimal() and len(stated) < 6 else None


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, port
