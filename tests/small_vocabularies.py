"""Small vocabularies of each kind, trained where they are needed on the torture text."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from torture_text import TRAINING

from local_tp.text import TextSpec


@cache
def byte_level() -> dict[str, Any]:
    """A byte-level BPE as a tokenizer.json has it: `vocab` and `merges`.

    Its words were not cut before training, so that merges reach over whatever a family would cut:
    another cut gives other tokens.
    """
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1000, min_frequency=1, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TRAINING, trainer)
    model: dict[str, Any] = json.loads(made.to_str())["model"]
    return model


def tokens() -> list[str]:
    vocab = byte_level()["vocab"]
    return sorted(vocab, key=vocab.__getitem__)


def merges() -> list[tuple[str, str]]:
    return [(left, right) for left, right in byte_level()["merges"]]


def gguf_spec(pre: str) -> TextSpec:
    """The byte-level vocabulary as the metadata of a GGUF file hold it."""
    return TextSpec("gpt2", tokens=tuple(tokens()), merges=tuple(map(" ".join, merges())), pre=pre)


def sentencepiece(**options: Any) -> bytes:
    """A SentencePiece model file, trained by its own library with `options` of its trainer."""
    import sentencepiece as library

    written = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in TRAINING if line.strip()]),
        model_writer=written,
        minloglevel=2,
        hard_vocab_limit=False,
        max_sentence_length=10_000,
        **{"vocab_size": 800, "byte_fallback": True} | options,
    )
    return written.getvalue()


AS_WRITTEN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
