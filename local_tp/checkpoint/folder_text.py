"""The text side of a Hugging Face model folder: its tokenizer's files and what stands around them.

Knows nothing of tensors, nor how to tokenize. Token ids come from `generation_config.json` and
`config.json`, from names in `tokenizer_config.json`, and from the tokenizer's own special tokens.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from local_tp.checkpoint.fields import Fields, read_bounded
from local_tp.checkpoint.folder_templates import read_templates
from local_tp.checkpoint.rank_file import RankFile, read_tekken, read_tiktoken, with_added
from local_tp.checkpoint.sentencepiece_model import (
    SentencePieceModel,
    is_sentencepiece,
    read_sentencepiece,
)
from local_tp.checkpoint.turns import stop_ids
from local_tp.errors import CheckpointError
from local_tp.text import CONTROL, UNKNOWN, USER_DEFINED, TextSpec

LARGEST_CONFIG = 1 << 24
_LARGEST_TOKENIZER = 1 << 26  # the largest vocabularies take 33 MB
# Values in a JSON file: four times those of the largest vocabulary with its merges. Each takes up
# to a hundred bytes once it is read, however short it is written.
_MOST_VALUES = 1 << 23
_JSON, _TEKKEN = "tokenizer.json", "tekken.json"
_MODELS = ("tokenizer.model", "tiktoken.model", "qwen.tiktoken", "hy.tiktoken")

# A rank file does not say how it cuts words: the pre-tokenizer by what else names the family.
_RANK_CUTS = {
    "tiktoken.model": "kimi-k2",
    "qwen.tiktoken": "qwen2",
    "hy.tiktoken": "hunyuan",
    "TikTokenTokenizer": "kimi-k2",
    "QWenTokenizer": "qwen2",
    "HYTokenizer": "hunyuan",
    "ChatGLM4Tokenizer": "glm4",
    "llama": "llama-bpe",
}


def read_folder_text(folder: Path, vocab: int) -> TextSpec:
    """Reads what `folder` says of text; ids must be below `vocab`.

    Of several tokenizers `tokenizer.json` counts, then `tekken.json`, then a SentencePiece model or
    a rank file. Raises `CheckpointError`; `OSError` passes through.
    """
    settings = _optional(folder, "tokenizer_config.json")
    stated = [_optional(folder, "generation_config.json"), _optional(folder, "config.json")]
    text, special, own = _vocabulary(folder, settings, stated[1])
    bos = _first(
        _named(settings, "bos_token", special),
        *(_ids(fields, "bos_token_id") for fields in stated),
        [] if text.bos is None else [text.bos],
    )
    ends = _named(settings, "eos_token", special)
    for fields in stated:
        ends += _ids(fields, "eos_token_id")
    if not ends and text.eos is not None:
        ends = [text.eos]
    default, named = read_templates(folder, settings)
    text = replace(text, chat_template=default, named_templates=named)
    stops = stop_ids(ends, special, "\n".join(text.templates))
    highest = max((*stops, len(text.tokens) - 1, -1 if bos is None else bos))
    if highest >= vocab:
        raise CheckpointError(
            f"{folder} names a token {highest} and its model has {vocab}: the files are not of "
            "one model, download them again"
        )
    starts = own if isinstance(own, bool) else _adds_first(own, bos, special)
    return replace(
        text,
        bos=bos,
        eos=ends[0] if ends else None,
        stop_ids=stops,
        add_bos=settings.flag("add_bos_token", default=starts) and bos is not None,
    )


# ------------------------------------------------------------------------- the vocabulary


def _vocabulary(
    folder: Path, settings: Fields, config: Fields
) -> tuple[TextSpec, dict[str, int], bool | Fields]:
    """The tokenizer's own file; its special tokens by text; whether BOS begins a text.

    The last is for `_adds_first` to find in a tokenizer.json, which comes instead.
    """
    file = folder / _JSON
    if file.is_file():
        fields = _json(file)
        return TextSpec("json", file=str(file)), _added(fields), fields
    file = folder / _TEKKEN
    if file.is_file():
        text = _ranks(read_tekken(_json(file)), settings, folder, "tekken")
        return text, _special(text), True
    file = next((folder / name for name in _MODELS if (folder / name).is_file()), folder / _JSON)
    if file.name == _JSON:
        raise CheckpointError(
            f"{folder} has no {_JSON}, {_TEKKEN} or tokenizer.model, one of which is needed: "
            "download it with the model, or use a GGUF file, which has its tokenizer inside"
        )
    raw = read_bounded(file, _LARGEST_TOKENIZER)
    if is_sentencepiece(raw):
        text = _pieces(read_sentencepiece(str(file), raw), settings, folder)
        return text, _special(text), True
    cut = _cut(file, settings, config)
    text = _ranks(read_tiktoken(str(file), raw), settings, folder, cut)
    return text, _special(text), cut == "llama-bpe"


def _json(file: Path) -> Fields:
    raw = read_bounded(file, _LARGEST_TOKENIZER)
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > _MOST_VALUES:
        raise CheckpointError(
            f"{file} has more than {_MOST_VALUES:,} values: it is not what its name says"
        )
    return Fields.from_bytes(str(file), raw)


def _ranks(file: RankFile, settings: Fields, folder: Path, pre: str) -> TextSpec:
    made = with_added(file, {}, _declared(settings, folder))
    pattern = made.pattern or settings.text("pat_str")
    return TextSpec("gpt2", tokens=made.tokens, token_types=made.types, pre=pre, pattern=pattern)


def _pieces(model: SentencePieceModel, settings: Fields, folder: Path) -> TextSpec:
    made = with_added(RankFile(model.tokens, model.types), {}, _declared(settings, folder))
    return TextSpec(
        kind=model.kind,
        tokens=made.tokens,
        token_types=made.types,
        scores=(*model.scores, *(0.0,) * (len(made.tokens) - len(model.tokens))),
        bos=model.bos,
        eos=model.eos,
        unknown=model.unknown,
        add_space_prefix=settings.flag("add_prefix_space", default=model.add_space_prefix)
        and model.add_space_prefix,
        prefix_once=not settings.flag("legacy", default=True),
        squeezes_spaces=model.squeezes_spaces,
        charsmap=model.charsmap,
    )


def _cut(file: Path, settings: Fields, config: Fields) -> str:
    """The pre-tokenizer of a rank file."""
    names = (settings.text("tokenizer_class"), config.text("model_type"), file.name)
    known = [_RANK_CUTS[name] for name in names if name in _RANK_CUTS]
    if not known and settings.text("pat_str") is None:
        raise CheckpointError(
            f"{file} lists tokens by rank, and nothing beside it says how text is cut into words: "
            "download tokenizer.json with the model, or use a GGUF file"
        )
    return known[0] if known else "gpt-2"


def _declared(settings: Fields, folder: Path) -> dict[int, tuple[str, bool]]:
    """Tokens that stand outside the tokenizer's own file: text, and whether control, by id."""
    declared = {}
    older = _optional(folder, "added_tokens.json")
    for name in older.values:
        declared[older.integer(name, least=0)] = (name, True)
    listed = settings.inner("added_tokens_decoder")
    for key in () if listed is None else listed.values:
        token = None if listed is None or not key.isdecimal() else listed.inner(key)
        text = None if token is None else token.text("content")
        if token is None or text is None or len(key) > 9:
            raise settings.wrong("added_tokens_decoder", "an id and a token with its content")
        declared[int(key)] = (text, token.flag("special", default=False))
    return declared


def _special(text: TextSpec) -> dict[str, int]:
    """The tokens that pieces of text never become, by their text."""
    kinds = (CONTROL, UNKNOWN, USER_DEFINED)
    return {text.tokens[i]: i for i, kind in enumerate(text.token_types) if kind in kinds}


def _added(tokenizer: Fields) -> dict[str, int]:
    """The added tokens of a tokenizer.json by their text."""
    special = {}
    for token in tokenizer.inners("added_tokens"):
        text = token.text("content")
        if text is not None:
            special[text] = token.integer("id", least=0)
    return special


# ----------------------------------------------------------------------------------- the ids


def _optional(folder: Path, name: str) -> Fields:
    path = folder / name
    if path.is_file():
        return Fields.from_json(path, LARGEST_CONFIG)
    return Fields(str(path), {})


def _named(settings: Fields, key: str, special: dict[str, int]) -> list[int]:
    """The id of a token that is given as its text, or as an object with its text as `content`."""
    if isinstance(settings.get(key), dict):
        inner = settings.inner(key)
        text = None if inner is None else inner.text("content")
    else:
        text = settings.text(key)
    return [special[text]] if text is not None and text in special else []


def _ids(fields: Fields, key: str) -> list[int]:
    """One id or a list of them."""
    if isinstance(fields.get(key), list):
        ids = fields.integers(key)
        if any(token < 0 for token in ids):
            raise fields.wrong(key, "ids of 0 or more")
        return list(ids)
    token = fields.identifier(key)
    return [] if token is None else [token]


def _first(*candidates: list[int]) -> int | None:
    return next((ids[0] for ids in candidates if ids), None)


def _adds_first(tokenizer: Fields, bos: int | None, special: dict[str, int]) -> bool:
    """Whether a template of the tokenizer's own post-processor puts `bos` before a text."""
    processor = tokenizer.inner("post_processor")
    if processor is None or bos is None:
        return False
    for step in (processor, *processor.inners("processors")):
        single = step.inners("single") if step.text("type") == "TemplateProcessing" else ()
        first = single[0].inner("SpecialToken") if single else None
        name = None if first is None else first.text("id")
        if name is not None and special.get(name) == bos:
            return True
    return False
