"""The engine as its callers see it: prompts in, whole answers out, in any company."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake_crew import FakeCrew, letter, score
from small_engine import (
    CONTEXT,
    END,
    TOKENIZER,
    VOCAB,
    alone,
    end_of,
    ids,
    prompts,
    running,
    says,
    scores_of,
)

from local_tp.core import Sampling
from local_tp.engine.generation import Chunk, Generation
from local_tp.errors import InputError, LocalTpError, PromptTooLong, TemplateError

PENALIZED = Sampling(presence_penalty=0.5)  # the crew then compares history and pages


@pytest.mark.parametrize(("pages", "chunk"), [(128, 8), (128, 64), (16, 8), (16, 3)])
def test_eight_at_once_each_get_what_they_would_get_alone(pages: int, chunk: int) -> None:
    texts = prompts(8)
    crew = FakeCrew()
    with running(crew, pages=pages, chunk=chunk, held=True) as engine:
        asked = [engine.submit(text, PENALIZED, max_tokens=20) for text in texts]
        crew.gate.set()
        answers = [end_of(generation) for generation in asked]
    for text, answer in zip(texts, answers, strict=True):
        expected = alone(text, 20)
        assert answer.tokens == expected
        assert answer.text == TOKENIZER.decode(expected)
        assert answer.finish_reason == "length"
        assert answer.timings.prompt_tokens == len(text)
        assert answer.timings.completion_tokens == 20
    assert max(len(step.rows) for step in crew.steps) > 1, "they did run together"


def test_eight_threads_may_submit_at_once() -> None:
    texts = prompts(40)
    with running(FakeCrew(), pages=40, streams=4) as engine:

        def ask(text: list[int]) -> tuple[int, ...]:
            return end_of(engine.submit(text, PENALIZED, max_tokens=12)).tokens

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, texts))
        assert answers == [alone(text, 12) for text in texts]
        assert len({id(answer) for answer in answers}) == 40


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 7])
def test_no_more_tokens_than_asked_for(max_tokens: int) -> None:
    with running(FakeCrew()) as engine:
        answer = end_of(engine.submit([1, 2, 3], Sampling(), max_tokens=max_tokens))
    assert answer.tokens == alone([1, 2, 3], max_tokens)
    assert answer.finish_reason == "length"


@pytest.mark.parametrize("max_tokens", [None, 10_000])
def test_the_context_ends_an_answer(max_tokens: int | None) -> None:
    prompt = prompts(1, [CONTEXT - 5])[0]
    with running(FakeCrew(), pages=CONTEXT // 4, streams=1) as engine:
        answer = end_of(engine.submit(prompt, Sampling(), max_tokens=max_tokens))
    assert answer.tokens == alone(prompt, 5)
    assert answer.finish_reason == "length"


def test_a_stop_token_ends_an_answer_unless_it_is_to_be_ignored() -> None:
    prompt = ids("hi")
    with running(FakeCrew(says("ok", after=2))) as engine:
        answer = end_of(engine.submit(prompt, Sampling(), max_tokens=9))
        assert (answer.text, answer.finish_reason) == ("ok", "stop")
        assert answer.tokens == (*ids("ok"), END)
        ignoring = end_of(engine.submit(prompt, Sampling(), max_tokens=3, ignore_eos=True))
        assert (ignoring.text, ignoring.finish_reason) == ("ok", "length")
        assert ignoring.tokens == (*ids("ok"), END)


def test_a_stop_string_over_several_tokens_ends_an_answer_before_it() -> None:
    with running(FakeCrew(says("one two\n\nthree", after=1))) as engine:
        generation = engine.submit([0], Sampling(), max_tokens=40, stop=["\n\n", "zero"])
        answer = end_of(generation)
        assert (answer.text, answer.finish_reason) == ("one two", "stop")
        assert answer.tokens == tuple(ids("one two\n\n"))
        assert engine.health().running == 0


def test_what_may_be_a_stop_string_is_held_back_until_it_is_none() -> None:
    with running(FakeCrew(says("one two", after=1))) as engine:
        chunks = list(engine.submit([0], Sampling(), max_tokens=7, stop=["e tx"]))
    assert [chunk.text for chunk in chunks] == ["o", "n", "", "", "", "e tw", "o"]
    assert [chunk.tokens for chunk in chunks] == [(t,) for t in ids("one two")]


def test_logprobs_come_with_the_tokens_they_are_of() -> None:
    prompt = [5, 6]
    with running(FakeCrew()) as engine:
        chunks = list(engine.submit(prompt, Sampling(logprobs=2), max_tokens=4))
    sequence = list(prompt)
    for chunk in chunks:
        (token,) = chunk.tokens
        assert chunk.logprobs == (score(sequence, token, 2),)
        sequence.append(token)
    assert tuple(sequence[2:]) == alone(prompt, 4)


@pytest.mark.parametrize("max_tokens", [0, 3])
def test_a_prompt_is_scored_once_whatever_its_chunks(max_tokens: int) -> None:
    prompt = prompts(1, [21])[0]
    with running(FakeCrew(), chunk=5) as engine:
        generation = engine.submit(prompt, Sampling(), max_tokens=max_tokens, score_prompt=1)
        assert end_of(generation).tokens == alone(prompt, max_tokens)
    assert generation.prompt_scores == scores_of(prompt, 1)


def test_what_cannot_be_served_is_refused_at_once() -> None:
    crew = FakeCrew()
    with running(crew) as engine:
        with pytest.raises(PromptTooLong) as too_long:
            engine.submit([1] * CONTEXT, Sampling())
        assert (too_long.value.need, too_long.value.have) == (CONTEXT + 1, CONTEXT)
        for prompt, words in (
            ([], "empty"),
            ([1, VOCAB, 2], f"token {VOCAB}"),
            ([-1], "token -1"),
        ):
            with pytest.raises(InputError, match=words):
                engine.submit(prompt, Sampling())
        with pytest.raises(InputError, match="max_tokens -1"):
            engine.submit([1], Sampling(), max_tokens=-1)
        with pytest.raises(InputError, match="stop"):
            engine.submit([1], Sampling(), stop=[""])
        longest = [1] * (CONTEXT - 1)
        accepted = engine.submit(longest, Sampling())
        assert end_of(accepted).tokens == alone(longest, 1)
    assert {row.request for step in crew.steps for row in step.rows} == {accepted.id}


def test_cancelling_ends_both_who_runs_and_who_waits() -> None:
    crew = FakeCrew()
    with running(crew, pages=16, streams=1, held=True) as engine:
        first, second, third = (
            engine.submit(text, Sampling(), max_tokens=30) for text in prompts(3, [9])
        )
        assert crew.began.wait(5)
        first.cancel()
        second.cancel()
        crew.gate.set()
        assert end_of(first).finish_reason == "cancelled"
        assert end_of(second).finish_reason == "cancelled"
        assert end_of(third).tokens == alone(prompts(3, [9])[2], 30)
        for generation in (first, third):
            generation.cancel()  # it is over: nothing happens
        assert end_of(engine.submit([1], Sampling(), max_tokens=2)).tokens == alone([1], 2)
    ran = [row.request for step in crew.steps for row in step.rows]
    assert ran.count(first.id) == 1, "it ran on after it was cancelled"
    assert second.id not in ran


def test_a_cancelled_request_leaves_its_pages_to_the_others() -> None:
    """The pool holds one whole context, and the first request has taken all of it."""
    crew = FakeCrew()
    with running(crew, pages=16, streams=2, chunk=64, held=True) as engine:
        first = engine.submit([1] * (CONTEXT - 1), Sampling())
        assert crew.began.wait(5)
        second = engine.submit([2] * (CONTEXT - 1), Sampling())
        first.cancel()
        crew.gate.set()
        assert end_of(second).finish_reason == "length"


def test_text_goes_through_the_models_own_tokenizer_and_template() -> None:
    with running(FakeCrew()) as engine:
        assert engine.text_prompt("a<end>") == [*ids("a"), END]
        said = engine.chat_prompt([{"role": "user", "content": "x"}])
        assert TOKENIZER.decode(said) == "[{'role': 'user', 'content': 'x'}]"
        with pytest.raises(TemplateError):
            engine.chat_prompt([{"role": "user", "content": [{"type": "image"}]}])


def test_health_counts_who_runs_and_who_waits() -> None:
    crew = FakeCrew()
    with running(crew, streams=1, held=True) as engine:
        assert engine.measured == crew.measured
        idle = engine.health()
        assert (idle.ok, idle.state, idle.detail) == (True, "ready", "")
        asked = [engine.submit([1], Sampling(), max_tokens=2) for _ in range(2)]
        assert crew.began.wait(5)
        crew.gate.set()
        for generation in asked:
            end_of(generation)
        after = engine.health()
        assert (after.running, after.waiting) == (0, 0)
        assert [worker.alive for worker in after.workers] == [True]


# ------------------------------------------------------------------------- in an event loop


def test_a_stream_is_the_same_answer() -> None:
    async def read(generation: Generation) -> list[Chunk]:
        return [chunk async for chunk in generation.stream()]

    async def both() -> list[list[Chunk]]:
        asked = [engine.submit([n], Sampling(), max_tokens=10) for n in (1, 2)]
        return await asyncio.wait_for(asyncio.gather(*map(read, asked)), 5)

    with running(FakeCrew()) as engine:
        answers = asyncio.run(both())
    for first, chunks in zip((1, 2), answers, strict=True):
        assert tuple(t for chunk in chunks for t in chunk.tokens) == alone([first], 10)


def test_leaving_a_stream_early_cancels_the_request() -> None:
    pace = threading.Semaphore(3)  # tokens the crew may make until the reader has left

    def paced(sequence: object) -> int:
        assert pace.acquire(timeout=5)
        return letter([0])

    async def leave() -> Generation:
        generation = engine.submit([1], Sampling(), max_tokens=60)
        stream = generation.stream()
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator
        return generation

    crew = FakeCrew(paced)
    with running(crew) as engine:
        generation = asyncio.run(asyncio.wait_for(leave(), 5))
        pace.release(100)
        assert end_of(generation).finish_reason == "cancelled"
        assert len(crew.steps) < 10
        assert engine.health().running == 0


def test_a_reader_that_is_cancelled_while_it_waits_cancels_the_request() -> None:
    async def wait() -> Generation:
        generation = engine.submit([1], Sampling(), max_tokens=60)

        async def read() -> None:
            async for _ in generation.stream():
                pass

        reader = asyncio.create_task(read())
        await asyncio.to_thread(crew.began.wait, 5)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        return generation

    crew = FakeCrew()
    with running(crew, held=True) as engine:
        generation = asyncio.run(asyncio.wait_for(wait(), 5))
        crew.gate.set()
        assert end_of(generation).finish_reason == "cancelled"


# ------------------------------------------------------------------------------------ closing


def test_closing_ends_everybody_as_cancelled_and_is_idempotent() -> None:
    crew = FakeCrew()
    with running(crew, streams=1, held=True) as engine:
        asked = [engine.submit([n], Sampling(), max_tokens=50) for n in (1, 2)]
        assert crew.began.wait(5)
        closing = [threading.Thread(target=engine.close) for _ in range(3)]
        for thread in closing:
            thread.start()
        limit = time.monotonic() + 5
        while engine._replicas[0]._inbox.qsize() < 3 and time.monotonic() < limit:
            time.sleep(0.001)
        asked.append(engine.submit([3], Sampling(), max_tokens=50))  # behind the wish to close
        crew.gate.set()
        for thread in closing:
            thread.join(5)
            assert not thread.is_alive()
        assert [end_of(generation).finish_reason for generation in asked] == ["cancelled"] * 3
        engine.close()
        assert crew.closed == 1
        health = engine.health()
        assert (health.ok, health.state) == (False, "closed")
        with pytest.raises(LocalTpError, match="closed"):
            engine.submit([1], Sampling())


def test_nobody_slips_in_while_the_engine_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission that began before the engine closed is refused after, not left waiting."""
    began, closed = threading.Event(), threading.Event()
    outcome: list[object] = []

    def slow(continues: bool) -> bool:
        began.set()
        return not closed.wait(5)

    with running(FakeCrew()) as engine:
        monkeypatch.setattr(type(engine.tokenizer), "drops_space", lambda self, c: slow(c))

        def submit() -> None:
            try:
                outcome.append(end_of(engine.submit([1], Sampling()), within=2))
            except Exception as error:  # noqa: BLE001  the test looks at whatever it was
                outcome.append(error)

        late = threading.Thread(target=submit)
        late.start()
        assert began.wait(5)
        engine.close()
        closed.set()
        late.join(5)
    (error,) = outcome
    assert isinstance(error, LocalTpError), error
    assert "closed" in str(error)
