"""Named values from a file, read with their types and ranges checked.

Knows nothing of what the names mean. Nothing in a file is trusted: every value that leaves here
has the type and the range that was asked for, or a `CheckpointError` names the file and the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from local_tp.errors import CheckpointError

LARGEST_COUNT = 2**31 - 1
LARGEST_NUMBER = 1e30

Item = TypeVar("Item")


def shown(value: object) -> str:
    """A foreign value as one short line for an error."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_bounded(path: Path, most: int) -> bytes:
    """A whole file, which is refused if it has more than `most` bytes. `OSError` passes through."""
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise CheckpointError(f"{path} has more than {most:,} bytes: it is not what its name says")
    return raw


@dataclass(frozen=True, slots=True)
class Fields:
    """The values that `source` (a file's name) states. A JSON null is the same as absent."""

    source: str
    values: Mapping[str, object]

    @classmethod
    def from_json(cls, path: Path, most: int) -> Fields:
        """Reads a JSON object of at most `most` bytes. `OSError` passes through."""
        return cls.from_bytes(str(path), read_bounded(path, most))

    @classmethod
    def from_bytes(cls, source: str, raw: bytes) -> Fields:
        try:
            values = json.loads(raw)
        except (ValueError, RecursionError) as error:  # bad JSON or Unicode; nested too deep
            reason = str(error).splitlines()[0]
            raise CheckpointError(f"{source} is damaged: {reason}; download it again") from error
        if not isinstance(values, dict):
            raise CheckpointError(f"{source} is damaged: it holds no JSON object")
        return cls(source, values)

    def get(self, key: str) -> object:
        return self.values.get(key)

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """An integer from `least` to 2**31 - 1; required unless it has a default."""
        value = self._present(key, default)
        if type(value) is not int or not least <= value <= LARGEST_COUNT:
            raise self.wrong(key, f"an integer of {least} or more")
        return value

    def identifier(self, key: str) -> int | None:
        """A token id, or None where the file names none."""
        return None if self.get(key) is None else self.integer(key, least=0)

    def real(self, key: str, default: float | None = None) -> float:
        """A positive, finite number; required unless it has a default."""
        value = self._present(key, default)
        if type(value) not in (int, float):
            raise self.wrong(key, "a number")
        assert isinstance(value, int | float)
        if not 0 < value < LARGEST_NUMBER:
            raise self.wrong(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._present(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str) -> str | None:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where absent. The other lists likewise."""
        return self._each(key, str)

    def integers(self, key: str) -> tuple[int, ...]:
        return self._each(key, int)

    def reals(self, key: str) -> tuple[float, ...]:
        return self._each(key, float)

    def inner(self, key: str) -> Fields | None:
        """The object under `key`, if there is one."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(f"{self.source}, {key}", value)

    def inners(self, key: str) -> tuple[Fields, ...]:
        """The objects in the list under `key`; empty where absent."""
        items: tuple[dict[str, object], ...] = self._each(key, dict)
        return tuple(Fields(f"{self.source}, {key}", item) for item in items)

    def wrong(self, key: str, expected: str) -> CheckpointError:
        value = shown(self.get(key))
        return CheckpointError(f"{self.source} says {key} = {value}, and {expected} is needed")

    def _present(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is None and default is None:
            raise CheckpointError(f"{self.source} does not say {key}, which is needed")
        return default if value is None else value

    def _each(self, key: str, kind: type[Item]) -> tuple[Item, ...]:
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.wrong(key, "a list")
        for item in value:
            if type(item) is not kind:
                raise CheckpointError(
                    f"{self.source} has {shown(item)} in {key}, where only {kind.__name__} belongs"
                )
        return tuple(value)
