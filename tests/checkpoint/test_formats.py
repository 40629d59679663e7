"""Rows of the formats are those of the GGUF package; what cannot be read is refused."""

from __future__ import annotations

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from local_tp.checkpoint.formats import EXL_BITS, FORMATS, READABLE
from local_tp.checkpoint.gguf_header import Entry, _located
from local_tp.errors import CheckpointError
from local_tp.model.dequantize import BLOCK_FORMATS, PLAIN

SHARED = [kind for kind in GGML_QUANT_SIZES if kind.name in FORMATS]


@pytest.mark.parametrize("kind", SHARED, ids=lambda kind: str(kind.name))
def test_blocks_are_those_of_the_gguf_package(kind: GGMLQuantizationType) -> None:
    block, nbytes = GGML_QUANT_SIZES[kind]
    assert FORMATS[kind.name].nbytes(3, 4 * block) == 12 * nbytes


def test_the_package_and_the_table_have_the_common_formats_in_common() -> None:
    assert len(SHARED) >= 26


def test_bytes_of_rows_that_are_not_whole_blocks() -> None:
    assert FORMATS["Q4_K"].nbytes(3, 384) == 3 * 288
    assert FORMATS["Q4_K"].grain == 256
    assert FORMATS["EXL3-3.50"].grain == FORMATS["FP8"].grain == FORMATS["F16"].grain == 1
    assert FORMATS["EXL3-3.50"].nbytes(2, 4096) == 2 * 4096 * 7 // 16
    assert FORMATS["FP8"].nbytes(1, 16384) == 16384 + 4


@pytest.mark.parametrize(
    ("name", "bits"),
    [("Q4_K", 4.5), ("Q6_K", 6.5625), ("MXFP4", 4.25), ("NVFP4", 4.5), ("INT4-G128", 4.15625),
     ("INT4-G32", 4.625), ("NF4", 4.125), ("IQ1_S", 1.5625), ("EXL2-4.65", 4.65)],
)  # fmt: skip
def test_bits_an_element(name: str, bits: float) -> None:
    assert FORMATS[name].bits == pytest.approx(bits)


def test_every_twentieth_of_a_bit_of_exl() -> None:
    assert {f"EXL3-{bits / 100:.2f}" for bits in EXL_BITS} <= set(FORMATS)
    assert "EXL2-2.00" in FORMATS
    assert "EXL2-8.00" in FORMATS


def test_what_can_be_read() -> None:
    """Exactly those that have a dequantization; of GGUF's, all in common use."""
    assert set(READABLE) == PLAIN.keys() | BLOCK_FORMATS.keys()
    in_use = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4"
    assert set(in_use.split()) <= set(READABLE)


@pytest.mark.parametrize(
    "kind", [k for k in SHARED if k.name not in READABLE], ids=lambda kind: str(kind.name)
)
def test_a_format_that_is_known_and_not_readable_is_refused(kind: GGMLQuantizationType) -> None:
    entry = Entry("blk.0.ffn_up.weight", (256, 8), int(kind), 0)
    with pytest.raises(CheckpointError, match=f"stored as {kind.name}, which is not supported yet"):
        _located(entry, 0, "model.gguf", 1 << 30)
