"""The reader's end of an answer, fed by hand: order, endings, clocks and the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from local_tp.core import TokenLogprob
from local_tp.engine.generation import Chunk, Generation, Timings
from local_tp.errors import WorkerDied

DEATH = WorkerDied(0, "cpu", 1, "")


def make(prompt: tuple[int, ...] = (1, 2, 3)) -> tuple[Generation, list[int]]:
    """A generation and the ids for which its engine was told to cancel."""
    cancelled: list[int] = []
    return Generation(9, prompt, cancelled.append), cancelled


def test_a_result_joins_the_chunks() -> None:
    generation, cancelled = make()
    logprobs = (TokenLogprob(4, -0.5), TokenLogprob(6, -0.25))
    generation.push(Chunk("", (4,), logprobs[:1]))
    generation.push(Chunk("ab", (5, 6), logprobs[1:]))
    generation.push(Chunk("c"))
    generation.finish("length")
    whole = generation.result()
    assert (whole.text, whole.tokens, whole.logprobs) == ("abc", (4, 5, 6), logprobs)
    assert whole.finish_reason == generation.finish_reason == "length"
    assert (whole.timings.prompt_tokens, whole.timings.completion_tokens) == (3, 3)
    assert cancelled == []


def test_an_error_comes_after_the_chunks_before_it() -> None:
    generation, _ = make()
    generation.push(Chunk("a", (4,)))
    generation.finish("error", DEATH)
    read = iter(generation)
    assert next(read) == Chunk("a", (4,))
    with pytest.raises(WorkerDied) as died:
        next(read)
    assert died.value is DEATH
    assert generation.finish_reason == "error"


def test_reading_blocks_until_there_is_something() -> None:
    generation, _ = make()

    def write() -> None:
        for number in range(3):
            time.sleep(0.01)
            generation.push(Chunk(str(number), (number,)))
        generation.finish("stop")

    writer = threading.Thread(target=write)
    writer.start()
    assert [chunk.text for chunk in generation] == ["0", "1", "2"]
    writer.join(5)


def test_cancel_tells_the_engine_which() -> None:
    generation, cancelled = make()
    generation.cancel()
    assert cancelled == [9]


def test_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    generation = Generation(9, tuple(range(40)), lambda _: None, _started=now[0])
    assert generation.timings == Timings(40, 0, None, 0.0)
    now[0] = 102.0
    generation.push(Chunk("", (1,)))
    assert generation.timings == Timings(40, 1, 2.0, 2.0)
    now[0] = 103.0
    generation.push(Chunk("ab", (2, 3)))
    now[0] = 110.0
    generation.push(Chunk("c"))
    assert generation.timings == Timings(40, 3, 2.0, 3.0), "text without tokens is no speed"


def test_speeds() -> None:
    assert Timings(40, 3, 2.0, 3.0).prefill_tps == 20.0
    assert Timings(40, 3, 2.0, 3.0).decode_tps == 2.0
    assert Timings(40, 1, 2.0, 3.0).decode_tps is None, "one token is no interval"
    assert Timings(40, 0, None, 3.0).prefill_tps is None
    assert Timings(40, 0, None, 3.0).decode_tps is None


# ------------------------------------------------------------------------- in an event loop


async def read(generation: Generation) -> list[str]:
    return [chunk.text async for chunk in generation.stream()]


def test_a_stream_of_what_is_there_already() -> None:
    generation, cancelled = make()
    generation.push(Chunk("a", (1,)))
    generation.finish("stop")
    assert asyncio.run(asyncio.wait_for(read(generation), 5)) == ["a"]
    assert generation.finish_reason == "stop"
    assert cancelled == []


def test_a_stream_wakes_for_every_chunk_another_thread_writes() -> None:
    generation, _ = make()
    texts = [str(number) for number in range(200)]

    def write() -> None:
        for number, text in enumerate(texts):
            if number % 20 == 0:
                time.sleep(0.001)  # the reader runs dry now and then
            generation.push(Chunk(text, (number,)))
        generation.finish("stop")

    async def both() -> list[str]:
        writing = asyncio.to_thread(write)
        return (await asyncio.gather(read(generation), writing))[0]

    assert asyncio.run(asyncio.wait_for(both(), 5)) == texts


def test_a_stream_raises_the_error_and_does_not_cancel() -> None:
    generation, cancelled = make()
    generation.finish("error", DEATH)
    with pytest.raises(WorkerDied):
        asyncio.run(asyncio.wait_for(read(generation), 5))
    assert cancelled == []


def test_a_stream_that_is_left_cancels_and_wakes_nobody_after() -> None:
    generation, cancelled = make()

    async def leave() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(read(generation), 0.02)

    asyncio.run(leave())
    assert cancelled == [9]
    generation.push(Chunk("late", (1,)))
    generation.finish("cancelled")
    assert generation.result().text == "late"


def test_a_loop_that_was_closed_does_not_disturb_the_writer() -> None:
    generation, _ = make()
    loop = asyncio.new_event_loop()
    stream = generation.stream()

    async def first() -> Chunk:
        return await anext(stream)

    generation.push(Chunk("a", (1,)))
    assert loop.run_until_complete(first()).text == "a"
    loop.close()
    generation.push(Chunk("b", (2,)))
    generation.finish("stop")
    assert generation.result().text == "b"
