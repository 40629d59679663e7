"""What the answers of both endpoints share: their head, usage, timings, and checks of a request.

Knows nothing of chat or of plain text. Token counts are of tokens the model read and wrote; a
prompt counts once, however many choices were asked for.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from local_tp.api.errors import bad_request, model_not_found
from local_tp.api.schemas import CompletionBody
from local_tp.engine.engine import Engine
from local_tp.engine.generation import Generation


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that every chunk of an answer repeats. `created` is Unix seconds."""

    prefix: str
    object: str
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def frame(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }


def check(engine: Engine, body: CompletionBody) -> None:
    """Refuse another model's name, and biases on tokens that the model does not have."""
    if body.model not in (engine.model, "default"):
        raise model_not_found(body.model, engine.model)
    vocabulary = engine.spec.dimensions.vocab
    for token in body.logit_bias or {}:
        if int(token) >= vocabulary:
            raise bad_request(
                f"'logit_bias' names token {token}, and the model has tokens 0 to {vocabulary - 1}",
                "logit_bias",
            )


def usage(generations: Sequence[Generation], choices: int) -> dict[str, Any]:
    """Usage and timings of a request whose every prompt was submitted `choices` times in a row."""
    prompt = sum(len(generation.prompt) for generation in generations[::choices])
    timings = [generation.timings for generation in generations]
    completion = sum(timing.completion_tokens for timing in timings)
    firsts = [timing.first_token for timing in timings if timing.first_token is not None]
    decoding = max(timing.total for timing in timings) - min(firsts, default=0.0)
    later = completion - len(firsts)
    return {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
        "timings": {
            "first_token_seconds": round(min(firsts), 4) if firsts else None,
            "decode_tokens_per_second": round(later / decoding, 2)
            if later > 0 and decoding > 0
            else None,
        },
    }
