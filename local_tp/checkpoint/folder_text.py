"""The text side of a Hugging Face model folder: `tokenizer.json` and what stands around it.

Knows nothing of tensors, nor how to tokenize. Token ids come from `generation_config.json` and
`config.json`, from names in `tokenizer_config.json`, and from `tokenizer.json`'s special tokens.
"""

from __future__ import annotations

from pathlib import Path

from local_tp.checkpoint.fields import Fields, read_bounded
from local_tp.checkpoint.turns import stop_ids
from local_tp.core import TextSpec
from local_tp.errors import CheckpointError

_TOKENIZER = "tokenizer.json"
_LARGEST_CONFIG = 1 << 24
_LARGEST_TOKENIZER = 1 << 26  # the largest vocabularies take 33 MB


def read_folder_text(folder: Path, vocab: int) -> TextSpec:
    """Reads what `folder` says of text; ids must be below `vocab`.

    Raises `CheckpointError`; `OSError` passes through.
    """
    file = folder / _TOKENIZER
    if not file.is_file():
        raise CheckpointError(
            f"{folder} has no {_TOKENIZER}, which is needed: download it with the model, or use a "
            "GGUF file, which has its tokenizer inside"
        )
    tokenizer = Fields.from_json(file, _LARGEST_TOKENIZER)
    settings = _optional(folder, "tokenizer_config.json")
    stated = [_optional(folder, "generation_config.json"), _optional(folder, "config.json")]
    special = _special(tokenizer)
    bos = _first(_named(settings, "bos_token", special), *(_ids(f, "bos_token_id") for f in stated))
    ends = [*_named(settings, "eos_token", special)]
    for fields in stated:
        ends += _ids(fields, "eos_token_id")
    template = _template(folder, settings)
    stops = stop_ids(ends, special, template)
    for token in (*stops, *(() if bos is None else (bos,))):
        if token >= vocab:
            raise CheckpointError(
                f"{folder} names a token {token} and its model has {vocab}: the files are not of "
                "one model, download them again"
            )
    default = bos is not None and _adds_first(tokenizer, bos, special)
    return TextSpec(
        kind="json",
        file=str(file),
        bos=bos,
        eos=ends[0] if ends else None,
        stop_ids=stops,
        add_bos=settings.flag("add_bos_token", default=default) and bos is not None,
        chat_template=template,
    )


def _optional(folder: Path, name: str) -> Fields:
    path = folder / name
    if path.is_file():
        return Fields.from_json(path, _LARGEST_CONFIG)
    return Fields(str(path), {})


def _special(tokenizer: Fields) -> dict[str, int]:
    """The added tokens by their text."""
    special = {}
    for token in tokenizer.inners("added_tokens"):
        text = token.text("content")
        if text is not None:
            special[text] = token.integer("id", least=0)
    return special


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


def _template(folder: Path, settings: Fields) -> str | None:
    """`chat_template.jinja`, or what `tokenizer_config.json` holds: one template or named ones."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_bounded(path, _LARGEST_CONFIG).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} is damaged: it is not UTF-8") from error
    if not isinstance(settings.get("chat_template"), list):
        return settings.text("chat_template")
    named = {item.text("name"): item.text("template") for item in settings.inners("chat_template")}
    return named.get("default")


def _adds_first(tokenizer: Fields, bos: int, special: dict[str, int]) -> bool:
    """Whether a template of the tokenizer's own post-processor puts `bos` before a text."""
    processor = tokenizer.inner("post_processor")
    if processor is None:
        return False
    for step in (processor, *processor.inners("processors")):
        single = step.inners("single") if step.text("type") == "TemplateProcessing" else ()
        first = single[0].inner("SpecialToken") if single else None
        name = None if first is None else first.text("id")
        if name is not None and special.get(name) == bos:
            return True
    return False
