"""Shared fixtures: the starter model, fetched once and kept in the user's model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tp.checkpoint.starter import ensure_starter


@pytest.fixture(scope="session")
def starter() -> Path:
    """The starter model's GGUF."""
    return ensure_starter(lambda line: None)
