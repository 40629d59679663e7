"""What devices were measured to take of what was predicted, kept on disk with the conditions.

One small file for a machine. A ratio is of what is neither weights nor remembered text, since those
are counted exactly. It belongs to a device's name, its driver and the version of the engine; under
others it is not found. A file that cannot be read is said to be so and written anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from local_tp import codec
from local_tp.core import Rig
from local_tp.errors import InputError
from local_tp.hardware.whole_file import replace_file

VERSION = 1  # of what is predicted: a change of the memory model counts it up
MOST = 200  # entries that are kept, the newest ones
FILE = "memory.json"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what a ratio was measured."""

    model: str
    split: str
    ranks: int
    context: int
    streams: int
    chunk: int
    dtype: str
    kv_format: str


@dataclass(frozen=True, slots=True)
class Kept:
    """One measurement of one device, bytes at most with the longest context full."""

    device: str  # its name, not its slot
    driver: str
    version: int
    predicted: int
    measured: int
    ratio: float
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class _File:
    entries: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class MemoryRatios:
    """The store in `folder`, nothing at all where that is None. `report` takes a line."""

    folder: Path | None
    report: Callable[[str], None]

    def ratios(self, rig: Rig) -> dict[str, float]:
        """By device id, the highest ratio of its name and driver: what planning relies on."""
        found: dict[str, float] = {}
        entries = self.entries()
        for device in rig.devices:
            mine = [
                entry.ratio
                for entry in entries
                if (entry.device, entry.driver, entry.version)
                == (device.name, driver_of(rig, device.kind), VERSION)
            ]
            if mine:
                found[device.id] = max(mine)
        return found

    def entries(self) -> tuple[Kept, ...]:
        """All that is kept, oldest first."""
        if self.folder is None:
            return ()
        file = self.folder / FILE
        try:
            return codec.decode(_File, json.loads(file.read_text(encoding="utf-8"))).entries
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError, InputError) as error:
            self.report(f"kept memory figures {file.name} cannot be read and are left out: {error}")
            return ()

    def keep(self, new: Iterable[Kept]) -> None:
        """Add measurements, each in the place of an older one under the same conditions."""
        if self.folder is None:
            return
        by_key: dict[tuple[object, ...], Kept] = {}
        for entry in (*self.entries(), *new):
            key = (entry.device, entry.driver, entry.version, entry.conditions)
            by_key.pop(key, None)
            by_key[key] = entry
        text = json.dumps(codec.encode(_File(tuple(by_key.values())[-MOST:])), indent=1)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / FILE, text)
        except OSError as error:
            self.report(f"memory figures cannot be kept in {self.folder}: {error}")


def driver_of(rig: Rig, kind: str) -> str:
    """What stands for a device's driver: of the processor, the system."""
    return rig.os if kind == "cpu" else rig.driver or rig.software.driver or ""


def worst(entries: Iterable[Kept]) -> tuple[Kept, ...]:
    """Of several ranks on devices of one name, the one with the highest ratio."""
    groups: dict[tuple[str, str], list[Kept]] = {}
    for entry in entries:
        groups.setdefault((entry.device, entry.driver), []).append(entry)
    return tuple(max(group, key=lambda entry: entry.ratio) for group in groups.values())
