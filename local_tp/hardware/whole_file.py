"""Writes a small file in one step: readers see the old text or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(file: Path, text: str) -> None:
    """Put `text` in the place of `file`, whose folder exists. Raises `OSError`."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as part:
            part.write(text)
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)
