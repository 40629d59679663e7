"""What the page asks of an engine, and nothing else of it.

Structural types: the real engine has these members, and so does the small one that tests use.
Knows nothing of Gradio. Everything here may be called from the page's event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from local_tp.core import Plan, Sampling
from local_tp.engine.generation import Generation


class MeasuredView(Protocol):
    """What a rank really took: weights as held, resident bytes it added, and seconds."""

    @property
    def weights(self) -> int: ...
    @property
    def resident(self) -> int: ...
    @property
    def load_seconds(self) -> float: ...


class WorkerView(Protocol):
    """One worker process."""

    @property
    def rank(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def alive(self) -> bool: ...


class HealthView(Protocol):
    """How the engine is now. `running` and `waiting` count requests."""

    @property
    def ok(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def workers(self) -> Sequence[WorkerView]: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class ChatEngine(Protocol):
    """A loaded model that answers."""

    @property
    def model(self) -> str: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def context(self) -> int: ...
    @property
    def measured(self) -> Mapping[int, MeasuredView]: ...

    def chat_prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        """Tokens of a conversation up to where the answer starts. Raises `TemplateError`."""
        ...

    def submit(
        self, prompt: list[int], sampling: Sampling, *, max_tokens: int | None = None
    ) -> Generation:
        """Start an answer. Raises `PromptTooLong`."""
        ...

    def health(self) -> HealthView: ...
