"""One question to NVML at a time, each with a value or with words for why there is none.

Knows nothing of which questions are asked. Only the loss of a card is raised, because nothing
more can be learned from that card; every other error becomes a line of `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pynvml

from local_tp.hardware.live.nvidia_words import error_words

T = TypeVar("T")

GONE = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired)
# A card that lacks a feature, or a driver that does not know the question yet or any more.
_ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)


@dataclass(slots=True)
class Reader:
    """Asks NVML about `subject`, and gathers what it did not tell, by the reason it gave."""

    subject: str = ""
    codes: set[int] = field(default_factory=set)  # of the errors that `ask` met
    _missing: dict[str, list[str]] = field(default_factory=dict)

    def ask(self, what: str, call: Callable[..., T], *arguments: object) -> T | None:
        """The call's answer, or None and a line that says why there is none."""
        try:
            return call(*arguments)
        except GONE:
            raise
        except pynvml.NVMLError as error:
            self.codes.add(error.value)
            self.miss(what, error_words(error.value))
        except UnicodeDecodeError:
            self.miss(what, "the driver's answer is no text")
        return None

    def optional(self, what: str, call: Callable[..., T], *arguments: object) -> T | None:
        """As `ask`, for what many good cards do not have: its absence alone says nothing."""
        try:
            return call(*arguments)
        except GONE:
            raise
        except pynvml.NVMLError as error:
            if error.value not in _ABSENT:
                self.miss(what, error_words(error.value))
        except UnicodeDecodeError:
            self.miss(what, "the driver's answer is no text")
        return None

    def lacks(self, call: Callable[..., object], *arguments: object) -> bool:
        """Whether the driver says that this card has no such thing; no other error counts."""
        try:
            call(*arguments)
        except GONE:
            raise
        except pynvml.NVMLError as error:
            return bool(error.value == pynvml.NVML_ERROR_NOT_SUPPORTED)
        return False

    def miss(self, what: str, why: str) -> None:
        """Note that `what` is not known."""
        said = self._missing.setdefault(why, [])
        if what not in said:  # an older call was tried too
            said.append(what)

    @property
    def unknown(self) -> tuple[str, ...]:
        """One line for each reason, with everything that it kept from us."""
        before = f"{self.subject}: " if self.subject else ""
        return tuple(f"{before}{', '.join(what)}: {why}" for why, what in self._missing.items())
