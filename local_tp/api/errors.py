"""Errors as OpenAI's clients read them: `{"error": {message, type, param, code}}` and a status.

The one place where errors of local_tp, of validation and of HTTP become that shape. Knows nothing
of endpoints. Every answer outside 2xx under `/v1` is built here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from local_tp.errors import (
    Cancelled,
    CollectiveTimeout,
    InputError,
    LocalTpError,
    PromptTooLong,
    TemplateError,
    WorkerDied,
)


class ApiError(Exception):
    """A request that is answered with an error; `param` names the parameter at fault."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        return JSONResponse(self.body, self.status, headers)


def bad_request(message: str, param: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, param=param, code=code)


def model_not_found(name: str, served: str) -> ApiError:
    return ApiError(
        404,
        f"the model '{name}' is not served here: ask for '{served}' or 'default'",
        param="model",
        code="model_not_found",
    )


def from_engine(error: LocalTpError, prompt: str | None = None) -> ApiError:
    """The engine's error as the API's; `prompt` is the parameter that the prompt came from."""
    message = str(error)
    match error:
        case PromptTooLong():
            return ApiError(400, message, param=prompt, code="context_length_exceeded")
        case TemplateError():
            return ApiError(400, message, param=prompt, code="invalid_chat_template")
        case InputError():
            return ApiError(400, message, code="invalid_value")
        case WorkerDied() | CollectiveTimeout():
            return ApiError(503, message, code="worker_lost")
        case Cancelled():
            return ApiError(503, message, code="cancelled")
        case _:
            return ApiError(500, message, code="engine_failed")


def from_validation(error: RequestValidationError) -> ApiError:
    """The validation error that got furthest into the body, with the path that leads to it.

    A value that may have several forms fails once for each. The deepest failure, or one of the
    right type with a wrong value, belongs to the form that was meant.
    """
    found = [(_path(entry, error.body), entry) for entry in error.errors()]
    if found[0][1]["type"] == "json_invalid":
        reason = found[0][1]["ctx"]["error"]
        return ApiError(400, f"the request body is not JSON: {reason}", code="invalid_json")
    if not isinstance(error.body, dict):
        return ApiError(
            400,
            "the request body must be a JSON object, sent with Content-Type: application/json",
            code="invalid_json",
        )
    path, entry = max(found, key=lambda item: (len(item[0]), not _is_type_error(item[1])))
    if not path:
        return ApiError(400, f"the request body is not valid: {entry['msg']}", code="invalid_value")
    param = _written(path)
    match entry["type"]:
        case "missing":
            return bad_request(f"'{param}' is required", param, "missing_required_parameter")
        case "extra_forbidden":
            return bad_request(f"'{param}' is not a known parameter", param, "unknown_parameter")
        case "unsupported_parameter":
            return bad_request(f"'{param}' {entry['msg']}", param, "unsupported_parameter")
    wrong_type = _is_type_error(entry)
    reasons = dict.fromkeys(
        other["msg"][:1].lower() + other["msg"][1:]
        for where, other in found
        if where == path and _is_type_error(other) == wrong_type
    )
    code = "invalid_type" if wrong_type else "invalid_value"
    return bad_request(f"'{param}' is not valid: {'; or '.join(reasons)}", param, code)


def install(app: FastAPI) -> None:
    """Answer every error of `app` in OpenAI's shape."""

    async def refused(request: Request, error: ApiError) -> Response:
        return error.response()

    async def failed(request: Request, error: LocalTpError) -> Response:
        return from_engine(error).response()

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return from_validation(error).response()

    async def http(request: Request, error: HTTPException) -> Response:
        return _from_http(request, error).response(error.headers)

    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody reads it

    async def broken(request: Request, error: Exception) -> Response:
        return ApiError(500, "an internal error: the log of the server says where").response()

    app.exception_handler(ApiError)(refused)
    app.exception_handler(LocalTpError)(failed)
    app.exception_handler(RequestValidationError)(invalid)
    app.exception_handler(HTTPException)(http)
    app.exception_handler(ClientDisconnect)(gone)
    app.exception_handler(Exception)(broken)


def _from_http(request: Request, error: HTTPException) -> ApiError:
    path = request.url.path
    match error.status_code:
        case 404:
            return ApiError(404, f"there is nothing at {path}", code="not_found")
        case 405:
            message = f"{request.method} is not allowed at {path}"
            return ApiError(405, message, code="method_not_allowed")
        case 413:
            return ApiError(413, error.detail, code="request_too_large")
        case status:
            return ApiError(status, error.detail)


def _is_type_error(entry: Mapping[str, Any]) -> bool:
    kind: str = entry["type"]
    return kind.endswith("_type")


def _path(entry: Mapping[str, Any], body: Any) -> tuple[str | int, ...]:
    """Where in the body an error lies: its location without the names of tried forms."""
    path: list[str | int] = []
    places: Sequence[str | int] = entry["loc"][1:]
    for place in places:
        try:
            body = body[place]
        except (KeyError, IndexError, TypeError):
            if entry["type"] != "missing" or place != places[-1]:
                continue
        path.append(place)
    return tuple(path)


def _written(path: Sequence[str | int]) -> str:
    """`messages[0].content`, as OpenAI writes it."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
