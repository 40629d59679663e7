"""Files that list byte strings by rank: tiktoken's (`base64 rank` a line) and tekken.json.

Knows nothing of how ranks become merges. Tokens come out in the order of their ids, spelled a
letter a byte; places that a file leaves free hold a reserved name, as transformers fills them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from local_tp.checkpoint.fields import Fields
from local_tp.errors import CheckpointError
from local_tp.text import CONTROL, NORMAL, UNUSED, USER_DEFINED, byte_letters

_MOST_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class RankFile:
    """Tokens and their types; `pattern` cuts words, where the file states it."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    pattern: str | None = None


def read_tiktoken(source: str, raw: bytes) -> RankFile:
    """The tokens of a rank file. Raises `CheckpointError`."""
    ranks: dict[bytes, int] = {}
    for place, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        encoded, _, number = line.strip().partition(b" ")
        if not number.isdigit() or len(number) > 8 or int(number) >= _MOST_TOKENS:
            raise _damaged(source, f"line {place} has no rank below {_MOST_TOKENS:,}")
        token = _bytes(source, encoded)
        if token in ranks:
            raise _damaged(source, f"line {place} lists a token that is there already")
        ranks[token] = int(number)
    if len(set(ranks.values())) != len(ranks) or not ranks:
        raise _damaged(source, "it has no tokens, or two of one rank")
    return with_added(RankFile((), ()), {rank: token for token, rank in ranks.items()}, {})


def read_tekken(fields: Fields) -> RankFile:
    """The tokens of a tekken.json: control tokens first. Raises `CheckpointError`."""
    config = fields.inner("config")
    if config is None:
        raise fields.wrong("config", "an object")
    if fields.get("special_tokens") is None:
        raise CheckpointError(
            f"{fields.source} is of an older kind that does not list its special tokens: use a "
            "model with a tokenizer.json"
        )
    count = config.integer("default_num_special_tokens", default=0, least=0)
    size = config.integer("default_vocab_size", default=_MOST_TOKENS)
    if not count <= size <= _MOST_TOKENS:
        raise config.wrong("default_vocab_size", f"{count} to {_MOST_TOKENS:,} tokens")
    special: dict[int, tuple[str, bool]] = {n: (f"<SPECIAL_{n}>", True) for n in range(count)}
    for inner in fields.inners("special_tokens"):
        rank, name = inner.integer("rank", least=0), inner.text("token_str")
        if rank >= count or name is None:
            raise inner.wrong("rank", f"a named token below {count}")
        special[rank] = (name, True)
    ranks = {
        count + place: _bytes(fields.source, (inner.text("token_bytes") or "").encode())
        for place, inner in enumerate(fields.inners("vocab")[: size - count])
    }
    made = with_added(RankFile((), ()), ranks, special)
    return RankFile(made.tokens, made.types, config.text("pattern"))


def with_added(
    file: RankFile, ranks: Mapping[int, bytes], added: Mapping[int, tuple[str, bool]]
) -> RankFile:
    """`file` with byte tokens of `ranks`, then `added` ones by id: text, and whether control.

    What an id had before goes; ids that nobody names become reserved ones.
    """
    letters = byte_letters()
    placed = dict(enumerate(zip(file.tokens, file.types, strict=True)))
    for i, raw in ranks.items():
        placed[i] = ("".join(map(letters.__getitem__, raw)), NORMAL)
    for i, (text, control) in added.items():
        placed[i] = (text, CONTROL if control else USER_DEFINED)
    count = 1 + max(placed, default=-1)
    if count > _MOST_TOKENS:
        raise CheckpointError(
            f"the tokenizer names token {count - 1:,} and {_MOST_TOKENS:,} are the most that are "
            "read: it is damaged, download it again"
        )
    filled = [placed.get(i, (f"<|reserved_token_{i}|>", UNUSED)) for i in range(count)]
    return RankFile(
        tuple(text for text, _ in filled), tuple(kind for _, kind in filled), file.pattern
    )


def _bytes(source: str, encoded: bytes) -> bytes:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _damaged(source, "it has a token that is not base64") from error
    if not raw:
        raise _damaged(source, "it has an empty token")
    return raw


def _damaged(source: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{source} is damaged: {reason}; download it again")
