"""Text to token ids and back, for the three kinds of vocabulary a checkpoint can hold.

Knows nothing of models, templates or requests, and never reads GGUF itself: a `TextSpec` says it
all. Every token is a run of bytes, so decoding is joining bytes; that is what makes a stream of
tokens and a whole decode the same text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from local_tp.core import TextSpec
from local_tp.errors import CheckpointError, InputError

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # GGUF token types; 1 is normal, 5 is unused
SPACE = "▁"  # how SentencePiece spells a space


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
        return _from_gguf(text)

    def encode(
        self, text: str, *, add_bos: bool | None = None, parse_special: bool = True
    ) -> list[int]:
        """Token ids of `text`.

        `add_bos` None does what the checkpoint says; a model without a BOS token gets none.
        Without `parse_special` a control token's spelling is text like any other.
        Raises `InputError` for half a surrogate pair, which no vocabulary can spell.
        """
        backend = self._parsing if parse_special else self._plain
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeError) as error:
            place = next((i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff"), None)
            if place is None:
                raise
            raise InputError(
                f"character {place} of the text is half a surrogate pair: send whole characters"
            ) from error
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


def _from_gguf(text: TextSpec) -> Tokenizer:
    if not text.tokens:
        raise CheckpointError("the model file has no tokens: download it again, or another one")
    types = text.token_types or (1,) * len(text.tokens)
    if len(types) != len(text.tokens):
        raise CheckpointError(
            f"the model file has {len(text.tokens):,} tokens but {len(types):,} token types: "
            "download it again, or another one"
        )
    _check_ids(text)
    backend = _byte_level(text) if text.kind == "gpt2" else _sentencepiece(text, types)
    control = {i for i, kind in enumerate(types) if kind in (UNKNOWN, CONTROL)} | _marked(text)
    added = {i for i, kind in enumerate(types) if kind == USER_DEFINED} | control
    backend.add_tokens(
        [AddedToken(text.tokens[i], normalized=False, special=i in control) for i in sorted(added)]
    )
    return Tokenizer(
        vocab_size=len(text.tokens),
        bos=text.bos,
        bos_text="" if text.bos is None else text.tokens[text.bos],
        eos_text="" if text.eos is None else text.tokens[text.eos],
        stop_ids=_stops(text),
        control_ids=frozenset(control),
        _verbatim=frozenset(added),
        _adds_bos=text.add_bos,
        _drops_space=text.kind == "llama" and text.add_space_prefix,
        _alphabet=_byte_alphabet() if text.kind == "gpt2" else None,
        _parsing=backend,
        _plain=_without_parsing(backend),
    )


def _byte_level(text: TextSpec) -> tokenizers.Tokenizer:
    """Byte-level BPE: words are cut by the family's pattern, then merged byte by byte."""
    splitting = _splittings().get(text.pre)
    if splitting is None:
        raise CheckpointError(
            f"the model file names the pre-tokenizer {text.pre!r}, which is not known here: use a "
            f"model with one of {', '.join(sorted(_splittings()))}"
        )
    pairs = [(left, right) for left, _, right in (m.partition(" ") for m in text.merges)]
    with _refusing("the merges of the model file are damaged"):
        model = models.BPE(
            vocab={token: i for i, token in enumerate(text.tokens)},
            merges=pairs,
            ignore_merges=splitting.whole_words,
        )
    backend = tokenizers.Tokenizer(model)
    if splitting.composes:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = splitting.build()
    return backend


def _sentencepiece(text: TextSpec, types: tuple[int, ...]) -> tokenizers.Tokenizer:
    """SentencePiece BPE: the best-scored piece that two neighbours form is merged first."""
    if len(text.scores) != len(text.tokens):
        raise CheckpointError(
            f"the model file has {len(text.tokens):,} tokens but {len(text.scores):,} scores: "
            "download it again, or another one"
        )
    with _refusing("the tokens of the model file are damaged"):
        model = models.BPE(
            vocab={token: i for i, token in enumerate(text.tokens)},
            merges=_merges_from_scores(text, types),
            unk_token=None if text.unknown is None else text.tokens[text.unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    backend = tokenizers.Tokenizer(model)
    respelling: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    if text.add_space_prefix:
        respelling.insert(0, normalizers.Prepend(SPACE))
    backend.normalizer = normalizers.Sequence(respelling)
    return backend


def _merges_from_scores(text: TextSpec, types: tuple[int, ...]) -> list[tuple[str, str]]:
    """Every way to cut a piece into two others, best score first.

    SentencePiece takes the leftmost of equal scores, so that runs of spaces grow from the left;
    here the longer left part stands for that. Control, byte and user-defined tokens never come
    about by merging: plain text that spells one stays text.
    """
    whole = (UNKNOWN, CONTROL, USER_DEFINED, BYTE)
    ids = {t: i for i, t in enumerate(text.tokens) if types[i] not in whole}
    cuts = [
        (-text.scores[i], -at, at - len(piece), i, piece)
        for piece, i in ids.items()
        for at in range(1, len(piece))
        if piece[:at] in ids and piece[at:] in ids
    ]
    cuts.sort()
    return [(piece[:-left], piece[-left:]) for _, left, _, _, piece in cuts]


def _from_json(text: TextSpec) -> Tokenizer:
    if text.file is None:
        raise CheckpointError("the model has no tokenizer.json: download the model again")
    with _refusing(f"cannot read the tokenizer {text.file}"):
        backend = tokenizers.Tokenizer.from_file(text.file)
    backend.no_truncation()
    backend.no_padding()
    byte_level, drops_space = _decoding(backend, text.file)
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


def _decoding(backend: tokenizers.Tokenizer, file: str) -> tuple[bool, bool]:
    """Whether tokens are spelled in the byte alphabet, and whether a first space is dropped."""
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
    steps = {step["type"]: step for step in state.get("decoders", [state]) if step}
    if "ByteLevel" in steps:
        return True, False
    if "Metaspace" in steps:
        return False, steps["Metaspace"].get("prepend_scheme") != "never"
    if "ByteFallback" in steps:
        return False, "Strip" in steps
    raise CheckpointError(
        f"{file} decodes by {' and '.join(steps) or 'nothing'}, which is not known here: use a "
        "model with a byte-level or a SentencePiece vocabulary"
    )


# ------------------------------------------------------------------------------------- parts


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
    """GPT-2's printable character of each byte: its own where it has one, else 256 and upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {chr(byte): byte for byte in printable}
    return spelled | {chr(256 + place): byte for place, byte in enumerate(others)}


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn the Rust library's errors into one line. It raises plain `Exception` and no other."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise CheckpointError(f"{what} ({error}): download it again, or another one") from error


# ------------------------------------------------------------------------- pre-tokenizers


@dataclass(frozen=True, slots=True)
class _Splitting:
    """How a family cuts text into words before merging.

    `patterns` cut one after the other; none means GPT-2's, after single digits if `digits`.
    `whole_words` takes a word that is a token as it is; `composes` is Unicode NFC.
    """

    patterns: tuple[str, ...] = ()
    digits: bool = False
    whole_words: bool = False
    composes: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps += [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in self.patterns]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.patterns))
        return pre_tokenizers.Sequence(steps)


def _splittings() -> dict[str, _Splitting]:
    """The pre-tokenizers by the names GGUF gives them, as the original tokenizers have them."""
    blanks = r"\s*[\r\n]+|\s+(?!\S)|\s+"
    suffix = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead, symbols = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+"

    def words(number: str) -> str:
        return rf"{suffix}|{lead}\p{{L}}+|{number}|{symbols}[\r\n]*|{blanks}"

    def cased(ending: str, number: str) -> str:
        word = rf"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"
        return rf"{word}|{number}|{symbols}[\r\n/]*|{blanks}"

    marked_words = (
        rf"{suffix}|{lead}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{blanks}"
    )
    coder = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u0800-\u9fa5\uac00-\ud7ff]+")
    deepseek = (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u30ff]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{blanks}",
    )
    gpt2, single_digits = _Splitting(), _Splitting(digits=True)
    llama3 = _Splitting((words(r"\p{N}{1,3}"),), whole_words=True)
    qwen2 = _Splitting((words(r"\p{N}"),), composes=True)
    gpt4o = _Splitting((cased(suffix + "?", r"\p{N}{1,3}"),))
    return {
        "default": gpt2,
        "gpt-2": gpt2,
        "phi-2": gpt2,
        "smollm": single_digits,
        "starcoder": single_digits,
        "refact": single_digits,
        "llama-bpe": llama3,
        "llama3": llama3,
        "llama-v3": llama3,
        "falcon3": llama3,
        "pixtral": llama3,
        "smaug-bpe": _Splitting(llama3.patterns),
        "dbrx": _Splitting(llama3.patterns),
        "qwen2": qwen2,
        "deepseek-r1-qwen": _Splitting(qwen2.patterns),
        "qwen35": _Splitting((marked_words,), composes=True),
        "gpt-4o": gpt4o,
        "llama4": gpt4o,
        "tekken": _Splitting((cased("", r"\p{N}"),), whole_words=True),
        "deepseek-coder": _Splitting(coder, digits=True),
        "deepseek-v3": _Splitting(deepseek),
    }
