"""The files of one GGUF model: a single one, or numbered parts."""

from __future__ import annotations

import re
from pathlib import Path

from local_tp.checkpoint.gguf_header import GgufHeader, read_header
from local_tp.errors import CheckpointError

_PART = re.compile(r"-\d{5}-of-(?P<count>\d{5})$")

_MOST_PARTS = 1000


def model_name(path: Path) -> str:
    """A GGUF file's name without its ending and its part number."""
    return _PART.sub("", path.stem)


def parts(path: Path) -> list[GgufHeader]:
    """The headers of every part of a model, first part first, whichever part was given."""
    header = read_header(path)
    count = header.metadata.integer("split.count", default=1, least=0)
    if count <= 1:
        return [header]
    match = _PART.search(path.stem)
    if match is None or int(match["count"]) != count or count > _MOST_PARTS:
        raise CheckpointError(
            f"{path} is one of {count} parts: give all of them the names they were downloaded "
            f"with, ending in -00001-of-{count:05}.gguf"
        )
    stem = path.stem[: match.start()]
    files = [path.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{file} is missing: download all {count} parts into one folder")
    return [header if file == path else read_header(file) for file in files]
