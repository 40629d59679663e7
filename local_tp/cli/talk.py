"""Commands that answer in the terminal: chat (with the model's template) and complete (without)."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from local_tp import codec
from local_tp.cli import options, session
from local_tp.cli.facts import to_json
from local_tp.core import Sampling
from local_tp.engine.engine import Engine
from local_tp.engine.generation import Completion, Generation
from local_tp.engine.template import encode_chat
from local_tp.errors import InputError, PromptTooLong


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("chat", help="talk to a model, once or in turns")
    options.add_model(parser, streams=1)
    options.add_sampling(parser)
    parser.add_argument("--prompt", help="answer this and leave (default: talk in turns)")
    parser.add_argument("--system", help="the system prompt")
    options.add_json(parser)
    parser.set_defaults(run=run_chat)

    parser = commands.add_parser("complete", help="continue a raw prompt, without a template")
    options.add_model(parser, streams=1)
    options.add_sampling(parser)
    parser.add_argument("--prompt", required=True, help="the text to continue")
    options.add_json(parser)
    parser.set_defaults(run=run_complete)


def run_chat(parsed: argparse.Namespace) -> int:
    chosen = options.sampling(parsed)
    if parsed.json and parsed.prompt is None:
        raise InputError("--json answers one prompt: add --prompt")
    planned = session.plan(parsed)
    messages = [{"role": "system", "content": parsed.system}] if parsed.system else []
    if parsed.prompt is None:
        with session.running(planned) as (engine, _):
            return _converse(engine, messages, chosen, parsed)
    messages.append({"role": "user", "content": parsed.prompt})
    prompt = encode_chat(planned.tokenizer, planned.template.render(messages))
    return _answer_once(parsed, planned, prompt, chosen)


def run_complete(parsed: argparse.Namespace) -> int:
    chosen = options.sampling(parsed)
    planned = session.plan(parsed)
    prompt = planned.tokenizer.encode(parsed.prompt)
    return _answer_once(parsed, planned, prompt, chosen, continues=True)


def _answer_once(
    parsed: argparse.Namespace,
    planned: session.Planned,
    prompt: Sequence[int],
    chosen: Sampling,
    continues: bool = False,
) -> int:
    if not prompt:
        raise InputError("the prompt is empty: write at least one character in --prompt")
    if len(prompt) >= planned.plan.context:
        raise PromptTooLong(
            len(prompt) + 1,
            planned.plan.context,
            "prompt with one token of answer",
            planned.checkpoint.spec.dimensions.context,
        )
    with session.running(planned) as (engine, load_seconds):
        generation = engine.submit(
            prompt,
            chosen,
            max_tokens=parsed.max_tokens,
            stop=parsed.stop,
            continues=continues,
        )
        if parsed.json:
            print(to_json(_report(engine, generation.result(), prompt, load_seconds)))
        else:
            _print(generation)
            print(_speed(generation), file=sys.stderr)
    return 0


def _report(
    engine: Engine, completion: Completion, prompt: Sequence[int], load_seconds: float
) -> dict[str, Any]:
    timings = completion.timings
    return {
        "model": engine.model,
        "prompt_ids": list(prompt),
        "token_ids": list(completion.tokens),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "usage": {
            "prompt_tokens": timings.prompt_tokens,
            "completion_tokens": timings.completion_tokens,
            "total_tokens": timings.prompt_tokens + timings.completion_tokens,
        },
        "timings": {
            "load": load_seconds,
            "first_token": timings.first_token,
            "prefill_tps": timings.prefill_tps,
            "decode_tps": timings.decode_tps,
            "total": timings.total,
        },
        "plan": codec.encode(engine.plan),
        "measured": {str(rank): codec.encode(m) for rank, m in sorted(engine.measured.items())},
    }


def _converse(
    engine: Engine,
    messages: list[dict[str, str]],
    chosen: Sampling,
    parsed: argparse.Namespace,
) -> int:
    """Turns until the input ends. Ctrl+C stops an answer, and leaves between answers."""
    session.say(f"{engine.model} is ready. Ctrl+C stops an answer, Ctrl+D leaves.")
    session.say("/clear begins a new conversation, /bye leaves.")
    with contextlib.suppress(ImportError):  # not on Windows, whose console has a history itself
        importlib.import_module("readline")
    opening = list(messages)
    while True:
        said = _input()
        if said is None or said.strip() == "/bye":
            return 0
        if said.strip() == "/clear":
            messages[:] = opening
            continue
        if not said.strip():
            continue
        messages.append({"role": "user", "content": said})
        try:
            generation = engine.submit(
                engine.chat_prompt(messages), chosen, max_tokens=parsed.max_tokens, stop=parsed.stop
            )
        except PromptTooLong as error:
            session.say(f"local-tp: {error}; /clear begins a new conversation")
            messages.pop()
            continue
        except InputError as error:
            session.complain(error)
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": _print(generation)})
        if generation.finish_reason == "length":
            session.say(f"[cut after {generation.timings.completion_tokens} tokens]")


def _input() -> str | None:
    """The next line; `None` at the end of the input."""
    if sys.stdin is None:
        return None
    try:
        return input("> ")
    except EOFError:
        print()
        return None


def _print(generation: Generation) -> str:
    """Show an answer as it comes; Ctrl+C ends it. Returns the text so far."""
    text: list[str] = []
    try:
        for chunk in generation:
            text.append(chunk.text)
            print(chunk.text, end="", flush=True)
    except KeyboardInterrupt:
        generation.cancel()
        for chunk in generation:
            text.append(chunk.text)
    print()
    return "".join(text)


def _speed(generation: Generation) -> str:
    timings = generation.timings
    first = "" if timings.first_token is None else f", first after {timings.first_token:.2f} s"
    rate = "" if timings.decode_tps is None else f", {timings.decode_tps:.1f} tokens/s"
    cut = ", cut there" if generation.finish_reason == "length" else ""
    return f"[{timings.prompt_tokens} tokens in, {timings.completion_tokens} out{cut}{first}{rate}]"
