"""SentencePiece models as files against the library that made them; damaged ones are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from small_vocabularies import AS_WRITTEN, sentencepiece
from torture_text import TORTURE

from local_tp.checkpoint.sentencepiece_model import SentencePieceModel, read_sentencepiece
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import CheckpointError
from local_tp.text import TextSpec

library = pytest.importorskip("sentencepiece")

BPE: dict[str, Any] = {"model_type": "bpe"}
UNIGRAM: dict[str, Any] = {"model_type": "unigram"}
# The map of the library composes Hangul letters only where they stand alone, in transformers too.
HANGUL_LETTERS = "\u1100\u1161\u11a8"


def spec(model: SentencePieceModel) -> TextSpec:
    return TextSpec(
        model.kind,
        tokens=model.tokens,
        scores=model.scores,
        token_types=model.types,
        bos=model.bos,
        eos=model.eos,
        unknown=model.unknown,
        add_space_prefix=model.add_space_prefix,
        squeezes_spaces=model.squeezes_spaces,
        charsmap=model.charsmap,
    )


@pytest.mark.parametrize(
    "options",
    [
        BPE | AS_WRITTEN,
        BPE | AS_WRITTEN | {"add_dummy_prefix": False, "split_digits": True},
        BPE,
        BPE | {"byte_fallback": False},
        UNIGRAM | AS_WRITTEN,
        UNIGRAM,
        UNIGRAM | {"byte_fallback": False, "vocab_size": 600},
    ],
    ids=str,
)
def test_equals_sentencepiece_token_for_token(options: dict[str, Any]) -> None:
    raw = sentencepiece(**options)
    theirs = library.SentencePieceProcessor(model_proto=raw)
    model = read_sentencepiece("small", raw)
    assert list(model.tokens) == [theirs.id_to_piece(i) for i in range(theirs.vocab_size())]
    ours = Tokenizer.from_spec(spec(model))
    for sample in TORTURE:
        if model.charsmap and HANGUL_LETTERS in sample:
            sample = sample.replace(HANGUL_LETTERS, "")
        expected, ids = (
            theirs.encode(sample),
            ours.encode(sample, add_bos=False, parse_special=False),
        )
        if model.kind == "unigram" and ids != expected:  # as probable as theirs, to float32
            assert likelihood(model, ids) == pytest.approx(likelihood(model, expected), rel=1e-5)
            assert ours.decode(ids) == ours.decode(expected)
            continue
        assert ids == expected, sample
        if options == BPE | AS_WRITTEN:
            assert ours.decode(ids) == sample.replace("▁", " ")


def likelihood(model: SentencePieceModel, ids: list[int]) -> float:
    return sum(model.scores[i] for i in ids)


@pytest.mark.parametrize("options", [BPE | AS_WRITTEN, UNIGRAM | AS_WRITTEN], ids=str)
def test_plain_text_never_becomes_a_control_or_byte_token(options: dict[str, Any]) -> None:
    model = read_sentencepiece("small", sentencepiece(**options))
    ours = Tokenizer.from_spec(spec(model))
    plain = ours.encode("<s><0x41></s>", add_bos=False, parse_special=False)
    assert {model.types[i] for i in plain} == {1}
    ids = ours.encode("<s>x</s>", add_bos=False)
    assert (ids[0], ids[-1]) == (1, 2)
    assert ours.encode("<s>", add_bos=False) == [1]
    long = "a" * 200_000
    assert ours.decode(ours.encode(long)) == long


def test_user_defined_pieces_are_found_whole() -> None:
    raw = sentencepiece(**BPE, **AS_WRITTEN, add_dummy_prefix=False, user_defined_symbols=["<tag>"])
    theirs = library.SentencePieceProcessor(model_proto=raw)
    ours = Tokenizer.from_spec(spec(read_sentencepiece("small", raw)))
    for sample in ("<tag>", "a<tag>b <tag> the", "<ta<tag>g>"):
        for parse in (True, False):
            assert ours.encode(sample, add_bos=False, parse_special=parse) == theirs.encode(sample)


# ------------------------------------------------------------------------------------ damage


def message(*parts: tuple[int, bytes | int]) -> bytes:
    """A protocol buffer of byte strings and integers."""
    made = b""
    for number, value in parts:
        if isinstance(value, bytes):
            made += bytes([number << 3 | 2]) + varint(len(value)) + value
        else:
            made += varint(number << 3) + varint(value)
    return made


def varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


PIECE = message((1, b"a"), (3, 1))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "no pieces"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fx", "reaches past its end"),
        (b"\x0a" + b"\xff" * 20, "middle of a number"),
        (b"\x0a\x02\x0a", "reaches past its end"),
        (b"\x0b", "unknown form 3"),
        (message((1, message((1, b"\xff")))), "not UTF-8"),
        (message((1, message((3, 1)))), "without text"),
        (message((1, message((1, b"a"), (3, 9)))), "unknown type 9"),
        (message((1, b"\x0a\x01a\x15\x00\x00\xc0\x7f")), "score that is no number"),
        (message((1, PIECE), (2, message((3, 3)))), "whole words or of characters"),
        (message((1, PIECE), (2, message((3, 2), (24, 1)))), "spaces behind words"),
        (message((1, PIECE), (2, message((3, 2), (41, 7)))), "names token 7 and has 1"),
        (message((1, PIECE), (3, message((5, 0)))), "keeps its spaces"),
    ],
)
def test_damaged_models_are_refused(raw: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        read_sentencepiece("small.model", raw)
    assert str(caught.value).startswith("small.model ")


def test_no_change_of_a_model_gets_past_the_reader() -> None:
    """What bytes may do: give another model, or one error of ours."""
    raw, draw = sentencepiece(**BPE), random.Random(3)
    changes: list[Callable[[bytearray], None]] = [
        lambda data: data.__setitem__(draw.randrange(len(data)), draw.randrange(256)),
        lambda data: data.__delitem__(slice(draw.randrange(len(data)), None)),
        lambda data: data.extend(draw.randbytes(8)),
    ]
    refused = 0
    for turn in range(150):
        data = bytearray(raw)
        changes[turn % 3](data)
        try:
            read_sentencepiece("small.model", bytes(data))
        except CheckpointError:
            refused += 1
    assert 50 <= refused < 150
