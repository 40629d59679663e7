"""What cards can do as sold: the table `presets/gpus.toml`, and finding a card's row by name.

Knows nothing of the machine it runs on. Figures are bytes, seconds and operations, None where
no source gives them: nothing here is guessed, and nothing measured is ever replaced.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from local_tp import settings
from local_tp.codec import decode
from local_tp.core import Device
from local_tp.errors import InputError
from local_tp.facts import PcieReading, Vendor
from local_tp.hardware.card_names import alternatives, readings, spelling, truncated
from local_tp.hardware.devices import CONTEXT

GIB = 1024**3
MIB = 1024**2
# Drivers report a little less than was sold: 91% with ECC in the same memory, 100% without.
LEAST, MOST = 0.88, 1.04
MULTIPLES = (2, 3, 4)  # chips of a larger size on the same bus
# What a process takes on an NVIDIA card before its own data grows with the number of streaming
# multiprocessors: a line through the cards on which it was measured, and the least of them.
CONTEXT_BASE, CONTEXT_EACH, CONTEXT_LEAST = 8.0, 2.91, 107.0  # MiB
MOST_MODELS = 6  # more cards than this have nothing in common worth saying

_PCIE = re.compile(r"([1-7])\.0 x(1|2|4|8|16)")
_NUMBERS = ("memory", "bandwidth", "fp32", "fp16", "fp16_fast", "bf16", "int8", "fp8", "nvlink",
            "tdp", "sms", "context")  # fmt: skip
_TARGET = re.compile(r"sm_(\d{1,2})(\d)|gfx[0-9a-f]{3,4}")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card's figures. Rates are dense operations a second with 32-bit sums.

    `target` is what kernels are compiled for (sm_86, gfx1100); `fp16_fast` the rate with 16-bit
    sums where it is higher; `nvlink` bytes a second both ways over all links; `sms` counts
    streaming multiprocessors; `context` is the bytes one process takes before its own data,
    measured or derived as the row's sources say. `modded` says that `memory` is no size as sold.
    """

    name: str
    vendor: Vendor
    architecture: str | None = None
    target: str | None = None
    memory: int | None = None
    memory_least: int | None = None  # where a name stands for cards of several sizes
    bandwidth: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    fp16_fast: float | None = None
    bf16: float | None = None
    int8: float | None = None
    fp8: float | None = None
    pcie: PcieReading | None = None
    nvlink: float | None = None
    tdp: float | None = None
    sms: int | None = None
    context: int | None = None
    integrated: bool | None = False
    aliases: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    modded: bool = False

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA's compute capability; None for other makers' cards."""
        match = _TARGET.fullmatch(self.target or "")
        return (int(match[1]), int(match[2])) if match and match[1] else None

    @property
    def flops(self) -> float | None:
        """The rate a 16-bit model runs at: in fp32 on cards that are slower at 16 bits."""
        return max((rate for rate in (self.fp32, self.fp16, self.bf16) if rate), default=None)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as the file states it, in the file's units."""

    name: str
    sources: tuple[str, ...]
    target: str | None = None
    memory: float | None = None
    bandwidth: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    fp16_fast: float | None = None
    bf16: float | None = None
    int8: float | None = None
    fp8: float | None = None
    pcie: str | None = None
    nvlink: float | None = None
    tdp: float | None = None
    sms: int | None = None
    context: int | None = None
    integrated: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Architecture:
    vendor: Vendor
    cards: tuple[_Row, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    sources: dict[str, str]
    architecture: dict[str, _Architecture]


def catalog() -> tuple[Gpu, ...]:
    """Every card of the table, in its order."""
    return read_catalog(_path())


@cache
def read_catalog(path: Path) -> tuple[Gpu, ...]:
    """The cards of a table. Raises `InputError`, one line with file, row and key."""
    try:
        table = decode(_Table, tomllib.loads(path.read_text(encoding="utf-8")))
        return _cards(table)
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{path.name}: {error}") from error


def find(name: str, total: int | None = None) -> Gpu | None:
    """The card that `name` stands for, in any tool's spelling; None where the table has none.

    `total`, bytes as a driver reports them, decides between memory sizes; without it a size in
    the name does, else the commoner card is meant. More memory than was ever sold makes a modded
    card; less (a slice of a card) changes nothing. Where a name stands for several cards that
    memory does not tell apart, the answer holds what they have in common.
    """
    if (start := truncated(name)) is not None:
        cut = [
            gpu
            for key, rows in _by_key(_path()).items()
            if key.startswith(start) and key != start
            for gpu in rows
        ]
        return _agreed(_choose(list(dict.fromkeys(cut)), total))
    for reading in readings(name):
        found: list[Gpu] = []
        for tries in alternatives(reading):
            for key, size in tries:
                if rows := _by_key(_path()).get(key):
                    found += _choose(rows, total or (size and size * GIB))
                    break
        if found:
            fitting = [gpu for gpu in found if total is None or _plausible(gpu, total)]
            return _agreed(fitting or found)
    return None


def with_catalog(device: Device) -> Device:
    """`device` with what is not known of it filled in from the table; measured values stay.

    A card without a figure for `context` gets a cautious one, since a process takes some on
    every card. A slice gets the share of the card's rates that its memory is of the card's.
    """
    if device.kind == "cpu":
        return device
    gpu = find(device.name, None if device.facts.slice_of else device.total or None)
    known = gpu.context if gpu else None
    device = replace(device, context=device.context or known or CONTEXT)
    if gpu is None:
        return device
    facts = device.facts
    share = 1.0
    if facts.slice_of and gpu.memory:
        share = min(1.0, device.total / gpu.memory)
    architecture = gpu.target if gpu.vendor == "amd" else gpu.architecture
    return replace(
        device,
        bandwidth=device.bandwidth or _scaled(gpu.bandwidth, share),
        flops=device.flops or _scaled(gpu.flops, share),
        capability=device.capability or gpu.capability,
        facts=replace(
            facts,
            vendor=facts.vendor or gpu.vendor,
            architecture=facts.architecture or architecture,
            pcie_card=facts.pcie_card or gpu.pcie,
            integrated=gpu.integrated if facts.integrated is None else facts.integrated,
        ),
    )


def _path() -> Path:
    return settings.presets() / "gpus.toml"


@cache
def _by_key(path: Path) -> dict[str, tuple[Gpu, ...]]:
    """Rows under each key they answer to, in the table's order."""
    found: dict[str, list[Gpu]] = {}
    for gpu in read_catalog(path):
        for key in dict.fromkeys(spelling(text).key for text in (gpu.name, *gpu.aliases)):
            found.setdefault(key, []).append(gpu)
    return {key: tuple(rows) for key, rows in found.items()}


def _choose(rows: Sequence[Gpu], total: int | None) -> list[Gpu]:
    """One row for each model among `rows`: the one whose memory is `total`."""
    if total is not None and rows:
        rows = _of_memory(rows, total)
    models: dict[str, Gpu] = {}
    for gpu in rows:
        models.setdefault(spelling(gpu.name).key, gpu)
    return list(models.values())


def _of_memory(rows: Sequence[Gpu], total: int) -> list[Gpu]:
    if fitting := [gpu for gpu in rows if _plausible(gpu, total)]:
        return fitting
    smaller = [gpu for gpu in rows if (gpu.memory or 0) < total]
    if not smaller:
        least = min(gpu.memory or 0 for gpu in rows)
        return [gpu for gpu in rows if gpu.memory == least]
    # Whoever fits larger chips keeps the number of chips: 20 GB is a 10 GB board, not a 12 GB one.
    multiple = [
        gpu for gpu in smaller if any(_fits(total, m * (gpu.memory or 0)) for m in MULTIPLES)
    ]
    return [replace(gpu, memory=total, modded=True) for gpu in multiple or smaller]


def _plausible(gpu: Gpu, total: int) -> bool:
    return gpu.memory is None or (_fits(total, gpu.memory) and not gpu.modded)


def _fits(total: int, sold: int) -> bool:
    return LEAST * sold <= total <= MOST * sold


def _agreed(gpus: Sequence[Gpu]) -> Gpu | None:
    """What all of `gpus` have in common, under all their names."""
    unlike = list(dict.fromkeys(gpus))
    if len(unlike) <= 1:
        return unlike[0] if unlike else None
    if len(unlike) > MOST_MODELS or len({gpu.vendor for gpu in unlike}) > 1:
        return None
    shared = {
        field.name: getattr(unlike[0], field.name)
        for field in fields(Gpu)
        if len({getattr(gpu, field.name) for gpu in unlike}) == 1
    }
    unsure = {"integrated": shared.get("integrated")}
    sources = tuple(dict.fromkeys(label for gpu in unlike for label in gpu.sources))
    named = {"name": " / ".join(gpu.name for gpu in unlike), "vendor": unlike[0].vendor}
    sizes = [gpu.memory for gpu in unlike]
    least = min(size for size in sizes if size) if all(sizes) else None
    rest = {"aliases": (), "sources": sources, "memory_least": least}
    return Gpu(**(shared | unsure | named | rest))


def _cards(table: _Table) -> tuple[Gpu, ...]:
    cards = [
        _card(row, architecture.vendor, kind, table.sources)
        for kind, architecture in table.architecture.items()
        for row in architecture.cards
    ]
    seen: set[tuple[str, int | None]] = set()
    for gpu in cards:
        place = (spelling(gpu.name).key, gpu.memory)
        if place in seen:
            raise InputError(f"{gpu.name}: name: stands there twice with the same memory")
        seen.add(place)
    return tuple(cards)


def _card(row: _Row, vendor: Vendor, architecture: str, sources: Iterable[str]) -> Gpu:
    for key in _NUMBERS:
        value: float | None = getattr(row, key)
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{row.name}: {key}: expected a number above zero, not {value}")
    if unknown := set(row.sources) - set(sources):
        raise InputError(f"{row.name}: sources: {unknown.pop()!r} is not in the table sources")
    if not row.sources:
        raise InputError(f"{row.name}: sources: expected at least one label")
    if row.target is not None and not _TARGET.fullmatch(row.target):
        raise InputError(f'{row.name}: target: expected a text like "sm_86" or "gfx1100"')
    if row.memory is None and not row.integrated:
        raise InputError(f"{row.name}: memory: missing: expected GiB, or integrated = true")
    return Gpu(
        name=row.name,
        vendor=vendor,
        architecture=architecture,
        target=row.target,
        memory=None if row.memory is None else round(row.memory * GIB),
        bandwidth=_scaled(row.bandwidth, 1e9),
        fp32=_scaled(row.fp32, 1e12),
        fp16=_scaled(row.fp16, 1e12),
        fp16_fast=_scaled(row.fp16_fast, 1e12),
        bf16=_scaled(row.bf16, 1e12),
        int8=_scaled(row.int8, 1e12),
        fp8=_scaled(row.fp8, 1e12),
        pcie=None if row.pcie is None else pcie_reading(row.pcie, row.name),
        nvlink=_scaled(row.nvlink, 1e9),
        tdp=row.tdp,
        sms=row.sms,
        context=_context(row),
        integrated=row.integrated,
        aliases=row.aliases,
        sources=row.sources,
    )


def _context(row: _Row) -> int | None:
    """Bytes that a process takes before its own data: as measured, or by the line over `sms`."""
    if row.context is not None:
        return row.context * MIB
    if row.sms is None:
        return None
    return round(max(CONTEXT_LEAST, CONTEXT_BASE + CONTEXT_EACH * row.sms)) * MIB


def pcie_reading(text: str, place: str) -> PcieReading:
    """`4.0 x16` as a value. Raises `InputError` naming `place`."""
    if not (match := _PCIE.fullmatch(text)):
        raise InputError(f'{place}: {text!r}: expected a generation and lanes like "4.0 x16"')
    return PcieReading(int(match[1]), int(match[2]))


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit
