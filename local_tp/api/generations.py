"""Several generations of one HTTP request: started together, read as one, given up together.

Knows nothing of OpenAI's shapes. Whatever ends the reading early, be it a client that left, an
error of one generation, or a server that stops, every generation of the request is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from local_tp.core import TokenLogprob
from local_tp.engine.generation import Chunk, Completion, Generation
from local_tp.errors import Cancelled

Event = tuple[int, Chunk | None]  # which generation, and its next chunk; None at its end
Events = AsyncGenerator[Event, None]


def start(submits: Sequence[Callable[[], Generation]]) -> list[Generation]:
    """Submit all, or none: one that is refused cancels those before it. Raises what it raised."""
    generations: list[Generation] = []
    with ExitStack() as undo:
        for submit in submits:
            generations.append(submit())
            undo.callback(generations[-1].cancel)
        undo.pop_all()
    return generations


async def read(request: Request, generations: Sequence[Generation]) -> Events:
    """The chunks of all, in the order in which they come.

    Raises ClientDisconnect as soon as the client is gone, and the error of the first generation
    that fails.
    """
    events: asyncio.Queue[Event | asyncio.Task[None]] = asyncio.Queue()
    work: list[Coroutine[Any, Any, None]] = [
        _pump(index, generation, events) for index, generation in enumerate(generations)
    ]
    tasks = [asyncio.create_task(coroutine) for coroutine in [*work, _departure(request)]]
    for task in tasks:
        task.add_done_callback(events.put_nowait)
    remaining = len(generations)
    try:
        while remaining:
            event = await events.get()
            if isinstance(event, asyncio.Task):
                event.result()  # raises what ended the task; a pump that is through says nothing
                remaining -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()  # a pump that leaves its stream cancels the generation
        await asyncio.gather(*tasks, return_exceptions=True)


async def collect(events: Events, generations: Sequence[Generation]) -> list[Completion]:
    """Whole answers, in the order of `generations`. Raises what `read` raises."""
    parts: list[list[Chunk]] = [[] for _ in generations]
    async with aclosing(events):
        async for index, chunk in events:
            if chunk is not None:
                parts[index].append(chunk)
    return [_whole(g, chunks) for g, chunks in zip(generations, parts, strict=True)]


def _whole(generation: Generation, chunks: Sequence[Chunk]) -> Completion:
    assert generation.finish_reason is not None
    logprobs: list[TokenLogprob] = [entry for chunk in chunks for entry in chunk.logprobs]
    return Completion(
        text="".join(chunk.text for chunk in chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        logprobs=tuple(logprobs),
        finish_reason=generation.finish_reason,
        timings=generation.timings,
    )


async def _pump(
    index: int, generation: Generation, events: asyncio.Queue[Event | asyncio.Task[None]]
) -> None:
    async for chunk in generation.stream():
        events.put_nowait((index, chunk))
    if generation.finish_reason not in ("stop", "length"):
        raise Cancelled("the engine stopped this request before it was done: send it again")
    events.put_nowait((index, None))


async def _departure(request: Request) -> None:
    """Wait until the client is gone. The body has been read: nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
