"""The page over HTTP, as a browser would use it: a real server and Gradio's own client."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fake_engine import FakeEngine
from fastapi import FastAPI
from gradio_client import Client

from local_tp import settings
from local_tp.core import Sampling
from ui.literal import literal
from ui.page import mount
from ui.policy import HEADER
from ui.presets import read_presets

PRECISE = ("Be brief.", 0.2, 0.9, 20, 0.05, 1.0, 50)


LOCAL_SOURCES = {"'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'", "data:", "blob:"}


@contextmanager
def served(engine: FakeEngine) -> Iterator[str]:
    """The page's address while a server for it runs, on a port of the system's choice."""
    app = mount(FastAPI(), engine, read_presets(settings.presets() / "sampling.toml"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def client(address: str, folder: Path) -> Client:
    return Client(address, verbose=False, download_files=str(folder), analytics_enabled=False)


def answers(chatbot: list[dict[str, object]]) -> list[tuple[object, str]]:
    """(role, text) of the messages as they go to the browser."""
    listed = []
    for message in chatbot:
        content = message["content"]
        assert isinstance(content, list)
        listed.append((message["role"], content[0]["text"]))
    return listed


def test_a_question_is_answered_with_the_settings_of_the_page(
    engine: FakeEngine, tmp_path: Path
) -> None:
    with served(engine) as address:
        tab = client(address, tmp_path)
        chatbot, status, box = tab.predict("why?", *PRECISE, 3, api_name="/send")
        assert answers(chatbot) == [("user", "why?"), ("assistant", "One two three.")]
        assert "3 out" in status
        assert box["submit_btn"] == "Send"
        sampling, most = engine.samplings[0]
        assert (sampling.temperature, sampling.top_k, sampling.seed, most) == (0.2, 20, 3, 50)
        assert engine.asked[0][0] == {"role": "system", "content": "Be brief."}


def test_tabs_have_conversations_of_their_own(engine: FakeEngine, tmp_path: Path) -> None:
    with served(engine) as address:
        one, two = client(address, tmp_path), client(address, tmp_path)
        one.predict("first tab", "", *PRECISE[1:], -1, api_name="/send")
        two.predict("second tab", "", *PRECISE[1:], -1, api_name="/send")
        one.predict("again", "", *PRECISE[1:], -1, api_name="/send")
        users = [[m["content"] for m in ask if m["role"] == "user"] for ask in engine.asked]
        assert users == [["first tab"], ["second tab"], ["first tab", "again"]]
        assert engine.samplings[0][0].seed is None
        chatbot, _, _ = one.predict(api_name="/clear")
        assert chatbot == []


def test_stop_reaches_a_running_answer(tmp_path: Path) -> None:
    engine = FakeEngine(hold=True)
    with served(engine) as address:
        tab = client(address, tmp_path)
        job = tab.submit("why?", *PRECISE, -1, api_name="/send")
        deadline = time.monotonic() + 5
        while not job.outputs() and time.monotonic() < deadline:
            time.sleep(0.02)
        tab.predict(api_name="/stop")
        chatbot, status, _ = job.result(timeout=5)
        assert answers(chatbot) == [("user", "why?"), ("assistant", "One ")]
        assert "stopped" in status


def test_a_prompt_that_is_too_long_stays_in_the_box(engine: FakeEngine, tmp_path: Path) -> None:
    with served(engine) as address:
        tab = client(address, tmp_path)
        chatbot, status, box = tab.predict("x" * 120, *PRECISE, -1, api_name="/send")
        assert chatbot == []
        assert "The prompt has 129 tokens and the context holds 100" in status
        assert box["value"] == "x" * 120


def test_markup_reaches_the_model_as_typed_and_comes_back_literal(
    engine: FakeEngine, tmp_path: Path
) -> None:
    question = "  <b>a</b>\n**b** ![x](http://192.0.2.1/p.png)\n"
    with served(engine) as address:
        tab = client(address, tmp_path)
        chatbot, _, _ = tab.predict(question, *PRECISE, "", api_name="/send")
    assert engine.asked[0][-1] == {"role": "user", "content": question}
    assert answers(chatbot)[0] == ("user", literal(question))


def test_a_slip_in_a_setting_does_not_keep_a_question(engine: FakeEngine, tmp_path: Path) -> None:
    with served(engine) as address:
        tab = client(address, tmp_path)
        wrong = (-3, 7, 2.6, None, 99, 1e9, "-17")
        chatbot, _, _ = tab.predict("why?", "", *wrong, api_name="/send")
    assert len(chatbot) == 2
    sampling, most = engine.samplings[0]
    assert sampling == Sampling(
        temperature=0.0, top_p=1.0, top_k=3, min_p=0.05, repetition_penalty=2.0
    )
    assert most == engine.context


def test_a_browser_is_kept_from_other_hosts(engine: FakeEngine) -> None:
    with served(engine) as address:
        for path in ("", "config", "theme.css", "nowhere"):
            policy = httpx.get(address + path).headers[HEADER]
            allowed = dict(rule.split(" ", 1) for rule in policy.split("; "))
            assert allowed["default-src"] == "'self'"
            assert allowed["img-src"] == "'self' data: blob:"
            for sources in allowed.values():
                assert set(sources.split()) <= LOCAL_SOURCES


def test_the_page_asks_no_other_host(engine: FakeEngine) -> None:
    with served(engine) as address:
        config = httpx.get(f"{address}config").json()
        theme = httpx.get(f"{address}theme.css").text
    assert config["analytics_enabled"] is False
    assert config["title"] == "small · local_tp"
    assert "tp-plan" in config["css"]
    assert re.findall(r"(?:url\(|@import)\W*https?:", theme + config["css"]) == []
    assert config["stylesheets"] == []
