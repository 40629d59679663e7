"""A SentencePiece model file (`tokenizer.model`), read as what it is: a protocol buffer.

Knows nothing of how its pieces are used. The few fields that matter are read by hand, so that no
library and no generated code is needed; no length is believed before the file is seen to hold it.
Field numbers are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from local_tp.checkpoint.fields import LARGEST_NUMBER
from local_tp.errors import CheckpointError
from local_tp.text import BYTE, NORMAL, UNKNOWN

_MOST_PIECES = 1 << 20
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types
_PIECE, _TRAINING, _NORMALIZATION = 1, 2, 3
_UNIGRAM, _BPE = 1, 2

Value = int | bytes


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """The pieces in the order of their ids, and how text is made ready for them."""

    kind: Literal["llama", "unigram"]
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    unknown: int | None
    bos: int | None
    eos: int | None
    add_space_prefix: bool
    squeezes_spaces: bool
    charsmap: str  # base64


def is_sentencepiece(raw: bytes) -> bool:
    """Whether a file begins as these models do: with a piece. Rank files begin with text."""
    return raw[:1] == bytes([_PIECE << 3 | _BYTES])


def read_sentencepiece(source: str, raw: bytes) -> SentencePieceModel:
    """Reads the bytes of `source`. Raises `CheckpointError`."""
    reader = _Reader(source)
    pieces: list[tuple[str, float, int]] = []
    training: dict[int, Value] = {}
    normalization: dict[int, Value] = {}
    for number, value in reader.fields(raw):
        if number == _PIECE and isinstance(value, bytes):
            if len(pieces) == _MOST_PIECES:
                raise reader.damaged(f"it has more than {_MOST_PIECES:,} pieces")
            pieces.append(reader.piece(value))
        elif number == _TRAINING and isinstance(value, bytes):
            training |= reader.fields(value)
        elif number == _NORMALIZATION and isinstance(value, bytes):
            normalization |= reader.fields(value)
    if not pieces:
        raise reader.damaged("it has no pieces")
    return _model(reader, pieces, training, normalization)


def _model(
    reader: _Reader,
    pieces: list[tuple[str, float, int]],
    training: dict[int, Value],
    normalization: dict[int, Value],
) -> SentencePieceModel:
    kind = reader.number(training, 3, _UNIGRAM)
    if kind not in (_UNIGRAM, _BPE):
        raise reader.unsupported("is a model of whole words or of characters")
    if reader.number(training, 24, 0):
        raise reader.unsupported("puts its spaces behind words")
    if not reader.number(normalization, 5, 1):
        raise reader.unsupported("keeps its spaces as they are")
    tokens, scores, types = zip(*pieces, strict=True)
    charsmap = normalization.get(2, b"")
    return SentencePieceModel(
        kind="llama" if kind == _BPE else "unigram",
        tokens=tokens,
        scores=scores,
        types=types,
        unknown=next((i for i, each in enumerate(types) if each == UNKNOWN), None),
        bos=reader.token(training, 41, 1, len(pieces)),
        eos=reader.token(training, 42, 2, len(pieces)),
        add_space_prefix=bool(reader.number(normalization, 3, 1)),
        squeezes_spaces=bool(reader.number(normalization, 4, 1)),
        charsmap=base64.b64encode(charsmap).decode() if isinstance(charsmap, bytes) else "",
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Walks through messages; its errors name the file."""

    source: str

    def fields(self, raw: bytes) -> Iterator[tuple[int, Value]]:
        """Number and value of each field, in the order of the file."""
        at = 0
        while at < len(raw):
            tag, at = self.varint(raw, at)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                value, at = self.varint(raw, at)
                yield number, value
                continue
            if wire == _BYTES:
                size, at = self.varint(raw, at)
            elif wire in (_DOUBLE, _FLOAT):
                size = 8 if wire == _DOUBLE else 4
            else:
                raise self.damaged(f"it has a field of unknown form {wire}")
            if size > len(raw) - at:
                raise self.damaged("a field of it reaches past its end")
            yield number, raw[at : at + size]
            at += size

    def varint(self, raw: bytes, at: int) -> tuple[int, int]:
        """An integer of at most ten bytes and where it ends; negative ones are two's complement."""
        value = 0
        for shift in range(0, 70, 7):
            if at >= len(raw):
                break
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - (1 << 64) if value >> 63 else value, at
        raise self.damaged("it ends in the middle of a number")

    def piece(self, raw: bytes) -> tuple[str, float, int]:
        """Text, score and type of a piece."""
        text, score, kind = b"", 0.0, NORMAL
        for number, value in self.fields(raw):
            if number == 1 and isinstance(value, bytes):
                text = value
            elif number == 2 and isinstance(value, bytes) and len(value) == 4:
                score = struct.unpack("<f", value)[0]
            elif number == 3 and isinstance(value, int):
                kind = value
        if not NORMAL <= kind <= BYTE:
            raise self.damaged(f"it has a piece of unknown type {kind}")
        if not text or not abs(score) < LARGEST_NUMBER:  # not a number compares as false
            raise self.damaged("it has a piece without text or with a score that is no number")
        try:
            return text.decode(), score, kind
        except UnicodeDecodeError as error:
            raise self.damaged("it has a piece that is not UTF-8") from error

    def number(self, fields: dict[int, Value], number: int, default: int) -> int:
        value = fields.get(number, default)
        if not isinstance(value, int):
            raise self.damaged(f"its field {number} is no number")
        return value

    def token(self, fields: dict[int, Value], number: int, default: int, count: int) -> int | None:
        """An id; a negative one means that there is no such token."""
        value = self.number(fields, number, default)
        value -= 1 << 32 if 1 << 31 <= value < 1 << 32 else 0
        if value >= count:
            raise self.damaged(f"it names token {value} and has {count:,}")
        return value if value >= 0 else None

    def damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.source} is damaged: {reason}; download it again")

    def unsupported(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.source} {what}, which is not supported: use a model with a tokenizer.json"
        )
