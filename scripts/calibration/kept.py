"""The fitted constants in `presets/rates.toml`: the part of the file below a line of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from local_tp.rates import Efficiency

MARK = "# ---- fitted: what follows is written by scripts/calibrate.py --fit --write\n"


def write(path: Path, found: Mapping[str, Mapping[str, Efficiency]]) -> None:
    """Replace what stands below the mark. Raises `ValueError` where the file has no such line."""
    text = path.read_text(encoding="utf-8")
    if MARK not in text:
        raise ValueError(f"{path.name} has no line {MARK.strip()!r}")
    path.write_text(text[: text.index(MARK)] + MARK + rendered(found), encoding="utf-8")


def rendered(found: Mapping[str, Mapping[str, Efficiency]]) -> str:
    lines = []
    for family, rows in found.items():
        lines.append(f'\n[engine."{family}".efficiency]')
        for key, one in rows.items():
            lines.append(f'"{key}" = {{ memory = {one.memory}, compute = {one.compute} }}')
    return "\n".join(lines) + "\n"
