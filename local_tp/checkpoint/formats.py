"""How numbers are stored in files and held by ranks, as rows of two tables.

Pure arithmetic: bytes for a shape and the grain at which a tensor may be cut. Both the planner and
the loader count with these rows, so a predicted byte is a byte that is read or held.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A stored format: `block_elements` consecutive columns take `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int
    quantized: bool = False

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes of a (rows, columns) tensor; columns must be whole blocks."""
        return rows * (columns // self.block_elements) * self.block_bytes


FORMATS = {
    f.name: f
    for f in (
        Format("F32", 1, 4),
        Format("F16", 1, 2),
        Format("BF16", 1, 2),
        Format("Q8_0", 32, 34, quantized=True),
        Format("Q4_0", 32, 18, quantized=True),
        Format("Q4_1", 32, 20, quantized=True),
    )
}


@dataclass(frozen=True, slots=True)
class Held:
    """A form in memory: bits an element, bytes a row and bytes a group of 32 columns."""

    name: str
    bits: int
    row_bytes: int = 0
    group_bytes: int = 0
    row_grain: int = 1
    column_grain: int = 1

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes a (rows, columns) parameter takes in memory."""
        return (
            rows * columns * self.bits // 8
            + rows * self.row_bytes
            + rows * (columns // 32) * self.group_bytes
        )


HELD = {
    h.name: h
    for h in (
        Held("float32", 32),
        Held("float16", 16),
        Held("bfloat16", 16),
        Held("int8", 8, row_bytes=2),  # a bfloat16 scale a row
        Held("int4", 4, group_bytes=4, row_grain=64, column_grain=32),  # scale and zero a group
    )
}
