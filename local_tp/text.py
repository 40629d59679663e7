"""What a checkpoint says of text: the noun that the file readers hand to the tokenizer.

Knows nothing of files, nor how to tokenize. Whatever a file's own form was, tokens stand in the
order of their ids, and byte-level tokens are spelled in GPT-2's alphabet, a letter a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Token types, as GGUF and SentencePiece number them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "▁"  # how SentencePiece spells a space


@dataclass(frozen=True, slots=True)
class TextSpec:
    """Everything a checkpoint says of text: the vocabulary and the chat templates.

    `kind` is "json" (a `tokenizer.json` at `file`); "gpt2" (byte-level BPE, merged as `merges` say
    or, where there are none, by the order of the tokens); "llama" (SentencePiece BPE, merged by
    `scores`); "gemma4" (the same, with `merges`); or "unigram" (SentencePiece, by probability).
    """

    kind: Literal["json", "gpt2", "llama", "gemma4", "unigram"]
    file: str | None = None
    tokens: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    token_types: tuple[int, ...] = ()
    merges: tuple[str, ...] = ()
    pre: str = "default"  # the pre-tokenizer, by the name GGUF gives it
    pattern: str | None = None  # what cuts words, where the file states it instead of a name
    bos: int | None = None
    eos: int | None = None
    stop_ids: tuple[int, ...] = ()  # every id that ends a turn, eos included
    unknown: int | None = None
    add_bos: bool = False
    add_space_prefix: bool = True
    prefix_once: bool = False  # the space goes before the text, and not again after control tokens
    squeezes_spaces: bool = False  # SentencePiece's removal of spaces at the ends and in runs
    charsmap: str = ""  # SentencePiece's compiled normalization, in base64
    merges_by_id: bool = False  # Gemma's scores do not follow its merges, its ids do
    chat_template: str | None = None
    named_templates: tuple[tuple[str, str], ...] = ()  # others, by what they are for
    doubts: tuple[str, ...] = ()  # what the files leave open, in words

    @property
    def templates(self) -> tuple[str, ...]:
        """Every chat template."""
        named = tuple(template for _, template in self.named_templates)
        return named if self.chat_template is None else (self.chat_template, *named)


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter of each byte: its own where it has one, else 256 and upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }
