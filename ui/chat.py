"""A conversation and the stream of its next answer, without the page around it.

Knows nothing of Gradio components. The text given to the model is the text that was typed and the
text that was produced, exactly; what is shown is derived from it: questions as they were typed,
answers as Markdown. Each browser tab has its own `Session`; nothing is shared between tabs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from local_tp.core import Sampling
from local_tp.engine.engine import Engine
from local_tp.engine.generation import Generation
from local_tp.errors import LocalTpError, PromptTooLong, WorkerFault
from ui.literal import literal
from ui.status import notice, status_line

# A browser draws at most so often; faster tokens are shown a few at a time.
FRAME_SECONDS = 1 / 30
REASONING_START, REASONING_STOP = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer; the answer is empty until its first word."""

    question: str
    answer: str = ""


Conversation = tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask: the turns so far, the last one unanswered, and how to choose tokens.

    `fallback` is the conversation to return to if not a word comes back, `draft` the text that is
    then put into the box.
    """

    conversation: Conversation
    system: str
    sampling: Sampling
    max_tokens: int | None
    fallback: Conversation
    draft: str | None = None


Phase = Literal["started", "writing", "ended"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One state of the page while an answer is written. `draft` None leaves the box alone."""

    phase: Phase
    conversation: Conversation
    status: str
    draft: str | None = None


@dataclass
class Session:
    """The answer that one browser tab is waiting for, so that Stop can find it."""

    generation: Generation | None = None
    _ended: asyncio.Event | None = field(default=None, repr=False)

    def begin(self, generation: Generation) -> None:
        self.generation, self._ended = generation, asyncio.Event()

    def end(self, generation: Generation) -> None:
        if self.generation is generation and self._ended is not None:
            self._ended.set()
            self.generation, self._ended = None, None

    def stop(self) -> None:
        """Cancel the answer; its text so far is kept by whoever reads it."""
        if self.generation is not None:
            self.generation.cancel()

    async def replace(self) -> None:
        """Stop, and wait for the last frame; one that hangs is disowned after a second."""
        if self._ended is not None:
            ended = self._ended
            self.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 1.0)
        self.generation, self._ended = None, None


# --------------------------------------------------------------------------- a conversation


def messages(conversation: Conversation, system: str) -> list[dict[str, Any]]:
    """The conversation for a chat template; the last exchange waits for its answer."""
    listed: list[dict[str, Any]] = []
    if system.strip():
        listed.append({"role": "system", "content": system})
    for exchange in conversation:
        listed.append({"role": "user", "content": exchange.question})
        listed.append({"role": "assistant", "content": exchange.answer})
    return listed[:-1]


def shown(conversation: Conversation) -> list[dict[str, Any]]:
    """The conversation for the chatbot; reasoning becomes a foldable message of its own."""
    listed: list[dict[str, Any]] = []
    for exchange in conversation:
        listed.append({"role": "user", "content": _text(literal(exchange.question))})
        reasoning, answer = split_reasoning(exchange.answer)
        if reasoning:
            state = "done" if REASONING_STOP in exchange.answer else "pending"
            metadata = {"title": "Reasoning", "status": state}
            listed.append({"role": "assistant", "content": _text(reasoning), "metadata": metadata})
        if answer:
            listed.append({"role": "assistant", "content": _text(answer)})
    return listed


def _text(markdown: str) -> list[dict[str, str]]:
    # Gradio would take the indentation from a plain string.
    return [{"type": "text", "text": markdown}]


def split_reasoning(answer: str) -> tuple[str, str]:
    """(reasoning, the rest) of an answer; the reasoning may not have ended yet."""
    text = answer.lstrip()
    if not text.startswith(REASONING_START):
        return "", answer
    reasoning, _, rest = text.removeprefix(REASONING_START).partition(REASONING_STOP)
    return reasoning.strip(), rest.lstrip()


def exchange_at(conversation: Conversation, index: int) -> int:
    """Which exchange the chatbot's message `index` belongs to."""
    questions = [bool(message["role"] == "user") for message in shown(conversation)]
    return sum(questions[: index + 1]) - 1


def edited(conversation: Conversation, index: int, text: str) -> Conversation:
    """The turns up to the chatbot's message `index`, asked anew as `text`."""
    return (*conversation[: exchange_at(conversation, index)], Exchange(text))


def retried(conversation: Conversation, index: int) -> Conversation:
    """The turns up to the chatbot's message `index`, its question asked again."""
    turn = exchange_at(conversation, index)
    return edited(conversation, index, conversation[turn].question)


def undone(conversation: Conversation, index: int) -> tuple[Conversation, str]:
    """(the turns before the chatbot's message `index`, the question that was taken back)."""
    turn = exchange_at(conversation, index)
    return conversation[:turn], conversation[turn].question


# -------------------------------------------------------------------------------- an answer


async def answer(engine: Engine, session: Session, request: Request) -> AsyncGenerator[Frame, None]:
    """Frames from the question to the end of its answer; errors are frames too.

    Where not a word comes back, the conversation falls back and the text is not lost; a failure
    under way keeps the words so far. Leaving early cancels the request.
    """
    await session.replace()
    try:
        prompt = await asyncio.to_thread(
            engine.chat_prompt, messages(request.conversation, request.system)
        )
        generation = engine.submit(prompt, request.sampling, max_tokens=request.max_tokens)
    except LocalTpError as error:
        yield Frame("ended", request.fallback, _problem(error, request), request.draft)
        return
    session.begin(generation)
    try:
        async for frame in _frames(engine, generation, request):
            if session.generation is not generation:
                return
            yield frame
    finally:
        if generation.finish_reason is None:
            generation.cancel()
        session.end(generation)


async def _frames(engine: Engine, generation: Generation, request: Request) -> AsyncIterator[Frame]:
    *before, last = request.conversation
    text, drawn, problem = "", 0.0, ""

    def frame(phase: Phase) -> Frame:
        conversation = (*before, replace(last, answer=text))
        status = status_line(generation.timings, engine.context, generation.finish_reason)
        return Frame(phase, conversation, problem + status)

    yield frame("started")
    try:
        async for chunk in generation.stream():
            text += chunk.text
            now = time.perf_counter()
            if now - drawn >= FRAME_SECONDS:
                drawn = now
                yield frame("writing")
    except LocalTpError as error:
        problem = _problem(error, request)
    if not text and not problem and generation.finish_reason != "cancelled":
        problem = notice("the model had nothing to say: rephrase, or try another preset")
    ended = frame("ended")
    yield ended if text else replace(ended, conversation=request.fallback, draft=request.draft)


def _problem(error: LocalTpError, request: Request) -> str:
    """A notice with the way out that this page has, where the error itself cannot know of it."""
    if isinstance(error, PromptTooLong) and len(request.conversation) > 1:
        return notice(f"{error}, or start a new chat")
    if isinstance(error, WorkerFault):
        return notice(f"{error}; start local-tp again")
    return notice(str(error))
