"""The block formats into which loading turns the layouts of quantized repositories.

AWQ, GPTQ, compressed-tensors, bitsandbytes and FP8 files keep codes, scales and zeros in tensors of
their own, packed along rows or columns. A canonical block holds what belongs to `group`
consecutive columns of a row, so that such a matrix is cut, held and multiplied like GGUF's. Pure
arithmetic; scales stay in the type that the file has, so nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

SCALE_BYTES = {"F16": 2, "BF16": 2, "F32": 4}
GROUPS = (128, 64, 32)  # columns of a block, the largest first
INTEGERS = ("INT4", "INT8")  # unsigned codes, with a zero for each block
FLOATS = ("E4M3", "E5M2")
LOOKED_UP = ("NF4", "FP4")  # bitsandbytes' code books


@dataclass(frozen=True, slots=True)
class Canonical:
    """A block: scale, zero (one byte, if `codes` are integers), codes.

    value = (code - zero) x scale for integers, number of the code x scale for the rest. Byte j of
    4-bit codes has column j in its low and column j + group / 2 in its high half.
    """

    codes: str
    group: int
    scale: str

    @property
    def name(self) -> str:
        return f"{self.codes}-G{self.group}-{self.scale}"

    @property
    def has_zero(self) -> bool:
        return self.codes in INTEGERS

    @property
    def code_bits(self) -> int:
        return 4 if self.codes in ("INT4", *LOOKED_UP) else 8

    @property
    def nbytes(self) -> int:
        return SCALE_BYTES[self.scale] + self.has_zero + self.group * self.code_bits // 8


CANONICAL = {
    c.name: c
    for codes in (*INTEGERS, *FLOATS, *LOOKED_UP)
    for group in GROUPS
    for scale in SCALE_BYTES
    for c in (Canonical(codes, group, scale),)
}


def canonical_group(shared: int, columns: int) -> int:
    """Columns of a block where `shared` columns have a scale in common; 0 if there is no such.

    A block lies within one group. Where a row has one scale, any block will do, and the largest
    that leaves no gap at the row's end costs least.
    """
    if shared >= columns:
        return next((g for g in GROUPS if columns % g == 0), GROUPS[-1])
    return next((g for g in GROUPS if shared % g == 0), 0)
