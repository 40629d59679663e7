"""A `TextSpec`'s own vocabulary as a working tokenizer of the library.

Knows nothing of added tokens, control or BOS. Every token keeps its place in the `TextSpec` as its
id, and plain text never becomes a control token: those take no part in merging.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from local_tp.engine.pretokenizers import Splitting, splitting
from local_tp.errors import CheckpointError
from local_tp.text import BYTE, CONTROL, SPACE, UNKNOWN, USER_DEFINED, TextSpec

_LONGEST_PATTERN = 1 << 14
_LONGEST_REPLACEMENT = 64  # bytes for one character; Unicode's own longest takes 33
# Characters in all ways of cutting all tokens in two: twenty times that of the largest vocabulary.
_MOST_CUTTING = 1 << 29


def build(text: TextSpec) -> tokenizers.Tokenizer:
    """The tokenizer of a `text` that holds its tokens itself.

    Raises `CheckpointError` where the vocabulary is damaged or its pre-tokenizer unknown.
    """
    if text.kind == "gpt2":
        return _byte_level(text)
    if text.kind == "unigram":
        return _unigram(text)
    return _sentencepiece(text)


def spelled(text: TextSpec) -> TextSpec:
    """`text` with its runs of spaces as pieces that merge, as Gemma's own tokenizer has them.

    GGUF writes them as user-defined tokens of real spaces.
    """
    if not text.merges_by_id:
        return text
    runs = {i for i, token in enumerate(text.tokens) if len(token) > 1 and not token.strip(" ")}
    return replace(
        text,
        tokens=tuple(SPACE * len(t) if i in runs else t for i, t in enumerate(text.tokens)),
        token_types=tuple(1 if i in runs else kind for i, kind in enumerate(text.token_types)),
    )


def longest_replacement(charsmap: bytes) -> int:
    """The longest text, in bytes, that SentencePiece's compiled map puts for a character.

    After a table, whose size comes first, the texts stand one after another, each ended by a zero.
    """
    table = int.from_bytes(charsmap[:4], "little")
    return max(map(len, charsmap[4 + table :].split(b"\0")))


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn the library's errors into one line.

    It raises plain `Exception` for what it refuses and, where it gives up, a panic that is no
    `Exception` at all and cannot be named.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(f"{what} ({error}): download it again, or another one") from error


# ------------------------------------------------------------------------------------- kinds


def _byte_level(text: TextSpec) -> tokenizers.Tokenizer:
    """Byte-level BPE: words are cut by the family's pattern, then merged byte by byte."""
    cut = splitting(text.pre)
    if text.pattern is not None:
        if len(text.pattern) > _LONGEST_PATTERN:
            raise CheckpointError(
                "the pattern that cuts words is damaged: download the model again"
            )
        cut = Splitting((text.pattern,), composes=cut.composes)
    vocab = {token: i for i, token in enumerate(text.tokens)}
    with refusing("the merges of the model file are damaged"):
        model = models.BPE(
            vocab=vocab,
            merges=_stated_merges(text) if text.merges else _merges_by_rank(text, vocab),
            ignore_merges=cut.whole_words or not text.merges,
        )
    backend = tokenizers.Tokenizer(model)
    if cut.composes:
        backend.normalizer = normalizers.NFC()
    with refusing("the pattern that cuts words is damaged"):
        backend.pre_tokenizer = cut.build()
    return backend


def _sentencepiece(text: TextSpec) -> tokenizers.Tokenizer:
    """SentencePiece BPE: the best-scored piece that two neighbours form is merged first."""
    with refusing("the tokens of the model file are damaged"):
        model = models.BPE(
            vocab={token: i for i, token in enumerate(text.tokens)},
            merges=_stated_merges(text) if text.kind == "gemma4" else _merges_by_score(text),
            unk_token=None if text.unknown is None else text.tokens[text.unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    backend = tokenizers.Tokenizer(model)
    _respell(backend, text)
    return backend


def _unigram(text: TextSpec) -> tokenizers.Tokenizer:
    """SentencePiece unigram: the pieces that are together the most probable.

    Control and byte tokens get a score that any spelling of them in pieces exceeds: SentencePiece
    never finds them in text, and the library would.
    """
    _check_scores(text)
    reserved = {i for i, kind in enumerate(text.token_types) if kind in (UNKNOWN, CONTROL, BYTE)}
    usual = [score for i, score in enumerate(text.scores) if i not in reserved]
    longest = max((len(text.tokens[i]) for i in reserved), default=0)
    floor = (longest + 1) * (min(usual, default=0.0) - 10.0)  # 10: what an unknown character costs
    with refusing("the tokens of the model file are damaged"):
        model = models.Unigram(
            vocab=[
                (token, floor if i in reserved else text.scores[i])
                for i, token in enumerate(text.tokens)
            ],
            unk_id=text.unknown,
            byte_fallback=BYTE in text.token_types,
        )
    backend = tokenizers.Tokenizer(model)
    _respell(backend, text)
    return backend


def _respell(backend: tokenizers.Tokenizer, text: TextSpec) -> None:
    """Put SentencePiece's normalization in front: its map, its blanks, its first space.

    The patterns look at one place only: ` +$` would try every run of spaces from each of them.
    """
    steps: list[normalizers.Normalizer] = []
    if text.charsmap:
        with refusing("the normalization of the tokenizer is damaged"):
            charsmap = base64.b64decode(text.charsmap)
            steps.append(normalizers.Precompiled(charsmap))
        if longest_replacement(charsmap) > _LONGEST_REPLACEMENT:
            raise CheckpointError(
                "the normalization of the tokenizer would make any text many times as long: use "
                "another model"
            )
    if text.squeezes_spaces:
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
        steps.append(normalizers.Replace(Regex(r"\A | \z"), ""))
    if text.add_space_prefix and not text.prefix_once:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    backend.normalizer = normalizers.Sequence(steps)
    if text.add_space_prefix and text.prefix_once:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)


# ------------------------------------------------------------------------------------ merges


def _stated_merges(text: TextSpec) -> list[tuple[str, str]]:
    """The merges of the file. A space parts the two, and is never the first letter."""
    pairs = []
    for merge in text.merges:
        at = merge.find(" ", 1)
        pairs.append((merge[:at], merge[at + 1 :]) if at > 0 else (merge, ""))
    return pairs


def _merges_by_score(text: TextSpec) -> list[tuple[str, str]]:
    """Every way to cut a piece into two others, best score first.

    SentencePiece takes the leftmost of equal scores, so that runs of spaces grow from the left;
    here the longer left part stands for that. Control, byte and user-defined tokens never come
    about by merging: plain text that spells one stays text.
    """
    _check_scores(text)
    types = text.token_types or (1,) * len(text.tokens)
    whole = (UNKNOWN, CONTROL, USER_DEFINED, BYTE)
    ids = {token: i for i, token in enumerate(text.tokens) if types[i] not in whole}
    _check_cutting(ids)
    cuts = [
        (i if text.merges_by_id else -text.scores[i], -at, at - len(piece), i, piece)
        for piece, i in ids.items()
        for at in range(1, len(piece))
        if piece[:at] in ids and piece[at:] in ids
    ]
    cuts.sort()
    return [(piece[:-left], piece[-left:]) for _, left, _, _, piece in cuts]


def _merges_by_rank(text: TextSpec, vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to cut a token into two others, in the order of the ids, as tiktoken merges.

    Of one token's ways the one with the first left part goes first, as transformers has it.
    """
    added = {i for i, kind in enumerate(text.token_types) if kind != 1}
    ids = {token: i for token, i in vocab.items() if i not in added}
    _check_cutting(ids)
    cuts = [
        (i, ids[token[:at]], ids[token[at:]])
        for token, i in ids.items()
        for at in range(1, len(token))
        if token[:at] in ids and token[at:] in ids
    ]
    cuts.sort()
    return [(text.tokens[left], text.tokens[right]) for _, left, right in cuts]


# ------------------------------------------------------------------------------------ checks


def _check_scores(text: TextSpec) -> None:
    if len(text.scores) != len(text.tokens):
        raise CheckpointError(
            f"the model file has {len(text.tokens):,} tokens but {len(text.scores):,} scores: "
            "download it again, or another one"
        )


def _check_cutting(tokens: Iterable[str]) -> None:
    if sum(len(token) ** 2 for token in tokens) > _MOST_CUTTING:
        raise CheckpointError(
            "the tokens of the model file are longer than any vocabulary's: it is damaged, or was "
            "made to be slow; use another model"
        )
