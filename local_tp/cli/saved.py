"""A plan in a file: written once, read again on the machine that it was made for.

The file is what `local-tp plan --json` prints: the plan, and beside it what it was explained with.
Placements that somebody wrote by hand are a list of them, or an object with `placements`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from local_tp import codec
from local_tp.core import Device, Goal, Placement, Plan, Rig
from local_tp.errors import DeviceError, InputError, PlanError
from local_tp.hardware.devices import resolve_devices
from local_tp.plan.explain import Explanation, short

T = TypeVar("T")
EXPLANATION = "explanation"
HOW = "write one with `local-tp plan --save`"


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file says. `goal` has the plan's own context; `names` are cards' names by id."""

    path: Path
    placements: tuple[Placement, ...]
    goal: Goal
    copies: tuple[tuple[str, ...], ...]
    names: Mapping[str, str]


def plan_json(plan: Plan, explanation: Explanation) -> dict[str, Any]:
    """The plan's own JSON, and under `explanation` what people are shown beside it."""
    encoded: dict[str, Any] = codec.encode(plan)
    return encoded | {EXPLANATION: codec.encode(explanation)}


def read_saved(path: Path) -> Saved:
    """The plan or placements of a file. Raises `PlanError`, one line with the place."""
    data = _read(path)
    goal, copies = Goal(), _Copies().copies
    names: Mapping[str, str] = {}
    if isinstance(data, dict):
        names = _names(data.get(EXPLANATION))
        if "goal" in data:
            goal = _decoded(path, "goal", Goal, data["goal"])
            context = _decoded(path, "context", _Context, {"tokens": data.get("context")}).tokens
            goal = replace(goal, context=context or goal.context)
        copies = _decoded(path, "copies", _Copies, {"copies": data.get("copies", [])}).copies
        data = data.get("placements", data)
    if not isinstance(data, list) or not data:
        raise PlanError(f"{path} holds no placements: {HOW}")
    placements = tuple(
        _decoded(path, f"placements[{number}]", Placement, entry)
        for number, entry in enumerate(data)
    )
    return Saved(path, placements, goal, copies, names)


def devices_of(saved: Saved, rig: Rig) -> tuple[Device, ...]:
    """One device a rank, as this machine has them, and after them those of the copies.

    Raises `DeviceError` for a device that is not there, or is another one than the plan was made
    for.
    """
    wanted = [p.device for p in saved.placements]
    wanted += [device for copy in saved.copies for device in copy]
    try:
        devices = resolve_devices(wanted, rig)
    except DeviceError as error:
        raise DeviceError(f"{saved.path.name} is for another machine: {error}") from error
    for device in devices:
        meant = saved.names.get(device.id)
        if meant is not None and meant != short(device.name):
            raise DeviceError(
                f"{saved.path.name} was made for {meant} at {device.id}, where this machine has "
                f"{short(device.name)}: plan again with `local-tp plan --save {saved.path.name}`"
            )
    return devices


@dataclass(frozen=True, slots=True)
class _Context:
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _Copies:
    copies: tuple[tuple[str, ...], ...] = ()


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot read the placement {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not JSON ({error}): {HOW}") from error


def _names(explanation: object) -> Mapping[str, str]:
    """Names of devices by id, as far as a file has them."""
    devices = explanation.get("devices") if isinstance(explanation, dict) else None
    found = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    return {
        device["device"]: device["name"]
        for device in found
        if isinstance(device.get("device"), str) and isinstance(device.get("name"), str)
    }


def _decoded(path: Path, place: str, kind: type[T], data: object) -> T:
    try:
        return codec.decode(kind, data)
    except InputError as error:
        raise PlanError(f"{path}: {place}: {error}") from error
