"""The header of one GGUF file: its metadata and its table of tensors, in one bounded pass.

Knows nothing of what the metadata means. The `gguf` library's reader is not used for this: it maps
every string of a vocabulary as an array of its own, which takes seconds, and it loops as often as a
damaged count tells it to. Here no count or length is believed before the file is seen to hold it,
and only the header is read. Layout: the GGUF specification, versions 2 and 3, little endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol

from local_tp.checkpoint.fields import LARGEST_COUNT, Fields, shown
from local_tp.checkpoint.formats import FORMATS, READABLE
from local_tp.core import TensorInfo
from local_tp.errors import CheckpointError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# Numbers of the tensor table, as the format's specification gives them.
KINDS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9

# Far above any real model, low enough that a damaged header costs little: the largest vocabularies
# and their merges make about a million elements and 20 MiB.
_MOST_KEYS = 1 << 14
_MOST_TENSORS = 1 << 17
_MOST_ELEMENTS = 1 << 21
_LARGEST_HEADER = 1 << 28
_LONGEST_NAME = 1 << 10
_LONGEST_TEXT = 1 << 24
_MOST_DIMENSIONS = 4


class Readable(Protocol):
    """Anything that gives the next bytes."""

    def read(self, count: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the tensor table as stored: `dims` from the innermost, `offset` in the data."""

    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata, and the tensor table with the place in the file where its data starts."""

    metadata: Fields
    entries: tuple[Entry, ...]
    start: int
    size: int

    def tensors(self) -> dict[str, TensorInfo]:
        """The tensors by stored name. Refuses a format that is not read, and an incomplete file."""
        source = self.metadata.source
        return {e.name: _located(e, self.start, source, self.size) for e in self.entries}


def read_header(path: Path) -> GgufHeader:
    """Reads the header of `path`. Raises `CheckpointError`; `OSError` passes through."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        return header_of(file, str(path), size)


def header_of(file: Readable, source: str, size: int) -> GgufHeader:
    """The header of a file of `size` bytes that is read forward only, from its beginning."""
    cursor = _Cursor(file, source, size)
    tensor_count, key_count = _opening(cursor)
    metadata = Fields(source, _metadata(cursor, key_count))
    entries = _entries(cursor, tensor_count)
    alignment = metadata.integer("general.alignment", default=32)
    start = -(-cursor.position // alignment) * alignment
    return GgufHeader(metadata, entries, start, size)


class _Cursor:
    """Reads forward through a header; refuses what would go past the end before reading it."""

    def __init__(self, file: Readable, source: str, size: int) -> None:
        self.file, self.source, self.size = file, source, size
        self.position = 0
        self.elements = _MOST_ELEMENTS

    def bytes(self, count: int) -> bytes:
        if count > self.size - self.position:
            raise self.damaged("it ends in the middle of its header")
        if count > _LARGEST_HEADER - self.position:
            raise self.damaged(f"its header is larger than {_LARGEST_HEADER:,} bytes")
        data = self.file.read(count)
        if len(data) != count:
            raise self.damaged("it became shorter while it was read")
        self.position += count
        return data

    def number(self, code: str) -> int:
        """One little-endian integer of a `struct` code."""
        value: int = struct.unpack(f"<{code}", self.bytes(struct.calcsize(f"<{code}")))[0]
        return value

    def count(self, code: str, most: int, what: str) -> int:
        value = self.number(code)
        if value > most:
            raise self.damaged(f"its header claims {value:,} {what}")
        return value

    def text(self, longest: int = _LONGEST_TEXT) -> str:
        length = int.from_bytes(self.bytes(8), "little")  # the one hot place: a million tokens
        if length > longest:
            raise self.damaged(f"its header claims a text of {length:,} bytes")
        raw = self.bytes(length)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{shown(raw)} in its header is not UTF-8") from error

    def damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.source} is damaged: {reason}; download it again")


def _opening(cursor: _Cursor) -> tuple[int, int]:
    """Checks magic and version; returns the counts of tensors and metadata keys."""
    if cursor.size == 0:
        raise cursor.damaged("it is empty")
    if cursor.size < len(_MAGIC) or cursor.bytes(len(_MAGIC)) != _MAGIC:
        raise CheckpointError(
            f"{cursor.source} is not a GGUF file: give a .gguf file or a Hugging Face model folder"
        )
    version = cursor.number("I")
    if version & 0xFFFF == 0 and version:
        raise CheckpointError(
            f"{cursor.source} is a big-endian GGUF, which is not supported: use a little-endian one"
        )
    if version not in _VERSIONS:
        raise CheckpointError(
            f"{cursor.source} is GGUF version {version}, and versions 2 and 3 are supported: "
            "download a newer conversion of the model"
        )
    tensors = cursor.count("Q", _MOST_TENSORS, "tensors")
    return tensors, cursor.count("Q", _MOST_KEYS, "metadata keys")


def _metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    values: dict[str, object] = {}
    for _ in range(count):
        key = cursor.text(_LONGEST_NAME)
        if key in values:
            raise cursor.damaged(f"metadata key {shown(key)} is there twice")
        values[key] = _value(cursor, cursor.number("I"))
    return values


def _value(cursor: _Cursor, kind: int) -> object:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _array(cursor)
    return _scalars(cursor, kind, 1)[0]


def _array(cursor: _Cursor) -> tuple[object, ...]:
    kind = cursor.number("I")
    count = cursor.count("Q", cursor.elements, "elements in its lists")
    cursor.elements -= count
    if kind == _STRING:
        return tuple(cursor.text() for _ in range(count))
    return _scalars(cursor, kind, count)


def _scalars(cursor: _Cursor, kind: int, count: int) -> tuple[object, ...]:
    if kind not in _SCALARS:
        raise cursor.damaged(f"its header has a value of unknown type {kind}")
    layout = f"<{count}{_SCALARS[kind]}"
    return struct.unpack(layout, cursor.bytes(struct.calcsize(layout)))


def _entries(cursor: _Cursor, count: int) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for _ in range(count):
        entry = _entry(cursor)
        if entry.name in entries:
            raise cursor.damaged(f"tensor {shown(entry.name)} is there twice")
        entries[entry.name] = entry
    return tuple(entries.values())


def _entry(cursor: _Cursor) -> Entry:
    name = cursor.text(_LONGEST_NAME)
    count = cursor.count("I", _MOST_DIMENSIONS, f"dimensions of {shown(name)}")
    what = f"elements in one dimension of {shown(name)}"
    dims = tuple(cursor.count("Q", LARGEST_COUNT, what) for _ in range(count))
    if not dims or 0 in dims:
        raise cursor.damaged(f"tensor {shown(name)} is empty")
    return Entry(name, dims, cursor.number("I"), cursor.number("Q"))


def _located(entry: Entry, start: int, source: str, size: int) -> TensorInfo:
    """The tensor's place in the file, which must hold all of it."""
    tensor = f"{source}: tensor {shown(entry.name)}"
    name = format_name(entry.kind)
    if name not in READABLE:
        raise CheckpointError(
            f"{tensor} is stored as {name}, which is not supported yet: "
            "choose a file of Q4_K_M, Q6_K, Q8_0 or another format without rare types"
        )
    stored, columns = FORMATS[name], entry.dims[0]
    if columns % stored.block_elements:
        raise CheckpointError(
            f"{tensor} is damaged: its {columns} columns are not whole blocks of {name}"
        )
    nbytes = stored.nbytes(prod(entry.dims[1:]), columns)
    end = start + entry.offset + nbytes
    if end > size:
        raise CheckpointError(
            f"{tensor} ends at byte {end:,} and the file has {size:,}: "
            "the file is incomplete; download it again"
        )
    shape = tuple(reversed(entry.dims))
    return TensorInfo(shape, name, nbytes, source, start + entry.offset)


def format_name(kind: int) -> str:
    """What a number in the tensor table stands for."""
    return KINDS.get(kind, f"type {kind}")
