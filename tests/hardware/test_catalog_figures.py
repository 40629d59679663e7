"""Figures of the catalog that rules and plans lean on where a text does not give them."""

from __future__ import annotations

from local_tp.hardware.catalog import find

GIB = 1024**3


def test_a_name_of_several_sizes_tells_the_least() -> None:
    either = find("AMD Radeon RX 7900 XT/7900 XTX")
    assert either is not None
    assert (either.memory, either.memory_least) == (None, 20 * GIB)
    one = find("NVIDIA GeForce RTX 3090")
    assert one is not None
    assert (one.memory, one.memory_least) == (24 * GIB, None)


def test_the_rates_of_a_spark() -> None:
    spark = find("NVIDIA GB10")
    assert spark is not None
    assert (spark.fp16, spark.bf16, spark.int8, spark.fp8) == (125e12, 125e12, 250e12, 250e12)
