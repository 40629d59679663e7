"""The chat templates of a Hugging Face model folder, in all the places where they are kept.

Knows nothing of what a template says. A file of its own counts before what a configuration holds.
"""

from __future__ import annotations

from pathlib import Path

from local_tp.checkpoint.fields import Fields, read_bounded
from local_tp.errors import CheckpointError

_LARGEST = 1 << 20  # a template has up to a few ten thousand bytes
_MOST_NAMED = 16


def read_templates(
    folder: Path, settings: Fields
) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """The default template, and the named ones; `settings` is `tokenizer_config.json`.

    Raises `CheckpointError`; `OSError` passes through.
    """
    named = _configured(folder, settings)
    if (folder / "chat_template.jinja").is_file():
        named = {"default": _read(folder / "chat_template.jinja")}
    extra = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    if len(extra) > _MOST_NAMED:
        raise CheckpointError(
            f"{folder} has {len(extra)} chat templates and {_MOST_NAMED} are the most that are "
            "read: remove those that are not the model's"
        )
    named |= {path.stem: _read(path) for path in extra}
    return named.pop("default", None), tuple(sorted(named.items()))


def _configured(folder: Path, settings: Fields) -> dict[str, str]:
    """What the configuration files hold: one template, or a list of named ones."""
    if isinstance(settings.get("chat_template"), list):
        items = settings.inners("chat_template")
        pairs = [(item.text("name"), item.text("template")) for item in items]
        return {name: source for name, source in pairs if name is not None and source is not None}
    single = settings.text("chat_template")
    processor = folder / "chat_template.json"  # what models with a vision part once had
    if single is None and processor.is_file():
        single = Fields.from_json(processor, _LARGEST).text("chat_template")
    return {} if single is None else {"default": single}


def _read(path: Path) -> str:
    try:
        return read_bounded(path, _LARGEST).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is damaged: it is not UTF-8") from error
