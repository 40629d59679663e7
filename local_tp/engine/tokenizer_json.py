"""A `tokenizer.json` of a stranger, as a working tokenizer of the library.

Knows nothing of vocabularies held elsewhere. The file is a program of a kind: its normalizers may
rewrite text to any length, so what they can add is bounded before the library sees it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from math import prod
from typing import Any

import tokenizers

from local_tp.engine.vocabulary import longest_replacement, refusing
from local_tp.errors import CheckpointError

_LARGEST_FILE = 1 << 26  # the largest vocabularies take 33 MB
_LONGEST_PREFIX = 1 << 10
# Times that all normalizers together may lengthen a text: SentencePiece's map makes 33 bytes of one
# character at most, and its spaces of three bytes come on top.
_MOST_GROWTH = 512
_MOST_STEPS = 64


def read_tokenizer(file: str) -> tokenizers.Tokenizer:
    """The tokenizer that `file` describes, without its padding and truncation.

    Raises `CheckpointError` for one that is damaged, or that could blow a text up.
    """
    try:
        size = os.stat(file).st_size
    except OSError as error:
        raise CheckpointError(
            f"cannot read the tokenizer {file} ({error.strerror}): check that it is there"
        ) from error
    if size > _LARGEST_FILE:
        raise CheckpointError(
            f"the tokenizer {file} has {size:,} bytes and {_LARGEST_FILE:,} are the most that is "
            "read: it is damaged, download it again"
        )
    with refusing(f"cannot read the tokenizer {file}"):
        backend = tokenizers.Tokenizer.from_file(file)
    backend.no_truncation()
    backend.no_padding()
    _check_growth(backend, file)
    return backend


def decoding(backend: tokenizers.Tokenizer, file: str) -> tuple[bool, bool]:
    """Whether tokens are spelled in the byte alphabet, and whether a first space is dropped."""
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
    steps = {step["type"]: step for step in state.get("decoders", [state]) if step}
    if "ByteLevel" in steps:
        return True, False
    if "Metaspace" in steps:
        return False, steps["Metaspace"].get("prepend_scheme") != "never"
    if "ByteFallback" in steps:
        return False, "Strip" in steps
    raise CheckpointError(
        f"{file} decodes by {' and '.join(steps) or 'nothing'}, which is not known here: use a "
        "model with a byte-level or a SentencePiece vocabulary"
    )


def _check_growth(backend: tokenizers.Tokenizer, file: str) -> None:
    """Refuse normalizers that could make a text more than `_MOST_GROWTH` times as long."""
    if backend.normalizer is None:
        return
    steps = list(_steps(json.loads(backend.normalizer.__getstate__())))
    growth = prod(map(_growth, steps[:_MOST_STEPS]))
    added = sum(len(s.get("prepend", "").encode()) for s in steps if s["type"] == "Prepend")
    if len(steps) > _MOST_STEPS or growth > _MOST_GROWTH or added > _LONGEST_PREFIX:
        raise CheckpointError(
            f"the tokenizer {file} would make any text many times as long before reading it: it "
            "is damaged, or was made to do harm; use another model"
        )


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if state.get("type") == "Sequence":
        for inner in state["normalizers"]:
            yield from _steps(inner)
    else:
        yield state


def _growth(step: dict[str, Any]) -> float:
    """Bytes that a step can make of one."""
    if step["type"] == "ByteLevel":
        return 2.0
    if step["type"] == "Precompiled":
        return longest_replacement(base64.b64decode(step["precompiled_charsmap"]))
    if step["type"] != "Replace":
        return 1.0  # Unicode's own forms, which are no longer for being taken again
    pattern = step["pattern"]
    # A pattern may match the empty string, before and after every character.
    shortest = len(pattern.get("String", "").encode()) or 1
    return max(1.0, len(step["content"].encode()) / shortest + ("Regex" in pattern))
