"""Where other programs of this person keep models: LM Studio and text-generation-webui.

Knows nothing of models. Folders that are not there are no error, and nothing is changed in any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

LM_STUDIO = "LM Studio"
WEB_UI = "text-generation-webui"
_LARGEST_SETTINGS = 1 << 20
_PLACES = (".", "Documents", "Downloads", "Desktop", "AI", "ai", "src", "git", "oobabooga")
_WEB_UI_NAMES = ("text-generation-webui*", "textgen*", "oobabooga*")


def lm_studio_folders(home: Path) -> tuple[Path, ...]:
    """LM Studio's folders of models: the one its settings name, and its usual ones."""
    pointer = _text(home / ".lmstudio-home-pointer").strip()
    homes = [Path(pointer)] if pointer else []
    homes += [home / ".lmstudio", home / ".cache" / "lm-studio"]
    return _once(
        folder for its in homes for folder in (*_downloads(its / "settings.json"), its / "models")
    )


def web_ui_folders(home: Path) -> tuple[Path, ...]:
    """The folders of models of every text-generation-webui in the usual places below `home`."""
    found = []
    for place in _PLACES:
        for pattern in _WEB_UI_NAMES:
            for program in sorted((home / place).glob(pattern)):
                found += [program / "user_data" / "models", program / "models"]
                found.append(program / "text-generation-webui" / "models")
    return _once(found)


def _downloads(settings: Path) -> Iterator[Path]:
    try:
        values = json.loads(_text(settings))
    except (ValueError, RecursionError):  # a program's own file, which may be anything
        return
    chosen = values.get("downloadsFolder") if isinstance(values, dict) else None
    if isinstance(chosen, str) and chosen:
        yield Path(chosen)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST_SETTINGS).decode("utf-8", errors="replace")
    except (OSError, ValueError):  # it is not there, or its name is none
        return ""


def _once(folders: Iterator[Path] | list[Path]) -> tuple[Path, ...]:
    """Those that are there, each only once, whatever links lead to it."""
    found: dict[Path, Path] = {}
    for folder in folders:
        try:
            if folder.is_absolute() and folder.is_dir():
                found.setdefault(folder.resolve(), folder)
        except (OSError, ValueError):  # a name with a null in it, or a link to itself
            continue
    return tuple(found.values())
