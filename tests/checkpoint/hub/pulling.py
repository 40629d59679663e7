"""Fetching in a test: repositories to fetch from, and what came of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from local_tp.checkpoint.hub.choice import Choice
from local_tp.checkpoint.hub.client import hub
from local_tp.checkpoint.hub.names import parse_reference
from local_tp.checkpoint.hub.pull import Progress, Pulled, pull
from local_tp.errors import CheckpointError


def weights(seed: int, count: int = 300_000) -> bytes:
    """Bytes that begin like a GGUF file and repeat nowhere near."""
    return b"GGUF" + hashlib.shake_128(bytes([seed])).digest(count)


FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}" * 4000,
    "model-00001-of-00002.safetensors": weights(1),
    "model-00002-of-00002.safetensors": weights(2),
    "model.safetensors.index.json": b'{"weight_map": {}}',
    "pytorch_model.bin": b"pickle",
    "README.md": b"read me",
    ".gitattributes": b"*.safetensors lfs",
    "onnx/model.onnx": b"another kind",
    "original/consolidated.pth": b"pickle",
}
GGUF = {
    "m-Q8_0.gguf": weights(3),
    "m-Q4_0.gguf": weights(4, 200_000),
    "Q6_K/m-Q6_K-00001-of-00002.gguf": weights(5),
    "Q6_K/m-Q6_K-00002-of-00002.gguf": weights(6, 100_000),
    "mmproj-m-f16.gguf": weights(7, 50_000),
    "README.md": b"read me",
}


class Fetched(NamedTuple):
    pulled: Pulled
    choice: Choice
    progress: list[Progress]
    waits: list[float]


def fetch(name: str, ask: bool = False, stop_at: int | None = None) -> Fetched:
    choices: list[Choice] = []
    progress: list[Progress] = []
    waits: list[float] = []

    def report(one: Progress) -> None:
        progress.append(one)
        if stop_at is not None and one.done >= stop_at:
            raise KeyboardInterrupt

    reference = parse_reference(name)
    assert reference is not None
    with hub(wait=waits.append) as connection:
        done = pull(connection, reference, lambda _, c: choices.append(c), report, ask)
    return Fetched(done, choices[0], progress, waits)


def refused(name: str) -> str:
    with pytest.raises(CheckpointError) as error:
        fetch(name)
    (line,) = str(error.value).splitlines()
    return line


def here(tmp_path: Path) -> dict[str, bytes]:
    root = tmp_path / "models"
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def sized(listed: dict[str, Any], size: int) -> dict[str, Any]:
    """What changes an entry of a listing to say another size."""
    return {"lfs": {**listed["lfs"], "size": size}} if "lfs" in listed else {}
