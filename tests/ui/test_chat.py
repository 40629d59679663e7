"""Conversations by value, and answers from real generations."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from fake_engine import FakeEngine

from local_tp.core import Sampling
from local_tp.errors import TemplateError, WorkerDied, WorkerFault
from ui import chat
from ui.chat import Exchange, Frame, Request, Session
from ui.literal import literal

T = TypeVar("T")
TURNS = (Exchange("first?", "<think>hm</think>yes"), Exchange("second?", "no"))
SAMPLING = Sampling(temperature=0.5, seed=7)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 5))


def request(question: str = "why?", before: chat.Conversation = ()) -> Request:
    return Request((*before, Exchange(question)), "", SAMPLING, 9, before, draft=question)


async def frames(engine: FakeEngine, asked: Request, session: Session) -> list[Frame]:
    return [frame async for frame in chat.answer(engine, session, asked)]


def test_messages_keep_the_exact_text_and_end_with_the_question() -> None:
    turns = (Exchange(" a\n  b ", "  c\n"), Exchange("d"))
    assert chat.messages(turns, "be brief") == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": " a\n  b "},
        {"role": "assistant", "content": "  c\n"},
        {"role": "user", "content": "d"},
    ]
    assert chat.messages((Exchange("d"),), "  \n") == [{"role": "user", "content": "d"}]


def test_reasoning_is_a_message_of_its_own_and_edits_count_past_it() -> None:
    listed = chat.shown(TURNS)
    assert [(m["role"], m["content"][0]["text"]) for m in listed] == [
        ("user", "first?"),
        ("assistant", "hm"),
        ("assistant", "yes"),
        ("user", "second?"),
        ("assistant", "no"),
    ]
    assert listed[1]["metadata"] == {"title": "Reasoning", "status": "done"}
    assert [chat.exchange_at(TURNS, index) for index in range(5)] == [0, 0, 0, 1, 1]


def test_questions_are_shown_as_typed_and_answers_as_markdown() -> None:
    question, answer = chat.shown((Exchange("  *a* <b>", "  *b*\n  c"),))
    assert question["content"] == [{"type": "text", "text": literal("  *a* <b>")}]
    assert answer["content"] == [{"type": "text", "text": "  *b*\n  c"}]


def test_unfinished_reasoning_is_not_yet_an_answer() -> None:
    assert chat.split_reasoning("\n<think>still") == ("still", "")
    assert chat.split_reasoning("a <think> in passing") == ("", "a <think> in passing")
    assert chat.shown((Exchange("q", "<think>still"),))[1]["metadata"]["status"] == "pending"


def test_history_edits() -> None:
    assert chat.edited(TURNS, 3, "third?") == (TURNS[0], Exchange("third?"))
    assert chat.edited(TURNS, 0, "zero?") == (Exchange("zero?"),)
    assert chat.retried(TURNS, 3) == (TURNS[0], Exchange("second?"))
    assert chat.undone(TURNS, 3) == ((TURNS[0],), "second?")


def test_an_answer_streams_and_ends_with_its_numbers() -> None:
    engine = FakeEngine()
    got = run(frames(engine, request(before=TURNS), Session()))
    assert (got[0].phase, got[0].conversation) == ("started", (*TURNS, Exchange("why?")))
    assert got[1].conversation[-1].answer == "One "
    assert got[-1] == replace(
        got[-1],
        phase="ended",
        conversation=(*TURNS, Exchange("why?", "One two three.")),
        draft=None,
    )
    assert "3 out" in got[-1].status
    assert engine.samplings == [(SAMPLING, 9)]
    assert engine.asked[0][1]["content"] == "<think>hm</think>yes"


def test_stop_keeps_the_words_so_far() -> None:
    engine, session = FakeEngine(hold=True), Session()

    async def read() -> Frame:
        async for frame in chat.answer(engine, session, request()):
            last = frame
            if frame.conversation[-1].answer:
                session.stop()
        return last

    last = run(read())
    assert (last.phase, last.conversation) == ("ended", (Exchange("why?", "One "),))
    assert "<span>stopped</span>" in last.status
    assert session.generation is None


def test_leaving_early_cancels() -> None:
    engine, session = FakeEngine(hold=True), Session()

    async def leave() -> None:
        stream = chat.answer(engine, session, request())
        await anext(stream)
        await stream.aclose()

    run(leave())
    assert engine.cancelled.is_set()
    assert session.generation is None


def test_a_new_question_replaces_the_answer_under_way() -> None:
    engine, session = FakeEngine(hold=True), Session()

    async def replaced() -> list[Frame]:
        first = asyncio.create_task(frames(engine, request("old?"), session))
        while not engine.generations:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        await session.replace()
        return await asyncio.wait_for(first, 1)

    last = run(replaced())[-1]
    assert (last.phase, last.conversation) == ("ended", (Exchange("old?", "One "),))
    assert session.generation is None


def test_a_refused_prompt_gives_the_text_back() -> None:
    long = "x" * 120
    (only,) = run(frames(FakeEngine(), request(long, TURNS), Session()))
    assert (only.phase, only.conversation, only.draft) == ("ended", TURNS, long)
    assert 'role="alert"' in only.status
    assert "shorten it by" in only.status
    assert only.status.endswith("or more, or start a new chat</div>")


def test_a_new_chat_is_no_way_out_for_a_first_question() -> None:
    (only,) = run(frames(FakeEngine(), request("x" * 120), Session()))
    assert only.status.endswith("or more</div>")


def test_a_template_error_is_one_escaped_line() -> None:
    engine = FakeEngine(refusal=TemplateError("no <b>system</b>\nhere"))
    (only,) = run(frames(engine, request(), Session()))
    assert "No &lt;b&gt;system&lt;/b&gt; here" in only.status


def test_a_dead_worker_keeps_the_words_so_far_and_says_so() -> None:
    engine = FakeEngine(failure=WorkerDied(1, "cpu", -9, ""))
    last = run(frames(engine, request(), Session()))[-1]
    assert last.conversation == (Exchange("why?", "One two three."),)
    assert "Worker 1 on cpu died (signal 9)" in last.status
    assert "start local-tp again</div>" in last.status
    assert last.draft is None


def test_a_worker_that_raised_asks_for_a_new_start_too() -> None:
    engine = FakeEngine(failure=WorkerFault(0, "cpu", "out of memory", "traceback"))
    last = run(frames(engine, request(), Session()))[-1]
    assert "Worker 0 on cpu failed: out of memory; start local-tp again</div>" in last.status


def test_no_words_at_all_falls_back_with_a_reason() -> None:
    last = run(frames(FakeEngine(words=()), request(before=TURNS), Session()))[-1]
    assert (last.conversation, last.draft) == (TURNS, "why?")
    assert "nothing to say" in last.status
