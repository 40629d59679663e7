"""POST /v1/completions: plain text or tokens in, their continuation out, whole or as a stream.

Knows nothing of chat. Choices are numbered prompt by prompt, `n` for each; an echoed prompt is
part of its choice's text, and is scored where log probabilities are asked for too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from local_tp.api.answers import Head, check, usage
from local_tp.api.errors import bad_request, from_engine
from local_tp.api.events import Frames, event_stream
from local_tp.api.generations import Events, collect, read, start
from local_tp.api.logprobs import TextLogprobs
from local_tp.api.schemas import MOST_CHOICES, TextBody
from local_tp.core import TokenLogprob
from local_tp.engine.engine import Engine
from local_tp.engine.generation import Generation
from local_tp.errors import InputError

DEFAULT_LENGTH = 16  # OpenAI's, for this endpoint


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as tokens, and as the text that `echo` returns."""

    tokens: Sequence[int]
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request under way: what was asked, and the generations that answer it."""

    engine: Engine
    body: TextBody
    prompts: Sequence[Prompt]
    generations: Sequence[Generation]

    def prompt(self, index: int) -> Prompt:
        return self.prompts[index // self.body.choices]


@dataclass(slots=True)
class Choice:
    """Writes the pieces of one choice, the echo first."""

    asked: Asked
    index: int
    logprobs: TextLogprobs = field(init=False)

    def __post_init__(self) -> None:
        self.logprobs = TextLogprobs(self.asked.engine.tokenizer)

    def echo(self) -> dict[str, Any]:
        text = self.asked.prompt(self.index).text
        if self.asked.body.logprobs is None:
            return self._piece(text, None)
        generation = self.asked.generations[self.index]
        scores = generation.prompt_scores
        return self._piece(text, self.logprobs.prompt(text, generation.prompt, scores))

    def more(self, text: str, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        scored = self.asked.body.logprobs is not None
        return self._piece(text, self.logprobs.chunk(entries) if scored else None)

    def end(self) -> dict[str, Any]:
        reason = self.asked.generations[self.index].finish_reason
        return self._piece("", None) | {"finish_reason": reason}

    def _piece(self, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": self.index, "text": text, "logprobs": logprobs, "finish_reason": None}


def completion_routes(engine: Engine) -> APIRouter:
    router = APIRouter()

    @router.post("/completions", response_model=None)
    async def create_completion(body: TextBody, request: Request) -> Response:
        check(engine, body)
        try:
            prompts = await run_in_threadpool(_prompts, engine, body)
            asked = Asked(engine, body, prompts, _submit(engine, body, prompts))
        except InputError as error:
            raise from_engine(error, prompt="prompt") from error
        events = read(request, asked.generations)
        if body.stream:
            return await event_stream(_frames(asked, events))
        return await _whole(asked, events)

    return router


def _prompts(engine: Engine, body: TextBody) -> list[Prompt]:
    """Raises ApiError 400 for tokens that the model lacks, and for prompts of none."""
    if len(body.prompts) * body.choices > MOST_CHOICES:
        raise bad_request(
            f"'prompt' and 'n' ask for more than {MOST_CHOICES} choices: split the request",
            "prompt",
        )
    prompts = [_prompt(engine, prompt, echo=bool(body.echo)) for prompt in body.prompts]
    if not all(prompt.tokens for prompt in prompts):
        raise bad_request("'prompt' is empty: give at least one token", "prompt")
    return prompts


def _prompt(engine: Engine, prompt: str | list[int], *, echo: bool) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(engine.text_prompt(prompt), prompt)
    vocabulary = engine.spec.dimensions.vocab
    if unknown := [token for token in prompt if not 0 <= token < vocabulary]:
        raise bad_request(
            f"'prompt' holds token {unknown[0]}, and the model has tokens 0 to {vocabulary - 1}",
            "prompt",
        )
    text = engine.tokenizer.decode(prompt, skip_special=False) if echo else ""
    return Prompt(prompt, text)


def _submit(engine: Engine, body: TextBody, prompts: Sequence[Prompt]) -> list[Generation]:
    """`n` generations a prompt."""
    limit = DEFAULT_LENGTH if body.max_tokens is None else body.max_tokens
    return start(
        [
            partial(
                engine.submit,
                prompt.tokens,
                body.sampling(choice, body.logprobs),
                max_tokens=limit,
                stop=body.stop_strings,
                score_prompt=body.logprobs if body.echo else None,
                continues=True,
            )
            for prompt in prompts
            for choice in range(body.choices)
        ]
    )


async def _whole(asked: Asked, events: Events) -> JSONResponse:
    answers = await collect(events, asked.generations)
    choices = []
    for index, answer in enumerate(answers):
        choice = Choice(asked, index)
        pieces = [choice.echo()] if asked.body.echo else []
        pieces.append(choice.more(answer.text, answer.logprobs))
        choices.append(_joined(pieces) | {"finish_reason": answer.finish_reason})
    return JSONResponse(_head(asked).frame(choices, **_usage(asked)))


async def _frames(asked: Asked, events: Events) -> Frames:
    """For each choice its echo, then its text, then its finish reason; the choices interleave."""
    head, body = _head(asked), asked.body
    without_usage = {"usage": None} if body.include_usage else {}
    choices: dict[int, Choice] = {}
    async with aclosing(events):
        async for index, chunk in events:
            if index not in choices:
                choices[index] = Choice(asked, index)
                if body.echo:
                    yield head.frame([choices[index].echo()], **without_usage)
            if chunk is None:
                yield head.frame([choices[index].end()], **without_usage)
            elif chunk.text or chunk.logprobs:
                piece = choices[index].more(chunk.text, chunk.logprobs)
                yield head.frame([piece], **without_usage)
    if body.include_usage:
        yield head.frame([], **_usage(asked))


def _joined(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One choice of several pieces: texts and columns of log probabilities end to end."""
    columns = [piece["logprobs"] for piece in pieces if piece["logprobs"] is not None]
    logprobs = {
        name: [entry for column in columns for entry in column[name]]
        for name in (columns[0] if columns else ())
    }
    return pieces[0] | {
        "text": "".join(piece["text"] for piece in pieces),
        "logprobs": logprobs or None,
    }


def _head(asked: Asked) -> Head:
    return Head("cmpl", "text_completion", asked.engine.model)


def _usage(asked: Asked) -> dict[str, Any]:
    return usage(asked.generations, asked.body.choices)
