"""A home with nothing in it, for tests of what programs keep where."""

from __future__ import annotations

from pathlib import Path

import pytest

HIDDEN = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "XDG_CACHE_HOME",
    "OLLAMA_MODELS",
    "LOCAL_TP_MORE_MODELS",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home without anything in it; the model folder is to lie beside it."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCAL_TP_MODELS", str(tmp_path / "models"))
    return home
