"""The layouts of quantized repositories, a function each: any rows and columns as codes and scales.

A layout reads only the windows of its parts that hold what is asked for. Columns begin at a
multiple of every group and 32-bit word in question. Knows nothing of blocks, shards or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.checkpoint.quant_state import quant_state
from local_tp.core import Span, TensorInfo
from local_tp.load.mapped import Mapped

_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "I8": torch.int8,
}
_WORD = 32
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # where in its word AWQ keeps each of eight rows
_HALF_BYTE = 128  # from signed to unsigned codes


@dataclass(frozen=True, slots=True)
class Coded:
    """Codes (rows, columns) uint8; for each group of columns, a scale and, of integers, a zero."""

    codes: Tensor
    scale: Tensor
    zero: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The mapped parts of one tensor."""

    info: TensorInfo
    mapped: Mapping[str, Mapped]

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns that share a scale."""
        assert self.info.packing is not None
        return self.info.packing.block

    def window(self, name: str, rows: Span, columns: Span) -> Tensor:
        """(rows, columns) of a part in its own type; bytes where torch has no arithmetic for it."""
        part = self.info.parts[name]
        width = part.shape[1] if len(part.shape) == 2 else 1
        cut = Span(columns.start, min(columns.stop, width))
        found = self.mapped[name].read(Span(rows.start, min(rows.stop, part.shape[0])), cut)
        if part.format == "F8_E8M0":
            return found.view(torch.float8_e8m0fnu).float()
        return found.view(_TYPES[part.format]) if part.format in _TYPES else found

    def vector(self, name: str) -> Tensor:
        """A part of one column, whole."""
        part = self.info.parts[name]
        return self.window(name, Span(0, part.shape[0]), Span(0, 1))[:, 0]

    def groups(self, columns: Span) -> Span:
        """The groups that the columns lie in."""
        return _units(columns, self.block[1])


Layout = Callable[[Parts, Span, Span], Coded]


def _awq(parts: Parts, rows: Span, columns: Span) -> Coded:
    """Eight rows in a word, words of a column side by side; scales and zeros likewise."""
    groups = parts.groups(columns)
    return Coded(
        _awq_rows(parts, "qweight", columns, rows),
        parts.window("scales", groups, rows).T,
        _awq_rows(parts, "qzeros", groups, rows),
    )


def _awq_rows(parts: Parts, name: str, across: Span, rows: Span) -> Tensor:
    words = _units(rows, 8)
    found = _unpacked(parts.window(name, across, words), 4)[..., list(_AWQ_PLACES)]
    return _within(found.flatten(1).T, rows, 8 * words.start)


def _gptq(parts: Parts, rows: Span, columns: Span, stored_less_one: bool) -> Coded:
    """Consecutive columns of a row in a word, words of all rows side by side; zeros by rows."""
    bits = _bits(parts, "qweight", 0)
    per_word = _WORD // bits
    words = _units(columns, per_word)
    packed = _unpacked(parts.window("qweight", words, rows), bits)  # (words, rows, columns of one)
    codes = packed.transpose(1, 2).reshape(-1, rows.size).T
    groups = _all_groups(parts) if _ordered(parts) else parts.groups(columns)
    scale = parts.window("scales", groups, rows).T
    held = _units(rows, per_word)
    zero = _unpacked(parts.window("qzeros", groups, held), bits).flatten(1).T
    zero = _within(zero, rows, per_word * held.start)
    if stored_less_one:
        zero = zero + 1 & (1 << bits) - 1
    return Coded(codes[:, : columns.size], scale, zero)


def _gptq_v1(parts: Parts, rows: Span, columns: Span) -> Coded:
    return _gptq(parts, rows, columns, stored_less_one=True)


def _gptq_v2(parts: Parts, rows: Span, columns: Span) -> Coded:
    return _gptq(parts, rows, columns, stored_less_one=False)


def _packed(parts: Parts, rows: Span, columns: Span) -> Coded:
    """compressed-tensors: consecutive columns in a word, rows one after another; zeros by rows."""
    bits = _bits(parts, "weight_packed", 1)
    words = _units(columns, _WORD // bits)
    codes = _unpacked(parts.window("weight_packed", rows, words), bits).flatten(1)
    groups = _all_groups(parts) if _ordered(parts) else parts.groups(columns)
    scale = parts.window("weight_scale", rows, groups)
    if "weight_zero_point" in parts.info.parts:
        held = _units(rows, _WORD // bits)
        found = _unpacked(parts.window("weight_zero_point", held, groups), bits)
        zero = found.transpose(1, 2).reshape(-1, found.shape[1])
        zero = _within(zero, rows, _WORD // bits * held.start, 0)
    else:
        zero = torch.full(scale.shape, 1 << bits - 1, dtype=torch.uint8)
    return Coded(codes[:, : columns.size], scale, zero)


def _bytes(parts: Parts, rows: Span, columns: Span) -> Coded:
    """A byte a code, signed or floating; a scale for each block of rows and columns."""
    codes = parts.window("weight", rows, columns)
    signed = codes.dtype == torch.int8
    scale = _spread(parts, "weight_scale", rows, columns).float()
    if not signed:
        return Coded(codes, scale)
    zero = torch.full(scale.shape, _HALF_BYTE, dtype=torch.uint8)
    if "weight_zero_point" in parts.info.parts:
        zero = _unsigned(_spread(parts, "weight_zero_point", rows, columns))
    return Coded(_unsigned(codes), scale, zero)


def _spread(parts: Parts, name: str, rows: Span, columns: Span) -> Tensor:
    """The scales of blocks, repeated for each of their rows."""
    height = parts.block[0]
    blocks = _units(rows, height)
    found = parts.window(name, blocks, parts.groups(columns))
    return found[torch.arange(rows.start, rows.stop) // height - blocks.start]


def _int8_rows(parts: Parts, rows: Span, columns: Span) -> Coded:
    """bitsandbytes' 8 bits: signed codes, and the largest magnitude of each row."""
    codes = _unsigned(parts.window("weight", rows, columns))
    scale = parts.window("SCB", rows, Span(0, 1)) / 127.0
    return Coded(codes, scale, torch.full(scale.shape, _HALF_BYTE, dtype=torch.uint8))


def _book(parts: Parts, rows: Span, columns: Span) -> Coded:
    """bitsandbytes' 4 bits: the earlier of two columns in the high half of a byte."""
    pairs = parts.window("weight", rows, Span(columns.start // 2, -(-columns.stop // 2)))
    codes = torch.stack((pairs >> 4, pairs & 15), dim=-1).flatten(1)
    groups = parts.groups(columns)
    absmax = parts.window("absmax", rows, groups)
    if "nested_absmax" in parts.info.parts:
        absmax = _nested(parts, absmax, rows, groups)
    return Coded(codes[:, : columns.size], absmax)


def _nested(parts: Parts, codes: Tensor, rows: Span, groups: Span) -> Tensor:
    """Largest magnitudes that are themselves 8-bit codes, with a scale for every few of them."""
    state = quant_state(parts.info.parts["quant_state"])
    in_row = parts.info.parts["absmax"].shape[1]
    place = torch.arange(*rows)[:, None] * in_row + torch.arange(*groups)
    scale = parts.vector("nested_absmax")[place // state.nested_block]
    values: Tensor = parts.vector("nested_quant_map")[codes.int()] * scale
    return values + state.nested_offset


def _mxfp4(parts: Parts, rows: Span, columns: Span) -> Coded:
    """gpt-oss: 32 columns in 16 bytes, the earlier of two in the low half, and an exponent."""
    pairs = parts.window("blocks", rows, Span(columns.start // 2, columns.stop // 2))
    codes = torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(1)
    return Coded(codes, parts.window("scales", rows, parts.groups(columns)))


LAYOUTS: dict[str, Layout] = {
    "awq": _awq,
    "gptq": _gptq_v1,
    "gptq_v2": _gptq_v2,
    "packed": _packed,
    "bytes": _bytes,
    "int8-rows": _int8_rows,
    "code-book": _book,
    "mxfp4": _mxfp4,
}


def _ordered(parts: Parts) -> bool:
    return parts.info.packing is not None and parts.info.packing.ordered


def _all_groups(parts: Parts) -> Span:
    return parts.groups(Span(0, parts.info.shape[1]))


def _bits(parts: Parts, name: str, axis: int) -> int:
    """Bits of a code, from the words that all columns take."""
    return _WORD * parts.info.parts[name].shape[axis] // parts.info.shape[1]


def _units(span: Span, size: int) -> Span:
    """The units of `size` that a span touches."""
    return Span(span.start // size, -(-span.stop // size))


def _within(found: Tensor, rows: Span, first: int, axis: int = 0) -> Tensor:
    """Of rows from `first` on, the wanted ones."""
    return found.narrow(axis, rows.start - first, rows.size)


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """(...) int32 -> (..., codes of a word) uint8, the lowest bits first."""
    shifts = torch.arange(0, _WORD, bits, dtype=torch.int32)
    return (words[..., None] >> shifts & (1 << bits) - 1).to(torch.uint8)


def _unsigned(codes: Tensor) -> Tensor:
    """int8 -> uint8, 128 larger."""
    return codes.view(torch.uint8) ^ _HALF_BYTE
