"""Puts `scripts/` on the path, as Python does when it runs `scripts/launch.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from launcher.environment import Environment  # noqa: E402
from launcher_fakes import PROJECT, put  # noqa: E402


@pytest.fixture
def checkout(tmp_path: Path) -> Environment:
    put(tmp_path, "pyproject.toml", PROJECT)
    put(tmp_path, "scripts/constraints.txt", "torch==2.13.0\n")
    return Environment(tmp_path)
