"""What the metadata of a GGUF file say of text.

Knows nothing of tensors, nor how to tokenize. Keys are those of the GGUF specification; lists that
do not belong together are refused.
"""

from __future__ import annotations

from typing import Literal

from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.turns import stop_ids
from local_tp.errors import CheckpointError
from local_tp.text import CONTROL, USER_DEFINED, TextSpec

Kind = Literal["gpt2", "llama", "gemma4"]
_KINDS: dict[str, Kind] = {"gpt2": "gpt2", "llama": "llama", "gemma4": "gemma4"}

# Byte-level vocabularies whose models expect a first token although their files do not say so.
_LLAMA3 = {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "lfm2", "midm-2.0"}
_PRE_WITH_BOS = frozenset(_LLAMA3 | {"tekken", "pixtral"})
_MERGED_BY_ID = frozenset({"gemma", "gemma2", "gemma3", "gemma3n"})
_MOST_TEMPLATES = 16


def read_gguf_text(metadata: Fields, vocab: int) -> TextSpec:
    """The text side of a file whose embedding has `vocab` rows. Raises `CheckpointError`."""
    named = metadata.text("tokenizer.ggml.model")
    kind = _KINDS.get(named or "")
    if kind is None:
        raise CheckpointError(
            f"{metadata.source} has a tokenizer of kind {shown(named)}, which is not supported "
            f"yet: choose a model with a {' or '.join(map(repr, _KINDS))} tokenizer"
        )
    return _checked(metadata.source, _vocabulary(metadata, kind), vocab)


def _vocabulary(metadata: Fields, kind: Kind) -> TextSpec:
    tokens = metadata.texts("tokenizer.ggml.tokens")
    types = metadata.integers("tokenizer.ggml.token_type")
    pieces = kind == "llama"
    pre = metadata.text("tokenizer.ggml.pre") or "default"
    bos = _token(metadata, "bos", len(tokens), default=1 if pieces else None)
    eos = _token(metadata, "eos", len(tokens), default=2 if pieces else None)
    ends = [_token(metadata, name, len(tokens)) for name in ("eot", "eom")]
    starts = metadata.flag("tokenizer.ggml.add_bos_token", default=pieces or pre in _PRE_WITH_BOS)
    template, named = _templates(metadata)
    written = "\n".join([template or "", *(source for _, source in named)])
    return TextSpec(
        kind=kind,
        tokens=tokens,
        scores=metadata.reals("tokenizer.ggml.scores"),
        token_types=types,
        merges=() if pieces else metadata.texts("tokenizer.ggml.merges"),
        pre=pre,
        bos=bos,
        eos=eos,
        stop_ids=stop_ids([eos, *ends], _special(tokens, types), written),
        unknown=_token(metadata, "unknown", len(tokens), default=0 if pieces else None),
        add_bos=starts and bos is not None,
        add_space_prefix=metadata.flag("tokenizer.ggml.add_space_prefix", default=pieces),
        squeezes_spaces=pieces
        and metadata.flag("tokenizer.ggml.remove_extra_whitespaces", default=False),
        merges_by_id=pieces and metadata.text("general.architecture") in _MERGED_BY_ID,
        chat_template=template,
        named_templates=named,
        doubts=_doubts(kind, pre),
    )


def _doubts(kind: Kind, pre: str) -> tuple[str, ...]:
    if kind != "gpt2" or pre != "default":
        return ()
    return (
        "the model file does not name its pre-tokenizer, and GPT-2's is used: if answers are odd, "
        "use a newer conversion of the model",
    )


def _templates(metadata: Fields) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """The default chat template, and the named ones."""
    names = metadata.texts("tokenizer.chat_templates")
    if len(names) > _MOST_TEMPLATES:
        raise metadata.wrong("tokenizer.chat_templates", f"at most {_MOST_TEMPLATES} names")
    pairs = [(name, metadata.text(f"tokenizer.chat_template.{name}")) for name in sorted(names)]
    named = tuple((name, source) for name, source in pairs if source is not None)
    return metadata.text("tokenizer.chat_template"), named


def _checked(source: str, text: TextSpec, vocab: int) -> TextSpec:
    """Refuses lists that do not belong together."""
    count, wrong = len(text.tokens), None
    if not 0 < count <= vocab:
        wrong = f"{count:,} tokens for {vocab:,} rows of its embedding"
    elif text.token_types and len(text.token_types) != count:
        wrong = f"{len(text.token_types):,} token types for {count:,} tokens"
    elif (text.scores or text.kind == "llama") and len(text.scores) != count:
        wrong = f"{len(text.scores):,} token scores for {count:,} tokens"
    elif text.kind != "llama" and text.pre != "kimi-k2" and not text.merges:
        wrong = "no merges for its byte-pair tokens"
    if wrong is not None:
        raise CheckpointError(f"{source} is damaged: it has {wrong}; download it again")
    return text


def _token(metadata: Fields, name: str, count: int, default: int | None = None) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    token = metadata.identifier(key)
    if token is None:
        return default if default is not None and default < count else None
    if token >= count:
        raise metadata.wrong(key, f"a token below {count}")
    return token


def _special(tokens: tuple[str, ...], types: tuple[int, ...]) -> dict[str, int]:
    return {
        tokens[index]: index for index, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)
    }
