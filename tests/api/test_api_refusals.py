"""What the API refuses, each time by name and before the engine hears of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from http_side import CHAT, JSON, TEXT, asked, refused
from scripted_engine import ScriptedEngine


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": float("nan")}, "temperature", "invalid_value"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": -0.1}, "top_p", "invalid_value"),
        ({"min_p": 1.1}, "min_p", "invalid_value"),
        ({"top_k": -1}, "top_k", "invalid_value"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"presence_penalty": 2.1}, "presence_penalty", "invalid_value"),
        ({"frequency_penalty": -2.1}, "frequency_penalty", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 129}, "n", "invalid_value"),
        ({"n": 1.5}, "n", "invalid_type"),
        ({"seed": 2**63}, "seed", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "invalid_value"),
        ({"stop": [str(i) for i in range(17)]}, "stop", "invalid_value"),
        ({"stop": [""]}, "stop[0]", "invalid_value"),
        ({"stop": 5}, "stop", "invalid_type"),
        ({"logit_bias": {"65": 101}}, "logit_bias.65", "invalid_value"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a", "invalid_value"),
        ({"logit_bias": {"258": 1}}, "logit_bias", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"top_logprobs": 1}, "top_logprobs", "invalid_value"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream_options": {"usage": True}}, "stream_options.usage", "unknown_parameter"),
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
        ({"audio": {"voice": "ash"}}, "audio", "unsupported_parameter"),
        ({"reasoning_effort": "low"}, "reasoning_effort", "unsupported_parameter"),
        ({"store": True}, "store", "unsupported_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "Hi"}, "messages", "invalid_type"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "bard", "content": ""}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
        (
            {"messages": [{"role": "user", "content": "half \ud800"}]},
            "messages[0].content",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
            "messages[0].tool_calls",
            "unsupported_parameter",
        ),
    ],
)
def test_refused_chat_parameters(
    address: str, engine: ScriptedEngine, change: dict[str, Any], param: str, code: str
) -> None:
    error = refused(address, "/v1/chat/completions", CHAT | change)
    assert (error["param"], error["code"]) == (param, code)
    assert param in error["message"]
    assert "\n" not in error["message"]
    assert engine.submitted == []


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"prompt": 5}, "prompt", "invalid_type"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": [[]]}, "prompt[0]", "invalid_value"),
        ({"prompt": None}, "prompt", "invalid_type"),
        ({"logprobs": 21}, "logprobs", "invalid_value"),
        ({"logprobs": True}, "logprobs", "invalid_type"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"best_of": 3}, "best_of", "unsupported_parameter"),
        ({"messages": []}, "messages", "unknown_parameter"),
    ],
)
def test_refused_text_parameters(
    address: str, engine: ScriptedEngine, change: dict[str, Any], param: str, code: str
) -> None:
    error = refused(address, "/v1/completions", TEXT | change)
    assert (error["param"], error["code"]) == (param, code)


def test_parameters_without_effect_pass(address: str, engine: ScriptedEngine) -> None:
    body = CHAT | {
        "user": "ada",
        "metadata": {"purpose": "test"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "y",
        "parallel_tool_calls": True,
        "stream_options": {"include_obfuscation": False},
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "temperature": None,
        "n": None,
        "stop": None,
    }
    status, _, answer = asked(
        address, "POST", "/v1/chat/completions", json.dumps(body).encode(), JSON
    )
    assert status == 200, answer
    assert engine.submitted[0].sampling.temperature == 1.0


@pytest.mark.parametrize(
    ("change", "param"),
    [({"logit_bias": {"\ud800": 1}}, "logit_bias"), ({"model": "\ud800"}, "model")],
)
def test_half_characters(
    address: str, engine: ScriptedEngine, change: dict[str, Any], param: str
) -> None:
    assert refused(address, "/v1/chat/completions", CHAT | change)["param"] == param


def test_missing_parameters(address: str) -> None:
    error = refused(address, "/v1/chat/completions", {"messages": CHAT["messages"]})
    assert (error["param"], error["code"]) == ("model", "missing_required_parameter")


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b'{"model": ', JSON, "not JSON"),
        (b"[1]", JSON, "JSON object"),
        (b"", JSON, "JSON object"),
        (b"[" * 100_000, JSON, ""),
        (b"\xff\xfe{}", JSON, ""),
        (b'{"model": "default", "\\ud800": 1}', JSON, "not valid"),
        (json.dumps(CHAT).encode(), {"Content-Type": "text/plain"}, "application/json"),
        (json.dumps(CHAT).encode(), {}, "application/json"),
    ],
)
def test_bodies_that_are_not_json(
    address: str, engine: ScriptedEngine, body: bytes, headers: dict[str, str], reason: str
) -> None:
    status, _, answer = asked(address, "POST", "/v1/chat/completions", body, headers)
    assert status == 400
    assert reason in answer["error"]["message"]
    assert engine.submitted == []
