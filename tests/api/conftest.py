"""A real HTTP server over the scripted engine, and OpenAI's own client to ask it."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from fastapi import FastAPI
from http_side import running
from scripted_engine import ScriptedEngine

from local_tp.api.server import create_app


@pytest.fixture(scope="session")
def served() -> tuple[ScriptedEngine, FastAPI]:
    engine = ScriptedEngine()
    return engine, create_app(engine)


@pytest.fixture(scope="session")
def address(served: tuple[ScriptedEngine, FastAPI]) -> Iterator[str]:
    """Where the API is served, to all tests: a server takes a while to stop."""
    with running(served[1]) as address:
        yield address


@pytest.fixture
def engine(served: tuple[ScriptedEngine, FastAPI]) -> Iterator[ScriptedEngine]:
    """The engine behind `address`, as new."""
    engine = served[0]
    vars(engine).update(vars(ScriptedEngine()))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def openai_client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{address}/v1", api_key="unused", max_retries=0, timeout=10
    ) as client:
        yield client


@pytest.fixture
def client(openai_client: openai.OpenAI, engine: ScriptedEngine) -> openai.OpenAI:
    return openai_client
