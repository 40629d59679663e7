"""A request as the engine follows it: tokens, never tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from local_tp.core import FinishReason, Row, RowResult, Sampling, TokenLogprob
from local_tp.engine.generation import Chunk, Generation
from local_tp.engine.textstream import TextStream
from local_tp.plan.memory import SCORED_ROWS


@dataclass
class Request:
    """One prompt and the answer so far.

    `computed` counts the leading tokens whose keys and values are in the cache, or will be by the
    steps under way. While all are, the next token is awaited. It falls to zero when the request
    loses its pages, and prompt and output are then computed again.
    """

    id: int
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    generation: Generation
    text: TextStream
    stop_ids: frozenset[int]
    score: int | None = None
    output: list[int] = field(default_factory=list)
    computed: int = 0
    stream: int = 0  # while it runs: no other has that number
    served: int = 0  # the number of the last step it took part in

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def decoding(self) -> bool:
        """Only the newest token is missing from the cache."""
        return bool(self.output) and self.computed == self.length - 1

    @property
    def unread(self) -> bool:
        """Tokens of the prompt, or of what is to be computed again, are missing from the cache."""
        return self.computed < self.length and not self.decoding

    @property
    def awaiting(self) -> bool:
        """A step is under way that makes its next token."""
        return bool(self.output) and self.computed == self.length

    @property
    def hoped(self) -> int:
        """The most tokens it can come to hold."""
        return len(self.prompt) + self.max_tokens

    def forget(self) -> None:
        """Its pages are gone: everything is to be computed again."""
        self.computed = 0
        if not self.output:
            self.generation.prompt_scores = ()

    def next_row(self, chunk: int, pages: tuple[int, ...]) -> Row:
        """The next tokens to compute, `chunk` at most; the last of them are sampled.

        They count as computed from now on.
        """
        start = self.computed
        if self.decoding and not self.sampling.needs_history:
            self.computed = self.length
            return Row(
                request=self.id,
                tokens=(self.output[-1],),
                position=start,
                pages=pages,
                sampling=self.sampling,
                prompt_length=len(self.prompt),
                stream=self.stream,
            )
        tokens = self.prompt + tuple(self.output)
        scored = self.score is not None and not self.output
        stop = min(start + (min(chunk, SCORED_ROWS) if scored else chunk), self.length)
        last = stop == self.length
        self.computed = stop
        return Row(
            request=self.id,
            tokens=tokens[start:stop],
            position=start,
            pages=pages,
            sampling=self.sampling if last and self.max_tokens else None,
            history=tokens if last and self.sampling.needs_history else (),
            prompt_length=len(self.prompt),
            targets=tokens[start + 1 : stop + 1] if scored else (),
            score=self.score if scored else None,
            stream=self.stream,
        )

    def take(self, row: Row, result: RowResult) -> FinishReason | None:
        """Account for a finished row; a reason if the request is complete."""
        self.generation.prompt_scores += result.scores
        if result.token is None:
            last = row.position + len(row.tokens) == self.length
            return "length" if last and not self.max_tokens else None
        self.output.append(result.token)
        logprobs = () if result.logprob is None else (result.logprob,)
        if result.token in self.stop_ids:
            self._push(self.text.flush(), result.token, ())
            return "stop"
        text = self.text.push(result.token)
        ended: FinishReason | None = None
        if self.text.stopped:
            ended = "stop"
        elif len(self.output) >= self.max_tokens:
            text += self.text.flush()
            ended = "stop" if self.text.stopped else "length"
        self._push(text, result.token, logprobs)
        return ended

    def _push(self, text: str, token: int, logprobs: tuple[TokenLogprob, ...]) -> None:
        self.generation.push(Chunk(text, (token,), logprobs))
