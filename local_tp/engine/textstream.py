"""Tokens to text as they come: only what can no longer change is let out.

Knows nothing of requests or models. However the tokens are cut, the pieces together are the whole
decode, up to where the first stop string begins.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import InputError


class TextStream:
    """One answer's text, fed a token at a time.

    Half a character waits for its other bytes, at most three, and invalid bytes wait for nothing.
    Text that may be the start of a stop string waits until that is decided. `continues` and
    `skip_special` are as in `Tokenizer.decode`. Raises `InputError` for an empty stop string.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        skip_special: bool = True,
        continues: bool = False,
    ) -> None:
        if "" in stop:
            raise InputError("an empty stop string would stop every answer at once: leave it out")
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._longest = max(map(len, self._stop), default=0)
        self._skipped = tokenizer.control_ids if skip_special else frozenset[int]()
        self._drops_space = tokenizer.drops_space(continues)
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token: int) -> str:
        """The text that became certain with `token`; nothing once a stop string has matched."""
        if self.stopped or token in self._skipped:
            return ""
        raw = self._tokenizer.token_bytes(token)
        if self._drops_space and raw:
            raw = raw.removeprefix(b" ")
            self._drops_space = False
        self._held += self._bytes.decode(raw)
        return self._release()

    def flush(self) -> str:
        """The text still held, at the end; bytes that never became a character are U+FFFD."""
        if self.stopped:
            return ""
        self._held += self._bytes.decode(b"", final=True)
        return self._release(final=True)

    def _release(self, final: bool = False) -> str:
        """Let go of what lies before the first stop string that has matched or still may."""
        found = min((at for at in map(self._held.find, self._stop) if at >= 0), default=None)
        open_at = None if final else self._first_open()
        if found is not None and (open_at is None or found < open_at):
            self.stopped = True
            certain, self._held = self._held[:found], ""
            return certain
        # A match that began earlier than `found` is still possible: it would cut earlier.
        end = len(self._held) if open_at is None else open_at
        certain, self._held = self._held[:end], self._held[end:]
        return certain

    def _first_open(self) -> int | None:
        """Where the held text first turns into the start of a stop string, if it ends in one."""
        for at in range(max(0, len(self._held) - self._longest + 1), len(self._held)):
            tail = self._held[at:]
            if any(len(tail) < len(stop) and stop.startswith(tail) for stop in self._stop):
                return at
        return None
