"""Measurements kept on disk, so that a machine is measured once and not at every start.

An entry belongs to a subject: the cards, their slots, the driver, the versions of torch and of the
measuring code. If one of these changes the entry is no longer found. Knows nothing of what the
readings mean. Entries are replaced whole; of one that cannot be read a person is told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_tp import codec, settings
from local_tp.errors import InputError
from local_tp.hardware.measuring.killable import Outcome
from local_tp.hardware.whole_file import replace_file

VERSION = 2  # of the measuring code: a change that makes old numbers wrong counts it up


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of children found, one outcome a child."""

    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    subject: tuple[str, ...]
    measured: Measured


def default_folder() -> Path:
    """Where measurements are kept unless somebody says otherwise."""
    return settings.home() / "measurements"


@dataclass(frozen=True, slots=True)
class Cache:
    """Entries in `folder`, none at all where that is None. `report` takes a line for a person."""

    folder: Path | None
    report: Callable[[str], None]

    def find(self, subject: tuple[str, ...]) -> Measured | None:
        """What was measured of exactly this subject."""
        if self.folder is None:
            return None
        file = self.folder / _name(subject)
        try:
            entry = codec.decode(_Entry, json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, InputError) as error:
            self.report(f"kept measurements {file.name} cannot be read and are made anew: {error}")
            return None
        return entry.measured if entry.subject == subject else None

    def keep(self, subject: tuple[str, ...], measured: Measured) -> None:
        """Put it on disk in one step. A folder that cannot be written to is said to be so."""
        if self.folder is None:
            return
        text = json.dumps(codec.encode(_Entry(subject, measured)), indent=1)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / _name(subject), text)
        except OSError as error:
            self.report(f"measurements cannot be kept in {self.folder}: {error}")


def _name(subject: tuple[str, ...]) -> str:
    written = json.dumps([VERSION, *subject])
    return hashlib.sha256(written.encode()).hexdigest()[:24] + ".json"
