"""Text to token ids and back, for every kind of vocabulary a checkpoint can hold.

Knows nothing of models, templates or requests, and never reads GGUF itself: a `TextSpec` says it
all. Every token is a run of bytes, so decoding is joining bytes; that is what makes a stream of
tokens and a whole decode the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken

from local_tp.engine.tokenizer_json import decoding, read_tokenizer
from local_tp.engine.vocabulary import build, spelled
from local_tp.errors import CheckpointError, InputError
from local_tp.text import CONTROL, SPACE, UNKNOWN, USER_DEFINED, TextSpec, byte_letters


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A vocabulary in use. Safe to share between threads.

    `stop_ids` end a turn; `control_ids` are the tokens that mark structure and are not text.
    """

    vocab_size: int
    bos: int | None
    bos_text: str
    eos_text: str
    stop_ids: frozenset[int]
    control_ids: frozenset[int]
    _verbatim: frozenset[int]  # tokens spelled as they read: control and other added ones
    _adds_bos: bool
    _drops_space: bool
    _alphabet: Mapping[str, int] | None
    _parsing: tokenizers.Tokenizer
    _plain: tokenizers.Tokenizer

    @classmethod
    def from_spec(cls, text: TextSpec) -> Tokenizer:
        """Build the tokenizer a checkpoint describes.

        Raises `CheckpointError` where the vocabulary is damaged or of an unknown kind.
        """
        if text.kind == "json":
            return _from_json(text)
        return _from_tokens(spelled(text))

    def encode(
        self, text: str, *, add_bos: bool | None = None, parse_special: bool = True
    ) -> list[int]:
        """Token ids of `text`.

        `add_bos` None does what the checkpoint says; a model without a BOS token gets none.
        Without `parse_special` a control token's spelling is text like any other.
        Raises `InputError` for half a surrogate pair, which no vocabulary can spell, and for text
        that the tokenizer gives up on.
        """
        ids = _encoded(self._parsing if parse_special else self._plain, text)
        wanted = self._adds_bos if add_bos is None else add_bos
        return [self.bos, *ids] if wanted and self.bos is not None else ids

    def decode(
        self, ids: Iterable[int], *, skip_special: bool = True, continues: bool = False
    ) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD.

        SentencePiece puts a space before a text's first word, and it is taken off again unless
        the text `continues` an earlier one. Ids beyond the vocabulary have no text.
        """
        kept = (i for i in ids if not (skip_special and i in self.control_ids))
        raw = b"".join(map(self.token_bytes, kept))
        if self.drops_space(continues):
            raw = raw.removeprefix(b" ")
        return raw.decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for, which need not be whole characters."""
        piece = self._parsing.id_to_token(token)
        if piece is None:
            return b""
        if token in self._verbatim:
            return piece.encode()
        if self._alphabet is None:
            if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
                return bytes([int(piece[3:5], 16)])
            return piece.replace(SPACE, " ").encode()
        try:
            return bytes(map(self._alphabet.__getitem__, piece))
        except KeyError:  # a piece outside the byte alphabet, spelled as it reads
            return piece.encode()

    def token_text(self, token: int) -> str:
        """One token as text, control tokens included; a part of a character is U+FFFD."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def drops_space(self, continues: bool) -> bool:
        """Whether a decode that does or does not continue a text drops its first space."""
        return self._drops_space and not continues


# ------------------------------------------------------------------------------------- kinds


def _from_tokens(text: TextSpec) -> Tokenizer:
    if not text.tokens:
        raise CheckpointError("the model file has no tokens: download it again, or another one")
    types = text.token_types or (1,) * len(text.tokens)
    if len(types) != len(text.tokens):
        raise CheckpointError(
            f"the model file has {len(text.tokens):,} tokens but {len(types):,} token types: "
            "download it again, or another one"
        )
    _check_ids(text)
    backend = build(text)
    control = {i for i, kind in enumerate(types) if kind in (UNKNOWN, CONTROL)} | _marked(text)
    added = {i for i, kind in enumerate(types) if kind == USER_DEFINED} | control
    backend.add_tokens(
        [AddedToken(text.tokens[i], normalized=False, special=i in control) for i in sorted(added)]
    )
    prefixed = text.kind in ("llama", "unigram") and text.add_space_prefix
    return Tokenizer(
        vocab_size=len(text.tokens),
        bos=text.bos,
        bos_text="" if text.bos is None else text.tokens[text.bos],
        eos_text="" if text.eos is None else text.tokens[text.eos],
        stop_ids=_stops(text),
        control_ids=frozenset(control),
        _verbatim=frozenset(added),
        _adds_bos=text.add_bos,
        _drops_space=prefixed,
        _alphabet=_byte_alphabet() if text.kind == "gpt2" else None,
        _parsing=backend,
        _plain=_without_parsing(backend),
    )


def _from_json(text: TextSpec) -> Tokenizer:
    if text.file is None:
        raise CheckpointError("the model has no tokenizer.json: download the model again")
    backend = read_tokenizer(text.file)
    byte_level, drops_space = decoding(backend, text.file)
    added = backend.get_added_tokens_decoder()
    return Tokenizer(
        vocab_size=backend.get_vocab_size(with_added_tokens=True),
        bos=text.bos,
        bos_text=_spelling(backend, text.bos),
        eos_text=_spelling(backend, text.eos),
        stop_ids=_stops(text),
        control_ids=frozenset({i for i, token in added.items() if token.special} | _marked(text)),
        _verbatim=frozenset(added) | _marked(text),
        _adds_bos=text.add_bos,
        _drops_space=drops_space,
        _alphabet=_byte_alphabet() if byte_level else None,
        _parsing=backend,
        _plain=_without_parsing(backend),
    )


# ------------------------------------------------------------------------------------- parts


def _encoded(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    """The library's ids. It has errors of no class, and panics that are no `Exception`."""
    try:
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    except (TypeError, UnicodeError) as error:
        place = next((i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff"), None)
        if place is None:
            raise
        raise InputError(
            f"character {place} of the text is half a surrogate pair: send whole characters"
        ) from error
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise InputError(
            f"the model's tokenizer gave up on this text ({error}): shorten its longest words or "
            "use another model"
        ) from error
    return ids


def _marked(text: TextSpec) -> set[int]:
    """Ids that the checkpoint names for a role, whatever type it gives them."""
    return {i for i in (text.bos, text.eos, *text.stop_ids) if i is not None}


def _stops(text: TextSpec) -> frozenset[int]:
    return frozenset({*text.stop_ids, *(() if text.eos is None else (text.eos,))})


def _check_ids(text: TextSpec) -> None:
    for token in (text.unknown, *_marked(text)):
        if token is not None and not 0 <= token < len(text.tokens):
            raise CheckpointError(
                f"the model file names token {token} and has {len(text.tokens):,} tokens: "
                "download it again, or another one"
            )


def _spelling(backend: tokenizers.Tokenizer, token: int | None) -> str:
    return "" if token is None else backend.id_to_token(token) or ""


def _without_parsing(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same vocabulary with control tokens read as text. It shares the model's memory."""
    plain = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        plain.pre_tokenizer = backend.pre_tokenizer
    # In the order of their ids: those outside the model's own vocabulary are numbered as they come.
    plain.add_tokens([token for _, token in sorted(backend.get_added_tokens_decoder().items())])
    plain.encode_special_tokens = True
    return plain


def _byte_alphabet() -> dict[str, int]:
    return {letter: byte for byte, letter in byte_letters().items()}
