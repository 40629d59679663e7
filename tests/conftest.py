"""Shared fixtures, and which tests this machine can run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from local_tp.checkpoint.starter import ensure_starter
from local_tp.hardware.probe import probe


@pytest.fixture(scope="session")
def starter() -> Path:
    """The starter model's GGUF, fetched once and kept in the user's model folder."""
    return ensure_starter(lambda line: None)


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in its background deaf to Ctrl+C, and so would be all we start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` need a card, or as many as `cards` says."""
    marked = [(item, mark) for item in items if (mark := item.get_closest_marker("gpu"))]
    if not marked:
        return
    cards = sum(device.kind == "cuda" for device in probe().devices)
    for item, mark in marked:
        needed = mark.kwargs.get("cards", 1)
        if cards < needed:
            item.add_marker(pytest.mark.skip(reason=f"needs {needed} CUDA card(s), found {cards}"))
