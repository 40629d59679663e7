"""Request bodies: every parameter of OpenAI's two completion endpoints, with its type and range.

Knows nothing of the engine. No parameter is dropped in silence: it is acted on, or cannot change
an answer (who asks, billing, caching), or is refused by name unless it asks for what happens
anyway; a key that is not listed is refused too. Beyond OpenAI: `top_k`, `min_p`,
`repetition_penalty`, 16 stop strings, and 20 alternatives a token on both endpoints, and
`chat_template_kwargs` on one: what the model's template knows, such as `enable_thinking`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from local_tp.core import Sampling

LARGEST_SEED = 2**63 - 1
MOST_CHOICES = 128


def only(*accepted: object) -> BeforeValidator:
    """A parameter of OpenAI's that has no effect here: null, or a value that asks for none."""

    def check(value: object) -> object:
        if value is not None and value not in accepted:
            raise PydanticCustomError(
                "unsupported_parameter", "is not supported by this server: leave it out"
            )
        return value

    return BeforeValidator(check)


def whole_characters(text: str) -> str:
    """JSON can spell half a surrogate pair; no tokenizer and no answer can."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError(
            "half_character", "it holds half a surrogate pair: send whole characters"
        )
    return text


def template_variables(values: dict[str, Any]) -> dict[str, Any]:
    """What a chat template may be given by its own names, but for those it has from the body."""
    taken = {"messages", "tools", "documents", "add_generation_prompt", "self"}
    for name in values:
        if name in taken or not name.isidentifier():
            raise PydanticCustomError(
                "template_variable", "it sets a name that no chat template takes: leave it out"
            )
    return values


Text = Annotated[str, AfterValidator(whole_characters)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]
StopString = Annotated[Text, Field(min_length=1)]
TokenKey = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100.0, le=100.0)]
Alternatives = Annotated[int, Field(ge=0, le=20)]
TokenIds = Annotated[list[int], Field(min_length=1)]


class Body(BaseModel):
    """A JSON object whose keys are all known, and whose values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: Annotated[Any, only(False)] = None


class CompletionBody(Body):
    """What chat and plain completions have in common. Null is the same as absent."""

    model: Text
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100.0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[TokenKey, Bias] | None = None
    seed: Annotated[int, Field(ge=-LARGEST_SEED - 1, le=LARGEST_SEED)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: Annotated[Any, only(False)] = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self, choice: int, logprobs: int | None) -> Sampling:
        """The sampling of one of the `n` choices, OpenAI's defaults filled in.

        A seed is moved on by the choice's number: the choices differ, and repeat together.
        """
        bias = self.logit_bias or {}
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k or 0,
            top_p=1.0 if self.top_p is None else self.top_p,
            min_p=self.min_p or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            seed=None if self.seed is None else (self.seed + choice) % (LARGEST_SEED + 1),
            logit_bias=tuple((int(token), value) for token, value in bias.items()),
            logprobs=logprobs,
        )


class TextPart(Body):
    type: Literal["text"]
    text: Text


class Message(Body):
    """One turn. What a client sends back of an earlier answer may hold nulls, and only nulls."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: Text | None = None
    refusal: Annotated[Any, only()] = None
    annotations: Annotated[Any, only([])] = None
    audio: Annotated[Any, only()] = None
    tool_calls: Annotated[Any, only([])] = None
    function_call: Annotated[Any, only()] = None

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates read it; they know no developers, only a system."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        message = {"role": "system" if self.role == "developer" else self.role, "content": text}
        return message | ({"name": self.name} if self.name is not None else {})


class ChatBody(CompletionBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None

    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(template_variables)] | None = (
        None
    )
    parallel_tool_calls: bool | None = None
    tools: Annotated[Any, only([])] = None
    tool_choice: Annotated[Any, only("none", "auto")] = None
    functions: Annotated[Any, only([])] = None
    function_call: Annotated[Any, only("none", "auto")] = None
    response_format: Annotated[Any, only({"type": "text"})] = None
    modalities: Annotated[Any, only(["text"])] = None
    audio: Annotated[Any, only()] = None
    prediction: Annotated[Any, only()] = None
    moderation: Annotated[Any, only()] = None
    reasoning_effort: Annotated[Any, only()] = None
    verbosity: Annotated[Any, only("medium")] = None
    web_search_options: Annotated[Any, only()] = None


class TextBody(CompletionBody):
    """POST /v1/completions. `max_tokens` 0 with `echo` scores a prompt and adds nothing to it."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1)]
        | TokenIds
        | Annotated[list[TokenIds], Field(min_length=1)]
    )
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: Alternatives | None = None
    echo: bool | None = None

    suffix: Annotated[Any, only("")] = None
    best_of: Annotated[Any, only(1)] = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """One entry a prompt, as text or as tokens."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        tokens = [item for item in self.prompt if isinstance(item, int)]
        return [tokens] if tokens else [p for p in self.prompt if not isinstance(p, int)]
