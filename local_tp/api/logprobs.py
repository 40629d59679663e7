"""Log probabilities in the two shapes that OpenAI has for them.

Knows nothing of requests. A token that is only a part of a character is written `bytes:\\xe2\\x82`,
as OpenAI does, so that different tokens never share a name.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from local_tp.core import TokenLogprob
from local_tp.engine.tokenizer import Tokenizer

LOWEST = -9999.0  # OpenAI's value for "impossible"; JSON has no minus infinity


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """The token as text, unmistakably."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode() or tokenizer.token_text(token)
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_logprobs(tokenizer: Tokenizer, entries: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice: one object a token."""

    def one(token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": token_name(tokenizer, token),
            "logprob": max(logprob, LOWEST),
            "bytes": list(tokenizer.token_bytes(token)),
        }

    return {
        "content": [
            one(entry.token, entry.logprob) | {"top_logprobs": [one(*pair) for pair in entry.top]}
            for entry in entries
        ],
        "refusal": None,
    }


@dataclass(slots=True)
class TextLogprobs:
    """The `logprobs` of one text choice, over as many chunks as it has.

    `text_offset` counts characters of the choice's whole text, the echoed prompt included.
    """

    tokenizer: Tokenizer
    _length: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def prompt(
        self, text: str, tokens: Sequence[int], scores: Sequence[TokenLogprob]
    ) -> dict[str, Any]:
        """Columns for an echoed prompt; nothing comes before its first token, to score it by.

        What the tokens have at their start and the text has not, a token that begins every text
        or a space before its first word, is put at offset 0.
        """
        pieces = [self.tokenizer.token_bytes(token) for token in tokens]
        self._length = len(text) - len(b"".join(pieces).decode("utf-8", "replace"))
        offsets = [self._advance(piece) for piece in pieces]
        return {
            "tokens": [token_name(self.tokenizer, token) for token in tokens],
            "token_logprobs": [None, *(max(score.logprob, LOWEST) for score in scores)],
            "top_logprobs": [None, *map(self._top, scores)],
            "text_offset": offsets,
        }

    def chunk(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Columns for the tokens of a chunk."""
        control = self.tokenizer.control_ids
        pieces = [
            b"" if entry.token in control else self.tokenizer.token_bytes(entry.token)
            for entry in entries
        ]
        return {
            "tokens": [token_name(self.tokenizer, entry.token) for entry in entries],
            "token_logprobs": [max(entry.logprob, LOWEST) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries],
            "text_offset": [self._advance(piece) for piece in pieces],
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """The rivals by name, and the token itself if it is not among them."""
        pairs = [*entry.top, (entry.token, entry.logprob)]
        return {token_name(self.tokenizer, token): max(value, LOWEST) for token, value in pairs}

    def _advance(self, piece: bytes) -> int:
        """Where a token begins; a part of a character counts once the character is whole."""
        offset = max(self._length, 0)
        self._length += len(self._decoder.decode(piece))
        return offset
