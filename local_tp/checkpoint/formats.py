"""How numbers are stored in files and held by ranks, as rows of two tables.

Pure arithmetic: bytes for a shape and the grain at which a tensor may be cut. Both the planner and
the loader count with these rows, so a predicted byte is a byte that is read or held. A row that is
not `readable` has no dequantization: it can be planned with and is refused in a file.
"""

from __future__ import annotations

from dataclasses import dataclass

from local_tp.checkpoint.canonical import CANONICAL

LARGEST_BLOCK = 256  # a format with more elements for its bytes has no blocks, or scales beside it


@dataclass(frozen=True, slots=True)
class Format:
    """A stored format: `block_elements` consecutive columns take `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int
    quantized: bool = False
    readable: bool = False

    @property
    def bits(self) -> float:
        """Bits an element, scales included."""
        return 8 * self.block_bytes / self.block_elements

    @property
    def grain(self) -> int:
        """Columns between the places where a row may be cut; 1 where nothing is kept in blocks."""
        return self.block_elements if self.block_elements <= LARGEST_BLOCK else 1

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes of a (rows, columns) tensor; a row's last block is kept whole."""
        if self.grain == 1:
            return rows * -(-columns * self.block_bytes // self.block_elements)
        return rows * -(-columns // self.block_elements) * self.block_bytes


def _packed(name: str, block_elements: int, block_bytes: int) -> Format:
    return Format(name, block_elements, block_bytes, quantized=True)


def _read(name: str, block_elements: int, block_bytes: int) -> Format:
    return Format(name, block_elements, block_bytes, quantized=True, readable=True)


def _mean_bits(name: str, hundredths: int) -> Format:
    """A format without blocks, whose layers reach so many hundredths of a bit on average."""
    return Format(name, 800, hundredths, quantized=True)


# What the parts of a quantized tensor are stored as, and bytes an element.
RAW_BYTES = {"I64": 8, "I32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
EXL_BITS = tuple(range(200, 805, 5))  # hundredths of a bit, as their names give them

# Blocks of the GGUF formats are as in the GGUF specification: elements and bytes.
FORMATS = {
    f.name: f
    for f in (
        Format("F32", 1, 4, readable=True),
        Format("F16", 1, 2, readable=True),
        Format("BF16", 1, 2, readable=True),
        _read("Q8_0", 32, 34),
        _read("Q4_0", 32, 18),
        _read("Q4_1", 32, 20),
        _read("Q5_0", 32, 22),
        _read("Q5_1", 32, 24),
        _read("Q2_K", 256, 84),
        _read("Q3_K", 256, 110),
        _read("Q4_K", 256, 144),
        _read("Q5_K", 256, 176),
        _read("Q6_K", 256, 210),
        _packed("IQ1_S", 256, 50),
        _packed("IQ1_M", 256, 56),
        _packed("IQ2_XXS", 256, 66),
        _packed("IQ2_XS", 256, 74),
        _packed("IQ2_S", 256, 82),
        _packed("IQ3_XXS", 256, 98),
        _packed("IQ3_S", 256, 110),
        _read("IQ4_XS", 256, 136),
        _read("IQ4_NL", 32, 18),
        _packed("TQ1_0", 256, 54),
        _packed("TQ2_0", 256, 66),
        _packed("IQ2_K", 256, 76),  # this and the next four: a fork's formats
        _packed("IQ3_K", 256, 110),
        _packed("IQ4_K", 256, 144),
        _packed("IQ5_K", 256, 176),
        _packed("IQ6_K", 256, 212),
        _read("MXFP4", 32, 17),  # an exponent for 32 values
        _packed("NVFP4", 16, 9),  # an 8-bit scale for 16 values
        _packed("NF4", 64, 33),  # an 8-bit scale for 64 values, itself scaled
        _packed("FP8", 16384, 16388),  # e4m3 with a float32 scale for 128 x 128 values
        _packed("INT8", 1, 1),  # a scale a row is not counted
        _packed("INT4-G128", 256, 133),  # 16-bit scale and 4-bit zero for 128 values: GPTQ, AWQ
        _packed("INT4-G32", 64, 37),
        *(_read(c.name, c.group, c.nbytes) for c in CANONICAL.values()),
        *(Format(name, 1, size) for name, size in RAW_BYTES.items()),
        *(_mean_bits(f"EXL2-{bits / 100:.2f}", bits) for bits in EXL_BITS),
        *(_mean_bits(f"EXL3-{bits / 100:.2f}", bits) for bits in EXL_BITS),
    )
}
READABLE = tuple(name for name, row in FORMATS.items() if row.readable)


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
