"""The only reader of the environment: where models and caches live.

Nothing here is read at import; every function looks when it is called.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home() -> Path:
    """The folder local_tp owns: LOCAL_TP_HOME, or the system's place for application data."""
    if chosen := os.environ.get("LOCAL_TP_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "local_tp"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "local_tp"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "local_tp"


def models() -> Path:
    """Where models are kept: LOCAL_TP_MODELS, or `models` in `home()`."""
    if chosen := os.environ.get("LOCAL_TP_MODELS"):
        return Path(chosen).expanduser()
    return home() / "models"


def source() -> Path:
    """The folder that holds the code and, beside it, its data."""
    return Path(__file__).resolve().parent.parent


def presets() -> Path:
    """The data tables shipped beside the code."""
    return source() / "presets"


def child_environment() -> dict[str, str]:
    """The environment child processes start from: this one, as a copy to add to."""
    return dict(os.environ)
