"""Names that people and repositories give: owner/name[:quant], names of files, quantizations.

Knows nothing of networks or disks. A repository's file names are a stranger's: one that could lie
outside the folder that is meant for it, on any system, does not pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from local_tp.checkpoint.fields import shown
from local_tp.errors import CheckpointError

WEIGHTS = (".gguf", ".safetensors")
INDEX = "model.safetensors.index.json"
PART, LOCK = ".part", ".lock"  # what is added to the name of a file while it is fetched
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")
_PREFIX = re.compile(r"(?:https?://)?(?:huggingface\.co|hf\.co)/|hf://")
_PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})$")
_LABEL = re.compile(
    r"(?:^|[-._ ])(?P<label>(?:UD-)?(?:"
    r"I?Q[1-8](?:_(?:[0-9]|KS?|SS|S|M|L|XL|XS|XXS|XXL|NL|P|KV|KT|KSS|R[48]))*"
    r"|TQ[12]_0|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))(?=$|[-._ ])",
    re.IGNORECASE,
)
_FORBIDDEN = frozenset('<>:"|?*\\')
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(?:\..*)?")
_LONGEST_PART, _LONGEST_PATH, _MOST_FOLDERS = 200, 400, 4


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository of the hub, and which of its quantizations; `None` leaves that open."""

    owner: str
    name: str
    quant: str | None = None

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return self.repository + (f":{self.quant}" if self.quant else "")


def parse_reference(text: str) -> Reference | None:
    """`owner/name[:quant]`, with or without the hub's address before it; else `None`."""
    rest = text[match.end() :] if (match := _PREFIX.match(text)) else text
    repository, colon, quant = rest.rstrip("/").partition(":")
    owner, slash, name = repository.partition("/")
    if not slash or not _word(owner) or not _word(name):
        return None
    if colon and (not quant or len(quant) > _LONGEST_PATH or not quant.isprintable()):
        return None
    return Reference(owner, name, quant or None)


def _word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and ".." not in text and not _reserved(text)


def safe_path(text: str, source: str) -> PurePosixPath:
    """A repository's file name as a relative path that is one and the same on every system.

    Raises `CheckpointError`: for parent folders, absolute paths, drives, backslashes, control
    characters, names that Windows keeps for itself, hidden names of another's making, and lengths
    that not every system takes.
    """
    parts = text.split("/")
    if (
        len(text.encode(errors="replace")) > _LONGEST_PATH
        or len(parts) > _MOST_FOLDERS
        or not all(_safe_part(part) for part in parts)
    ):
        raise CheckpointError(
            f"{source} names a file {shown(text)}, which is no safe name for one: it is refused"
        )
    return PurePosixPath(*parts)


def _safe_part(part: str) -> bool:
    return (
        0 < len(part.encode(errors="replace")) <= _LONGEST_PART
        and part.isprintable()
        and not _FORBIDDEN & set(part)
        and part[0] not in ". "
        and part[-1] not in ". "
        and not _reserved(part)
    )


def _reserved(part: str) -> bool:
    return _RESERVED.fullmatch(part.lower()) is not None


def part_of(stem: str) -> tuple[str, int, int]:
    """A name without its part number, which part it is, and of how many; 1 of 1 without one."""
    match = _PART.search(stem)
    if match is None:
        return stem, 1, 1
    return stem[: match.start()], int(match["number"]), int(match["count"])


def one_line(text: str) -> str:
    """A stranger's words as one short line without control characters."""
    line = "".join(c if c.isprintable() else " " for c in text).strip()
    return line if len(line) <= 80 else f"{line[:77]}..."


def quant_label(path: str) -> str | None:
    """The quantization that a GGUF file's name or else its folder states, in capitals."""
    pure = PurePosixPath(path)
    stem = part_of(pure.name.removesuffix(".gguf"))[0]
    for text in (stem, pure.parent.name):
        found = [match["label"] for match in _LABEL.finditer(text)]
        if found:
            label: str = found[-1].upper()
            return label.replace("FP16", "F16").replace("FP32", "F32")
    return None
