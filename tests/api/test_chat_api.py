"""Chat completions as OpenAI's client meets them."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import openai
import pytest
from scripted_engine import BEGIN, ScriptedEngine

from local_tp.core import Sampling
from local_tp.errors import TemplateError, WorkerDied, WorkerFault

ASK: list[Any] = [{"role": "user", "content": "Hallo, Welt"}]
ASKED = {"model": "default", "messages": ASK}


def posted(address: str, body: dict[str, Any]) -> str:
    """The raw body of an answer."""
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.status == 200
        text: str = response.read().decode()
        return text


def test_whole_answer(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    answer = client.chat.completions.create(model=engine.model, messages=ASK)
    assert answer.object == "chat.completion"
    assert answer.model == engine.model
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == "Grüße ☕!"
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 1 + len("Hallo, Welt")
    assert answer.usage.completion_tokens == len("Grüße ☕!".encode())
    assert answer.usage.total_tokens == 12 + 12
    assert answer.model_extra is not None
    assert answer.model_extra["timings"]["first_token_seconds"] >= 0
    assert answer.model_extra["timings"]["decode_tokens_per_second"] > 0


def test_defaults_are_those_of_openai(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    client.chat.completions.create(model="default", messages=ASK)
    asked = engine.submitted[0]
    assert asked.sampling == Sampling(temperature=1.0)
    assert (asked.max_tokens, asked.stop, asked.score_prompt) == (None, (), None)
    assert asked.prompt == (BEGIN, *b"Hallo, Welt")


def test_every_sampling_parameter_arrives(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    client.chat.completions.create(
        model="default",
        messages=ASK,
        temperature=0,
        top_p=0.5,
        max_completion_tokens=7,
        stop=["\n\n", "!"],
        seed=11,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        logit_bias={"65": -100, "66": 5},
        logprobs=True,
        top_logprobs=3,
        user="somebody",
        extra_body={"top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1},
    )
    asked = engine.submitted[0]
    assert asked.sampling == Sampling(
        temperature=0.0,
        top_k=40,
        top_p=0.5,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        seed=11,
        logit_bias=((65, -100.0), (66, 5.0)),
        logprobs=3,
    )
    assert asked.max_tokens == 7
    assert asked.stop == ("\n\n", "!")


def test_messages_reach_the_template_as_plain_text(
    client: openai.OpenAI, engine: ScriptedEngine
) -> None:
    earlier = client.chat.completions.create(model="default", messages=ASK).choices[0].message
    client.chat.completions.create(
        model="default",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "name": "ada", "content": [{"type": "text", "text": "Hal"}] * 2},
            earlier.model_dump(),  # type: ignore[list-item]  # as clients send answers back
        ],
    )
    assert engine.conversations[1] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "HalHal", "name": "ada"},
        {"role": "assistant", "content": "Grüße ☕!"},
    ]


def test_what_the_template_knows_reaches_it(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    known = {"enable_thinking": False, "reasoning_effort": "low"}
    client.chat.completions.create(
        model="default", messages=ASK, extra_body={"chat_template_kwargs": known}
    )
    client.chat.completions.create(model="default", messages=ASK)
    assert engine.variables == [known, {}]
    for name in ("messages", "tools", "self", "budget left", "add_generation_prompt"):
        with pytest.raises(openai.BadRequestError, match="no chat template takes") as raised:
            client.chat.completions.create(
                model="default", messages=ASK, extra_body={"chat_template_kwargs": {name: 1}}
            )
        assert raised.value.param == "chat_template_kwargs"


def test_length_and_stop(client: openai.OpenAI) -> None:
    short = client.chat.completions.create(model="default", messages=ASK, max_tokens=2)
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("Gr", "length")
    stopped = client.chat.completions.create(model="default", messages=ASK, stop="e")
    assert stopped.choices[0].finish_reason == "stop"


def test_stream(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    chunks = list(client.chat.completions.create(model="default", messages=ASK, stream=True))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.content for c in chunks[1:-1]] == list("Grüße ☕!")
    assert chunks[-1].choices[0].delta.content is None
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


def test_stream_as_bytes(address: str, engine: ScriptedEngine) -> None:
    body = posted(address, ASKED | {"stream": True, "stream_options": {"include_usage": True}})
    events = body.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    frames = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert "☕" in body  # UTF-8, not escaped
    assert [frame["usage"] is None for frame in frames] == [True] * (len(frames) - 1) + [False]
    assert frames[-1]["choices"] == []
    assert frames[-1]["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": 12,
        "total_tokens": 24,
    }
    assert "usage" not in json.loads(posted(address, ASKED | {"stream": True})[6:].split("\n")[0])


def test_choices_differ_by_seed_and_count_the_prompt_once(
    client: openai.OpenAI, engine: ScriptedEngine
) -> None:
    engine.answers = {0: "one", 1: "two", 2: "three"}
    answer = client.chat.completions.create(model="default", messages=ASK, n=3, seed=5)
    assert [c.message.content for c in answer.choices] == ["one", "two", "three"]
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert [asked.sampling.seed for asked in engine.submitted] == [5, 6, 7]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, 11)


def test_streamed_choices_interleave(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.answers, engine.pause = {0: "aaaaa", 1: "bbbbb"}, 0.02
    texts, order = {0: "", 1: ""}, ""
    for chunk in client.chat.completions.create(model="default", messages=ASK, n=2, stream=True):
        delta = chunk.choices[0].delta.content or ""
        texts[chunk.choices[0].index] += delta
        order += delta
    assert texts == {0: "aaaaa", 1: "bbbbb"}
    assert order not in ("aaaaabbbbb", "bbbbbaaaaa")


def test_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="default", messages=ASK, logprobs=True, top_logprobs=2, max_tokens=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    first, _, half = logprobs.content
    assert (first.token, first.logprob, first.bytes) == ("G", -0.71, [71])
    assert [(t.token, t.logprob) for t in first.top_logprobs] == [("G", -0.71), ("H", -0.72)]
    assert (half.token, half.bytes) == ("bytes:\\xc3", [0xC3])


def test_streamed_logprobs_lose_no_token(client: openai.OpenAI) -> None:
    tokens: list[int] = []
    for chunk in client.chat.completions.create(
        model="default", messages=ASK, logprobs=True, stream=True
    ):
        logprobs = chunk.choices[0].logprobs
        for entry in (logprobs.content or []) if logprobs else []:
            tokens += entry.bytes or []
            assert entry.top_logprobs == []
    assert bytes(tokens).decode() == "Grüße ☕!"


# ------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("stream", [False, True])
def test_long_prompt_is_refused_before_the_status(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "x" * 64}], stream=stream
        )
    assert raised.value.code == "context_length_exceeded"
    assert raised.value.param == "messages"
    assert "66 tokens" in str(raised.value)


@pytest.mark.parametrize("stream", [False, True])
def test_broken_template(client: openai.OpenAI, engine: ScriptedEngine, stream: bool) -> None:
    engine.template_error = TemplateError("the chat template fails: choose another with --template")
    with pytest.raises(openai.BadRequestError, match="choose another") as raised:
        client.chat.completions.create(model="default", messages=ASK, stream=stream)
    assert raised.value.code == "invalid_chat_template"


def test_another_model(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert engine.submitted == []


# -------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("stream", [False, True])
def test_worker_dies_before_the_first_token(
    client: openai.OpenAI, engine: ScriptedEngine, stream: bool
) -> None:
    engine.answer, engine.error = "", WorkerDied(1, "0000:01:00.0", -9, "")
    with pytest.raises(openai.InternalServerError, match="worker 1") as raised:
        client.chat.completions.create(model="default", messages=ASK, stream=stream)
    assert (raised.value.status_code, raised.value.code) == (503, "worker_lost")
    assert raised.value.type == "server_error"


def test_worker_faults(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.error = WorkerFault(0, "cpu", "out of memory", "Traceback …")
    with pytest.raises(openai.InternalServerError, match="out of memory") as raised:
        client.chat.completions.create(model="default", messages=ASK)
    assert (raised.value.status_code, raised.value.code) == (500, "engine_failed")


def test_worker_dies_in_the_stream(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.error = WorkerDied(1, "0000:01:00.0", -9, "")
    stream = client.chat.completions.create(model="default", messages=ASK, stream=True)
    text = "".join(next(stream).choices[0].delta.content or "" for _ in range(9))
    assert text == "Grüße ☕!"
    with pytest.raises(openai.APIError, match="worker 1") as raised:
        next(stream)
    assert not isinstance(raised.value, openai.APIStatusError)
    assert raised.value.code == "worker_lost"


def test_failed_stream_is_not_done(address: str, engine: ScriptedEngine) -> None:
    engine.error = WorkerDied(1, "0000:01:00.0", -9, "")
    last = posted(address, ASKED | {"stream": True}).rstrip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "worker_lost"


def test_one_failed_choice_cancels_the_others(
    client: openai.OpenAI, engine: ScriptedEngine
) -> None:
    engine.answers, engine.pause = {0: "a", 1: "b" * 1000}, 0.05
    engine.error = WorkerDied(0, "cpu", 1, "")
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="default", messages=ASK, n=2)
    assert engine.cancelled[1].wait(5)


def test_a_generation_the_engine_gave_up(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.answer, engine.pause = "x" * 1000, 0.05
    stream = client.chat.completions.create(model="default", messages=ASK, stream=True)
    assert next(stream).choices[0].delta.role == "assistant"
    engine.cancelled[0].set()
    with pytest.raises(openai.APIError, match="send it again") as raised:
        list(stream)
    assert raised.value.code == "cancelled"
