"""Which files of a repository make up one model, decided from names and sizes alone.

Knows nothing of networks. A choice is complete or refused: every part of a GGUF, every file of a
safetensors model. Pickles are never chosen, since reading one runs whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from local_tp.checkpoint.formats import READABLE
from local_tp.checkpoint.hub.found import size_text
from local_tp.checkpoint.hub.listing import RemoteFile, Repository
from local_tp.checkpoint.hub.names import INDEX, WEIGHTS, part_of, quant_label
from local_tp.errors import CheckpointError

# What most people are best served by, the first that this version can run.
PREFERRED = (
    "Q4_K_M", "UD-Q4_K_XL", "MXFP4", "Q4_K_S", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_1", "Q5_K_M",
    "Q6_K", "Q8_0", "BF16", "F16", "F32",
)  # fmt: skip
_BESIDE_GGUF = re.compile(r"mmproj|imatrix|(?:^|[-._])(?:draft|mtp|lora|adapter|vocab)(?:[-._]|$)")
_TEXT = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|"
    r"special_tokens_map\.json|added_tokens\.json|vocab\.json|chat_template\.(?:jinja|json)|"
    r"tokenizer\.model|tekken\.json|.*\.tiktoken|model\.safetensors\.index\.json"
)
_SHARD = re.compile(r"model(?:-\d{5}-of-\d{5})?\.safetensors")


@dataclass(frozen=True, slots=True)
class Variant:
    """One GGUF model of a repository: its quantization, or its name where that says none."""

    label: str
    files: tuple[RemoteFile, ...]
    missing: int = 0

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    @property
    def stem(self) -> str:
        """The path of its first file, without ending and part number."""
        return part_of(str(self.files[0].path).removesuffix(".gguf"))[0]


@dataclass(frozen=True, slots=True)
class Choice:
    """The files of one model, in the order to fetch them, and what should be said of it.

    `label` is the quantization of a GGUF; `others` are all there are, where several were.
    """

    label: str | None
    files: tuple[RemoteFile, ...]
    notes: tuple[str, ...] = ()
    others: tuple[Variant, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


class SeveralVariants(CheckpointError):
    """A repository has several models, and which one is meant was not said."""

    def __init__(self, message: str, variants: tuple[Variant, ...]) -> None:
        super().__init__(message)
        self.variants = variants


def choose(found: Repository, ask: bool = False) -> Choice:
    """The model that a reference means. Raises `CheckpointError`.

    Where several GGUFs are there and none is named, the best that this version runs is taken, or
    with `ask` none: then and where none is obvious, `SeveralVariants`.
    """
    name, quant = found.reference.repository, found.reference.quant
    gguf = [file for file in found.files if file.path.suffix == ".gguf"]
    there, beside = variants(gguf)
    notes = tuple(f"{file.path} is left out: it is no language model" for file in beside)
    if not there:
        if quant is not None:
            raise CheckpointError(f"{name} has no GGUF files, so no {quant}: leave out :{quant}")
        return _folder(found)
    named = _named(name, there, quant) if quant is not None else _unnamed(name, there, ask)
    if named.missing:
        raise CheckpointError(
            f"{name} lacks {named.missing} parts of {named.label}: choose another of {table(there)}"
        )
    return Choice(named.label, named.files, notes, there if len(there) > 1 else ())


def variants(files: Iterable[RemoteFile]) -> tuple[tuple[Variant, ...], tuple[RemoteFile, ...]]:
    """The GGUF models, small ones first, and the GGUF files that are none."""
    groups: dict[tuple[str, int], dict[int, RemoteFile]] = {}
    beside = []
    for file in files:
        if _BESIDE_GGUF.search(file.path.name.lower()):
            beside.append(file)
            continue
        stem, number, count = part_of(str(file.path).removesuffix(".gguf"))
        groups.setdefault((stem, count), {})[number] = file
    made = []
    for (stem, count), parts in groups.items():
        label = quant_label(f"{stem}.gguf") or PurePosixPath(stem).name
        ordered = tuple(parts[number] for number in sorted(parts))
        made.append(Variant(label, ordered, missing=max(0, count - len(parts))))
    return tuple(sorted(made, key=lambda v: (v.nbytes, v.label))), tuple(beside)


def table(there: Iterable[Variant]) -> str:
    """Labels with sizes, on one line."""
    return ", ".join(f"{variant.label} ({size_text(variant.nbytes)})" for variant in there)


def runs_here(label: str) -> bool:
    """Whether this version reads what a quantization of that name is mostly made of."""
    plain = label.removeprefix("UD-").removesuffix("_MOE")
    base = re.sub(r"(?<=_K)_(?:S|M|L|XL|XXL)$", "", plain)
    also = ("Q6_K",) if base in ("Q4_K", "Q5_K") else ()
    return all(name in READABLE for name in (base, *also))


def _named(name: str, there: tuple[Variant, ...], quant: str) -> Variant:
    """By quantization, in any capitals, or by the file's own name."""
    wanted = quant.lower().removesuffix(".gguf")
    names = {wanted, part_of(wanted)[0]}
    found = [
        v
        for v in there
        if v.label.lower() == wanted or names & {v.stem.lower(), PurePosixPath(v.stem).name.lower()}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CheckpointError(f"{name} has no {quant}: choose one of {table(there)}")
    stems = ", ".join(f"{PurePosixPath(v.stem).name} ({size_text(v.nbytes)})" for v in found)
    raise SeveralVariants(
        f"{name} has {len(found)} models in {quant}: name one as in "
        f"{name}:{PurePosixPath(found[0].stem).name}, out of {stems}",
        tuple(found),
    )


def _unnamed(name: str, there: tuple[Variant, ...], ask: bool) -> Variant:
    if len(there) == 1:
        return there[0]
    if not ask:
        for preferred in sorted(PREFERRED, key=lambda label: not runs_here(label)):
            found = [v for v in there if v.label == preferred and not v.missing]
            if len(found) == 1:
                return found[0]
    raise SeveralVariants(
        f"{name} has {len(there)} models: name one as in {name}:{there[0].label}, out of "
        f"{table(there)}",
        there,
    )


def _folder(found: Repository) -> Choice:
    """A safetensors model: its config, its text side and all its weights."""
    name = found.reference.repository
    top = [file for file in found.files if len(file.path.parts) == 1]
    weights = _weights(top)
    if not weights:
        elsewhere = [f for f in found.files if f.path.suffix in WEIGHTS]
        if found.pickles and not elsewhere:
            raise CheckpointError(
                f"{name} has its weights only in files such as {found.pickles[0]!r}, which run "
                "their maker's code when they are read: look for a GGUF or safetensors copy of it"
            )
        raise CheckpointError(f"{name} holds no model that can be read: no GGUF, no safetensors")
    text = [file for file in top if _TEXT.fullmatch(file.path.name)]
    if not any(file.path.name == "config.json" for file in text):
        raise CheckpointError(f"{name} has no config.json: it is no whole model, choose another")
    _, _, count = part_of(weights[0].path.stem)
    if count > len(weights):
        raise CheckpointError(
            f"{name} lacks {count - len(weights)} of {count} weight files: choose another"
        )
    notes = []
    if found.pickles:
        notes.append(
            f"{len(found.pickles)} other weight files such as {found.pickles[0]!r} are left out: "
            "only safetensors are safe to read"
        )
    text.sort(key=lambda file: (file.path.name != "config.json", file.path.name))
    return Choice(None, (*text, *weights), tuple(notes))


def _weights(top: list[RemoteFile]) -> list[RemoteFile]:
    """The files of the model itself where they have the usual names, or all there are."""
    files = sorted(
        (f for f in top if f.path.suffix == ".safetensors"), key=lambda file: file.path.name
    )
    usual = [file for file in files if _SHARD.fullmatch(file.path.name)]
    if any(file.path.name == INDEX for file in top):
        parts = [file for file in usual if file.path.name != "model.safetensors"]
        return parts or usual or files
    whole = [file for file in usual if file.path.name == "model.safetensors"]
    return whole or usual or [f for f in files if not f.path.name.startswith("adapter")]
