"""POST /v1/chat/completions: a conversation in, an assistant's turn out, whole or as a stream.

Knows nothing of templates or of how an answer is found; that is the engine's. Everything that can
be refused is refused before a status is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from local_tp.api.answers import Head, check, usage
from local_tp.api.errors import bad_request, from_engine
from local_tp.api.events import Frames, event_stream
from local_tp.api.generations import Events, collect, read, start
from local_tp.api.logprobs import chat_logprobs
from local_tp.api.schemas import ChatBody
from local_tp.core import TokenLogprob
from local_tp.engine.engine import Engine
from local_tp.engine.generation import Generation
from local_tp.errors import InputError


def chat_routes(engine: Engine) -> APIRouter:
    router = APIRouter()

    @router.post("/chat/completions", response_model=None)
    async def create_chat_completion(body: ChatBody, request: Request) -> Response:
        check(engine, body)
        generations = await _submit(engine, body)
        events = read(request, generations)
        if body.stream:
            return await event_stream(_frames(engine, body, generations, events))
        return await _whole(engine, body, generations, events)

    return router


async def _submit(engine: Engine, body: ChatBody) -> list[Generation]:
    """One generation a choice. Raises ApiError 400 for a prompt that cannot be answered."""
    limit, alternatives = _limit(body), _alternatives(body)
    messages = [message.for_template() for message in body.messages]
    try:
        # Rendering and encoding a long conversation would hold up every other stream.
        variables = body.chat_template_kwargs or {}
        prompt = await run_in_threadpool(engine.chat_prompt, messages, **variables)
        return start(
            [
                partial(
                    engine.submit,
                    prompt,
                    body.sampling(choice, alternatives),
                    max_tokens=limit,
                    stop=body.stop_strings,
                )
                for choice in range(body.choices)
            ]
        )
    except InputError as error:
        raise from_engine(error, prompt="messages") from error


def _limit(body: ChatBody) -> int | None:
    both = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(both) > 1:
        raise bad_request(
            "'max_tokens' and 'max_completion_tokens' differ: give one of them", "max_tokens"
        )
    return both.pop() if both else None


def _alternatives(body: ChatBody) -> int | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("'top_logprobs' needs 'logprobs' to be true", "top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


async def _whole(
    engine: Engine, body: ChatBody, generations: Sequence[Generation], events: Events
) -> JSONResponse:
    head = Head("chatcmpl", "chat.completion", engine.model)
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": _logprobs(engine, body, answer.logprobs),
            "finish_reason": answer.finish_reason,
        }
        for index, answer in enumerate(await collect(events, generations))
    ]
    return JSONResponse(head.frame(choices, **usage(generations, body.choices)))


async def _frames(
    engine: Engine, body: ChatBody, generations: Sequence[Generation], events: Events
) -> Frames:
    """For each choice its role, then its text, then its finish reason; the choices interleave."""
    head = Head("chatcmpl", "chat.completion.chunk", engine.model)
    without_usage = {"usage": None} if body.include_usage else {}
    opened: set[int] = set()

    def frame(
        index: int,
        delta: dict[str, str],
        logprobs: Sequence[TokenLogprob] = (),
        finish_reason: str | None = None,
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(engine, body, logprobs) if logprobs else None,
            "finish_reason": finish_reason,
        }
        return head.frame([choice], **without_usage)

    async with aclosing(events):
        async for index, chunk in events:
            if index not in opened:
                opened.add(index)
                yield frame(index, {"role": "assistant", "content": ""})
            if chunk is None:
                yield frame(index, {}, finish_reason=generations[index].finish_reason)
            elif chunk.text or chunk.logprobs:
                yield frame(index, {"content": chunk.text}, chunk.logprobs)
    if body.include_usage:
        yield head.frame([], **usage(generations, body.choices))


def _logprobs(
    engine: Engine, body: ChatBody, entries: Sequence[TokenLogprob]
) -> dict[str, Any] | None:
    return chat_logprobs(engine.tokenizer, entries) if body.logprobs else None
