"""The constants of engines, read from `presets/rates.toml`, where each has its source.

Knows nothing of models or plans. An engine that the file does not name gets the general one's
constants under its own name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from local_tp import settings
from local_tp.codec import decode
from local_tp.core import DeviceKind
from local_tp.errors import InputError
from local_tp.rates import Attending, Efficiency, Rates, Wire

T = TypeVar("T")
GENERAL = "general"
KINDS: tuple[DeviceKind, ...] = ("cuda", "rocm", "xpu", "cpu")


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine as the file states it; what it leaves out is as in the general one."""

    source: str
    like: str = GENERAL
    exchanges: float | None = None
    step: float | None = None
    stage: float | None = None
    pipelined: int | None = None
    pipelined_experts: int | None = None
    many: int | None = None
    ramp: float | None = None
    scores: float | None = None
    element: int | None = None
    asleep: float | None = None
    fused: bool | None = None
    launch: dict[DeviceKind, float] = field(default_factory=dict)
    efficiency: dict[str, Efficiency] = field(default_factory=dict)
    wires: dict[str, Wire] = field(default_factory=dict)
    attention: dict[DeviceKind, Attending] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _File:
    classes: dict[str, tuple[str, ...]]
    joule: dict[str, float]
    engine: dict[str, _Engine]


def load_rates(engine: str = "local_tp") -> Rates:
    """The constants of an engine. Raises `InputError` where the file is damaged."""
    return read_rates(settings.presets() / "rates.toml", engine)


@cache
def read_rates(path: Path, engine: str) -> Rates:
    """The constants of an engine in a file. Raises `InputError`, one line with file and key."""
    try:
        read = decode(_File, tomllib.loads(path.read_text(encoding="utf-8")))
        return _rates(read, engine)
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{path.name}: {error}") from error


def _rates(read: _File, engine: str) -> Rates:
    if GENERAL not in read.engine:
        raise InputError(f"engine.{GENERAL}: missing: other engines take from it what they lack")
    line = _line(read, engine)
    launch: dict[DeviceKind, float] = {}
    efficiency: dict[str, Efficiency] = {}
    wires: dict[str, Wire] = {}
    attention: dict[DeviceKind, Attending] = {}
    for one in reversed(line):
        launch |= one.launch
        efficiency |= one.efficiency
        wires |= one.wires
        attention |= one.attention
    for kind in KINDS:
        if kind not in launch or f"{kind} other" not in efficiency:
            raise InputError(f"engine.{GENERAL}: launch and efficiency need an entry for {kind}")
    return Rates(
        engine=engine,
        efficiency=efficiency,
        launch=launch,
        step=_first((one.step for one in line), 0.0),
        stage=_first((one.stage for one in line), 0.0),
        pipelined=_first((one.pipelined for one in line), 1),
        pipelined_experts=_first((one.pipelined_experts for one in line), 1),
        classes={form: name for name, forms in read.classes.items() for form in forms},
        wires=wires,
        many=_first((one.many for one in line), 32),
        element=_first((one.element for one in line), 4),
        ramp=_first((one.ramp for one in line), 0.0),
        scores=_first((one.scores for one in line), 0.0),
        exchanges=_first((one.exchanges for one in line), 1.0),
        joule=read.joule,
        attention=attention,
        asleep=_first((one.asleep for one in line), 0.0),
        fused=_first((one.fused for one in line), True),
    )


def _line(read: _File, engine: str) -> list[_Engine]:
    """The engine, the one that it is like, and so on to the general one."""
    line = [read.engine.get(engine, read.engine[GENERAL])]
    while line[-1] is not read.engine[GENERAL]:
        if line[-1].like not in read.engine or len(line) > len(read.engine):
            raise InputError(f"engine.{engine}: like: {line[-1].like!r} leads nowhere")
        line.append(read.engine[line[-1].like])
    return line


def _first(values: Iterable[T | None], usual: T) -> T:
    return next((value for value in values if value is not None), usual)
