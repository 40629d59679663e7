"""What the API asks of an engine, and no more.

Knows nothing of how text is produced. The one seam of this package: the engine satisfies it, and
so does the few-line engine of the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from local_tp.core import ModelSpec, Sampling
from local_tp.engine.generation import Generation


class Tokenizer(Protocol):
    """Text for tokens; a token may be a part of a character, so its bytes are exact.

    `control_ids` mark structure: what an answer has of them is not in its text.
    """

    @property
    def control_ids(self) -> frozenset[int]: ...

    def decode(self, tokens: Sequence[int], /, *, skip_special: bool = True) -> str: ...

    def token_text(self, token: int, /) -> str: ...

    def token_bytes(self, token: int, /) -> bytes: ...


class WorkerHealth(Protocol):
    """One worker process."""

    @property
    def rank(self) -> int: ...

    @property
    def device(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def alive(self) -> bool: ...


class Health(Protocol):
    """Whether requests can be answered now; `detail` is one line for a person."""

    @property
    def ok(self) -> bool: ...

    @property
    def state(self) -> str: ...

    @property
    def detail(self) -> str: ...

    @property
    def workers(self) -> Sequence[WorkerHealth]: ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class Engine(Protocol):
    """A loaded model. `context` is the tokens that a request may have in all."""

    @property
    def model(self) -> str: ...

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def context(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def chat_prompt(self, messages: list[dict[str, Any]], /) -> Sequence[int]:
        """The tokens of a conversation, the answer's opening included. Raises TemplateError."""
        ...

    def text_prompt(self, text: str, /) -> Sequence[int]:
        """The tokens of plain text."""
        ...

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        /,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        score_prompt: int | None = None,
        continues: bool = False,
    ) -> Generation:
        """Queue a request; `max_tokens` None is up to the context, 0 only reads the prompt.

        The answer of a raw prompt `continues` its text, that of a conversation begins anew.

        `score_prompt` fills `Generation.prompt_scores`, with that many rivals a token, before the
        first chunk. Raises PromptTooLong or InputError at once, WorkerError if no worker is left.
        """
        ...

    def health(self) -> Health: ...
