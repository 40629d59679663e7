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


def colours() -> bool:
    """Whether a person wants colours on a terminal that can show them.

    Of Windows' own only the newer one understands them without being asked.
    """
    if sys.platform == "win32" and not os.environ.get("WT_SESSION"):
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# ------------------------------------------------------- the hub, and other programs' folders


def hub_endpoint() -> str:
    """The address of the hub of models: HF_ENDPOINT, or the public one."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_offline() -> bool:
    """Whether nothing may be asked of the hub: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE."""
    stated = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return stated.upper() in ("1", "ON", "YES", "TRUE")


def hub_home() -> Path:
    """Where the hub's own programs keep what is theirs: HF_HOME, or `huggingface` in the cache."""
    if chosen := os.environ.get("HF_HOME"):
        return _expanded(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (_expanded(caches) if caches else Path.home() / ".cache") / "huggingface"


def hub_cache() -> Path:
    """Where the hub's own programs keep models: HF_HUB_CACHE, or `hub` in `hub_home()`."""
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _expanded(chosen) if chosen else hub_home() / "hub"


def hub_token() -> str | None:
    """The person's token for the hub: HF_TOKEN, or the file that logging in writes.

    A token that could not stand in a header is none.
    """
    stated = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if not stated:
        chosen = os.environ.get("HF_TOKEN_PATH")
        file = _expanded(chosen) if chosen else hub_home() / "token"
        try:
            with file.open("rb") as opened:
                stated = opened.read(1 << 12).decode(errors="replace")
        except OSError:
            return None
    token = stated.strip()
    return token if token.isascii() and token.isprintable() and token else None


def ollama_models() -> tuple[Path, ...]:
    """Where Ollama keeps models: OLLAMA_MODELS, or the person's folder and its service's."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return (_expanded(chosen),)
    services = () if sys.platform == "win32" else (Path("/usr/share/ollama"),)
    return tuple(home / ".ollama" / "models" for home in (Path.home(), *services))


def more_model_folders() -> tuple[Path, ...]:
    """Further folders with models, such as those of programs in unusual places.

    LOCAL_TP_MORE_MODELS lists them, with the system's separator of paths between.
    """
    stated = os.environ.get("LOCAL_TP_MORE_MODELS", "").split(os.pathsep)
    return tuple(_expanded(entry) for entry in stated if entry)


def _expanded(text: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))
