"""Tokenizers that were made to do harm: one error in a moment, and no memory to speak of."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from small_vocabularies import gguf_spec
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from local_tp.checkpoint.folder_text import read_folder_text
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import CheckpointError, InputError
from local_tp.text import TextSpec

resource = pytest.importorskip("resource")

MIB = 1024 * 1024


@contextmanager
def little_memory() -> Iterator[None]:
    """Ends with the process no more than 256 MiB above its highest so far."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024


def saved(path: Path, normalizer: Any = None, pattern: str | None = None) -> TextSpec:
    made = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    made.decoder = decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    if pattern is not None:
        made.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    made.save(str(path))
    return TextSpec("json", file=str(path))


def charsmap(longest: int) -> bytes:
    """SentencePiece's compiled map: a table in which nothing is found, then texts."""
    return (4096).to_bytes(4, "little") + bytes(4096) + b"x" * longest + b"\0"


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Sequence([normalizers.Replace("a", "aa")] * 40),
        normalizers.Replace("a", "a" * 10_000),
        normalizers.Replace(Regex(""), "a" * 10_000),
        normalizers.Sequence([normalizers.Sequence([normalizers.Replace("a", "bbb")] * 3)] * 3),
        normalizers.Prepend("a" * 5_000),
        normalizers.Sequence([normalizers.ByteLevel()] * 20),
        normalizers.Sequence([normalizers.NFC()] * 100),
    ],
    ids=["doubling", "long", "empty", "nested", "prefix", "spelling", "many"],
)
def test_a_text_bomb_is_refused_when_it_is_read(tmp_path: Path, normalizer: Any) -> None:
    text = saved(tmp_path / "tokenizer.json", normalizer)
    with little_memory(), pytest.raises(CheckpointError, match="many times as long"):
        Tokenizer.from_spec(text)


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), "▁")]),
        normalizers.Sequence([normalizers.NFC()]),
    ],
    ids=["llama", "unigram", "qwen"],
)
def test_what_models_have_is_read(tmp_path: Path, normalizer: Any) -> None:
    made = Tokenizer.from_spec(saved(tmp_path / "tokenizer.json", normalizer))
    assert made.encode("ab") == [0, 1]


def test_a_compiled_map_that_makes_long_texts_is_refused(tmp_path: Path) -> None:
    for longest, fits in ((33, True), (10_000, False)):
        path = tmp_path / f"{longest}.json"
        text = saved(path)
        whole = json.loads(path.read_text())
        encoded = base64.b64encode(charsmap(longest)).decode()
        whole["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": encoded}
        path.write_text(json.dumps(whole))
        if fits:
            assert Tokenizer.from_spec(text).encode("ab") == [0, 1]
        else:
            with pytest.raises(CheckpointError, match="many times as long"):
                Tokenizer.from_spec(text)
        pieces = TextSpec(
            "unigram", tokens=("a",), scores=(0.0,), token_types=(1,), charsmap=encoded
        )
        if not fits:
            with pytest.raises(CheckpointError, match="many times as long"):
                Tokenizer.from_spec(pieces)


def test_a_pattern_that_tries_for_ever_ends_as_an_error(tmp_path: Path) -> None:
    made = Tokenizer.from_spec(saved(tmp_path / "tokenizer.json", pattern="(a+)+$"))
    assert made.encode("aaaa") == [0, 0, 0, 0]
    with little_memory(), pytest.raises(InputError, match="gave up on this text") as caught:
        made.encode("a" * 50 + "b")
    assert "\n" not in str(caught.value)
    assert made.encode("ab") == [0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 2_000_000, "damaged|more than"),
        ('{"a": ' * 100_000, "damaged"),
        ("{" + '"a": [' + "{},[]," * 5_000_000 + "0]}", "more than 8,388,608 values"),
        (" " * (65 * MIB), "more than 67,108,864 bytes"),
    ],
    ids=["open", "deep", "many", "large"],
)
def test_a_swollen_file_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with little_memory(), pytest.raises(CheckpointError, match=said):
        read_folder_text(tmp_path, 100)


def test_a_swollen_file_is_not_given_to_the_library_either(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="1,099,511,627,776 bytes"):
        Tokenizer.from_spec(TextSpec("json", file=str(path)))


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_tokens_of_endless_length_are_refused(kind: Any) -> None:
    """To cut one of a megabyte in two in every way takes a terabyte of copying."""
    text = TextSpec(
        kind, tokens=("a" * MIB, "a"), scores=(0.0, 0.0), token_types=(1, 1), pre="gpt-2"
    )
    with little_memory(), pytest.raises(CheckpointError, match="longer than any vocabulary's"):
        Tokenizer.from_spec(text)


def test_a_vocabulary_the_library_panics_at_is_one_error(tmp_path: Path) -> None:
    text = saved(tmp_path / "tokenizer.json")
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    for changes in (
        {"model": {"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}},
        {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    ):
        (tmp_path / "tokenizer.json").write_text(json.dumps(whole | changes))
        with pytest.raises(CheckpointError, match="cannot read the tokenizer"):
            Tokenizer.from_spec(text)


def test_a_text_without_a_token_for_it_is_an_error(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(models.Unigram(vocab=[("a", -1.0)]))
    made.decoder = decoders.Metaspace()
    made.add_tokens([AddedToken("<x>")])
    made.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_spec(TextSpec("json", file=str(tmp_path / "tokenizer.json")))
    with pytest.raises(InputError, match="gave up on this text"):
        ours.encode("é")


def test_a_pattern_of_a_stranger_has_a_length() -> None:
    spec = gguf_spec("gpt-2")
    endless = TextSpec("gpt2", tokens=spec.tokens, pre="gpt-2", pattern="a" * 20_000)
    with pytest.raises(CheckpointError, match="pattern that cuts words is damaged"):
        Tokenizer.from_spec(endless)
