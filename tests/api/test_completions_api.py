"""Plain completions as OpenAI's client meets them."""

from __future__ import annotations

import openai
import pytest
from scripted_engine import BEGIN, ScriptedEngine


def test_whole_answer(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    answer = client.completions.create(model=engine.model, prompt="Sag ")
    assert answer.object == "text_completion"
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Grüße ☕!", "stop")
    assert answer.choices[0].logprobs is None
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 12)
    assert engine.submitted[0].max_tokens == 16
    assert engine.submitted[0].score_prompt is None


def test_stream(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="default",
            prompt="Sag ",
            stream=True,
            echo=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].text for c in chunks[:-1]) == "Sag Grüße ☕!"
    assert chunks[0].choices[0].text == "Sag "
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 17


def test_prompts_as_lists_and_tokens(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.answers = {i: f"<{i}>" for i in range(10)}
    texts = client.completions.create(model="default", prompt=["a", "b"], n=2)
    assert [c.text for c in texts.choices] == ["<0>", "<1>", "<2>", "<3>"]
    assert [c.index for c in texts.choices] == [0, 1, 2, 3]
    assert [a.prompt for a in engine.submitted] == [(BEGIN, 97)] * 2 + [(BEGIN, 98)] * 2
    assert texts.usage is not None
    assert (texts.usage.prompt_tokens, texts.usage.completion_tokens) == (4, 12)
    client.completions.create(model="default", prompt=[72, 105])
    assert engine.submitted[4].prompt == (72, 105)
    client.completions.create(model="default", prompt=[[72], [105, 33]])
    assert [a.prompt for a in engine.submitted[5:]] == [(72,), (105, 33)]


def test_echo_with_logprobs_scores_the_prompt(
    client: openai.OpenAI, engine: ScriptedEngine
) -> None:
    engine.answer = "ü!"
    answer = client.completions.create(model="default", prompt="é?", echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == "é?ü!"
    assert engine.submitted[0].score_prompt == 1
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens == [
        "<begin>",
        *("bytes:\\xc3", "bytes:\\xa9", "?"),
        *("bytes:\\xc3", "bytes:\\xbc", "!"),
    ]
    assert logprobs.token_logprobs == [None, -1.95, -1.69, -0.63, -1.95, -1.88, -0.33]
    assert logprobs.top_logprobs is not None
    assert [*logprobs.top_logprobs][::3] == [None, {"?": -0.63}, {"!": -0.33}]
    # The beginning token is not in the text; a half character counts once it is whole.
    assert logprobs.text_offset == [0, 0, 0, 1, 2, 2, 3]


def test_streamed_columns_equal_whole_ones(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="default", prompt="é?", echo=True, logprobs=2)
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    streamed: dict[str, list[object]] = {name: [] for name in names}
    for chunk in client.completions.create(
        model="default", prompt="é?", echo=True, logprobs=2, stream=True
    ):
        if chunk.choices[0].logprobs is not None:
            for name in names:
                streamed[name] += getattr(chunk.choices[0].logprobs, name)
    assert whole.choices[0].logprobs is not None
    assert streamed == {name: getattr(whole.choices[0].logprobs, name) for name in names}


def test_logprobs_name_the_token_beside_its_rivals(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="default", prompt="?", logprobs=0, max_tokens=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs == [{"G": -0.71}]
    assert logprobs.text_offset == [0]


@pytest.mark.parametrize("stream", [False, True])
def test_scoring_alone(client: openai.OpenAI, engine: ScriptedEngine, stream: bool) -> None:
    asked = client.completions.create(
        model="default",
        prompt=[72, 105],
        echo=True,
        logprobs=0,
        max_tokens=0,
        stream=stream,
    )
    choices = [c.choices[0] for c in (asked if isinstance(asked, openai.Stream) else [asked])]
    assert "".join(choice.text for choice in choices) == "Hi"
    assert choices[-1].finish_reason == "length"
    assert choices[0].logprobs is not None
    assert choices[0].logprobs.token_logprobs == [None, -1.05]
    assert sum(len(c.logprobs.tokens or []) for c in choices if c.logprobs) == 2


def test_long_prompt_cancels_the_prompts_before_it(
    client: openai.OpenAI, engine: ScriptedEngine
) -> None:
    engine.answer, engine.pause = "x" * 1000, 0.05
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="default", prompt=["short", "x" * 64])
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "prompt")
    assert engine.cancelled[0].is_set()


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ([258], "token 258"),
        ([-1], "token -1"),
        (["a"] * 129, "more than 128 choices"),
    ],
)
def test_refused_prompts(
    client: openai.OpenAI, engine: ScriptedEngine, prompt: list[int], reason: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=reason) as raised:
        client.completions.create(model="default", prompt=prompt)
    assert raised.value.param == "prompt"
    assert engine.submitted == []


def test_suffix_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="default", prompt="a", suffix="b")
    assert (raised.value.code, raised.value.param) == ("unsupported_parameter", "suffix")
