"""Numbers of a `config.json` that are sizes, each within what a model can have."""

from __future__ import annotations

from local_tp.checkpoint.fields import Fields

MOST_LAYERS = 1024
MOST_WIDTH = 1 << 20  # of hidden, ffn, heads and ranks
MOST_EXPERTS = 1 << 14
MOST_VOCAB = 1 << 24


def size(fields: Fields, key: str, most: int = MOST_WIDTH, default: int | None = None) -> int:
    value = fields.integer(key, default)
    if value > most:
        raise fields.wrong(key, f"at most {most:,}")
    return value


def count(fields: Fields, *keys: str, most: int = MOST_WIDTH) -> int:
    """The first of these that is stated, or 0."""
    for key in keys:
        if fields.get(key) is not None:
            value = fields.integer(key, least=0)
            if value > most:
                raise fields.wrong(key, f"at most {most:,}")
            return value
    return 0
