"""The names that published measurements use, and what they stand for: `names.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local_tp.codec import decode


@dataclass(frozen=True, slots=True)
class Engine:
    """`chunk` tokens of a prompt at a time; `rates` is its name among the constants.

    Engines of a `family` share what is fitted. `fast_sums` says that products are summed in 16
    bits or of 8-bit numbers where a card is faster so; `multiprocessor` is how many GB a second
    its kernels can have on their way to one multiprocessor; `without_int8` how many bytes an
    operation in 32 bits can unpack, where a card has no dot products of 8-bit numbers.
    """

    match: str
    rates: str
    chunk: int
    family: str = ""
    fast_sums: bool = True
    multiprocessor: float | None = None
    without_int8: float | None = None


@dataclass(frozen=True, slots=True)
class Processor:
    """Memory in GB a second as rated, and 1e12 dense operations a second of all cores."""

    bandwidth: float
    flops: float


@dataclass(frozen=True, slots=True)
class Names:
    direct_forced: tuple[str, ...]  # sources that make NCCL go from card to card everywhere
    engine: tuple[Engine, ...]
    card: dict[str, str]
    quant: dict[str, str]
    processor: dict[str, Processor]
    stated: dict[str, dict[str, int]]  # by a row's id: what its quote states and its fields lack
    prefill_left_out: dict[str, str]  # the same of prompts alone
    left_out: dict[str, str]  # by a row's id: why its source says that it is no such measurement

    def engine_of(self, text: str) -> Engine:
        """The first that matches; the last matches everything."""
        return next(e for e in self.engine if re.search(e.match, text))

    def processor_of(self, text: str) -> Processor | None:
        return next((p for name, p in self.processor.items() if name in text), None)


@cache
def names() -> Names:
    text = (Path(__file__).parent / "names.toml").read_text(encoding="utf-8")
    return decode(Names, tomllib.loads(text))
