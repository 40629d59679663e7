"""The shipped presets, and what a wrong file is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tp import settings
from local_tp.core import Sampling
from local_tp.errors import InputError
from ui.presets import read_presets

GOOD = """[Plain]
description = "d"
temperature = 0.5
top_p = 0.9
top_k = 20
min_p = 0.0
repetition_penalty = 1.1
max_tokens = 64
"""


def test_the_shipped_presets() -> None:
    presets = {p.name: p for p in read_presets(settings.presets() / "sampling.toml")}
    assert list(presets) == ["Balanced", "Precise", "Creative", "Greedy"]
    assert presets["Greedy"].sampling == Sampling()
    assert presets["Balanced"].sampling.temperature == 0.7


def test_a_preset_by_value(tmp_path: Path) -> None:
    path = tmp_path / "sampling.toml"
    path.write_text(GOOD, encoding="utf-8")
    (plain,) = read_presets(path)
    assert (plain.name, plain.description, plain.max_tokens) == ("Plain", "d", 64)
    assert plain.sampling == Sampling(
        temperature=0.5, top_p=0.9, top_k=20, min_p=0.0, repetition_penalty=1.1
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("top_k", "topk", "topk is not an option"),
        ("top_k = 20\n", "", "top_k is missing"),
        ("top_k = 20", "top_k = 1.5", "top_k must be a whole number from 0 to 200"),
        ("temperature = 0.5", "temperature = 9.0", "temperature must be a number from 0 to 2"),
        ("temperature = 0.5", "temperature = true", "temperature must be a number"),
        ('"d"', "3", "description must be text"),
        ("[Plain]", "Plain = 3\n[Other]", "under a heading"),
        ("[Plain]", "[Plain", "cannot be read"),
        (GOOD, "", "has no presets"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "sampling.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_presets(path)
    assert str(path) in str(caught.value)
