"""What a model is, from its headers alone: sizes, formats, licence, and whether it would load.

Knows nothing of where it lies or of memory on devices. What cannot be told is `None`, with the
reason among the notes; a format or a family that this version cannot run is described all the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TypeVar

from local_tp.checkpoint.fields import LARGEST_COUNT, Fields, shown
from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.gguf_header import GgufHeader, format_name
from local_tp.checkpoint.gguf_parts import parts
from local_tp.checkpoint.gguf_shape import spec_from_gguf
from local_tp.checkpoint.hub.found import CONFIG, damage
from local_tp.checkpoint.hub.names import one_line
from local_tp.checkpoint.planned import planned_model
from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.checkpoint.shapes import active_count, parameter_count
from local_tp.core import ModelSpec
from local_tp.errors import CheckpointError

LARGEST_SAFETENSORS_HEADER = 1 << 24  # of one file: about 100,000 tensors
_LARGEST_SMALL = 1 << 24
_CARD = 1 << 16
_LICENCE = re.compile(r"^license:[ \t]*['\"]?([^'\"\r\n]+)", re.MULTILINE)
_PLAIN = {"I8": 1, "I16": 2, "I32": 4, "I64": 8, "F64": 8}  # bytes of what is no weight format

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model as its headers state it. `formats` are bytes by the name of their format.

    `refusal` is what loading would say where this version cannot run it. `spec` has the sizes,
    for counting memory.
    """

    name: str
    family: str
    files: tuple[tuple[str, int], ...]
    formats: dict[str, int]
    parameters: int | None
    active: int | None
    licence: str | None
    chat_template: bool
    refusal: str | None
    spec: ModelSpec | None
    notes: tuple[str, ...] = field(default=())

    @property
    def nbytes(self) -> int:
        return sum(self.formats.values())


def inspect(path: Path, name: str, licence: str | None = None) -> Inspection:
    """Reads the headers of a GGUF file or a model folder. Raises `CheckpointError`.

    `licence` is what somebody else says, such as the hub; the model's own word goes before it.
    """
    try:
        found = _folder(path, name) if path.is_dir() else _gguf(path, name)
    except OSError as error:
        raise CheckpointError(f"cannot read {name}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise CheckpointError(_without(str(error), path, name)) from error
    said = None if found.refusal is None else _without(found.refusal, path, name)
    notes = tuple(_without(note, path, name) for note in found.notes)
    return replace(found, refusal=said, notes=notes, licence=found.licence or licence)


def inspect_known(spec: ModelSpec) -> Inspection:
    """A model that is known by its shape alone."""
    formats: Counter[str] = Counter()
    for info in spec.tensors.values():
        formats[info.format] += info.nbytes
    refusal = "it is known here by its shape alone: fetch a GGUF file or a folder of it"
    return Inspection(
        spec.name,
        spec.family,
        (),
        dict(formats),
        parameter_count(spec),
        active_count(spec),
        None,
        False,
        refusal,
        spec,
    )


def _without(text: str, path: Path, name: str) -> str:
    """A line about a file that may be gone already, by the name that a person gave it."""
    return text.replace(f"{path}: ", f"{name}: ").replace(str(path), name)


# ------------------------------------------------------------------------------------- GGUF


def _gguf(path: Path, name: str) -> Inspection:
    headers = parts(path)
    metadata = headers[0].metadata
    family = metadata.text("general.architecture") or "none"
    formats, elements, notes = _entries(headers)
    spec, why = _told(_attempt(lambda: spec_from_gguf(path)))
    licence = metadata.text("general.license")
    template = metadata.text("tokenizer.chat_template")
    loaded = _attempt(lambda: read_gguf(path))
    return Inspection(
        name=name,
        family=family,
        files=tuple((Path(header.metadata.source).name, header.size) for header in headers),
        formats=dict(formats),
        parameters=elements,
        active=elements - _idle(spec) if spec else None,
        licence=one_line(licence) if licence else None,
        chat_template=bool(template),
        refusal=str(loaded) if isinstance(loaded, CheckpointError) else None,
        spec=spec,
        notes=(*notes, *why, *(() if isinstance(loaded, CheckpointError) else loaded[0].left_out)),
    )


def _entries(headers: list[GgufHeader]) -> tuple[Counter[str], int, list[str]]:
    """Bytes by format, the number of elements, and what could not be counted."""
    formats: Counter[str] = Counter()
    elements, uncounted = 0, set()
    for header in headers:
        for entry in header.entries:
            form, rows = format_name(entry.kind), prod(entry.dims[1:])
            elements += prod(entry.dims)
            if form in FORMATS:
                formats[form] += FORMATS[form].nbytes(rows, entry.dims[0])
            elif form in _PLAIN:
                formats[form] += rows * entry.dims[0] * _PLAIN[form]
            else:
                uncounted.add(form)
    held = sum(header.size - header.start for header in headers)
    if sum(formats.values()) > held:
        raise CheckpointError(
            f"{headers[0].metadata.source} holds {held:,} bytes of weights and its table calls for "
            f"{sum(formats.values()):,}: it is incomplete; download it again"
        )
    notes = [f"bytes stored as {', '.join(sorted(uncounted))} are not counted"] if uncounted else []
    return formats, elements, notes


def _told(spec: ModelSpec | CheckpointError) -> tuple[ModelSpec | None, tuple[str, ...]]:
    """The sizes and what does not count among them, or a note of why there are none."""
    if isinstance(spec, CheckpointError):
        return None, (f"memory cannot be told: {spec}",)
    return spec, spec.left_out


def _idle(spec: ModelSpec) -> int:
    """Numbers of routed experts that a token does not meet."""
    return parameter_count(spec) - active_count(spec)


# ----------------------------------------------------------------------- a folder of the hub


def _folder(folder: Path, name: str) -> Inspection:
    config = Fields.from_json(folder / CONFIG, _LARGEST_SMALL)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} has no .safetensors files: fetch them with the model")
    formats: Counter[str] = Counter()
    elements = 0
    for file in files:
        for dtype, nbytes, count in _tensors(file):
            formats[dtype] += nbytes
            elements += count
    loaded = _attempt(lambda: read_folder(folder))
    read = loaded if isinstance(loaded, ModelSpec) else _planned(folder)
    spec, notes = _told(read)
    method = config.inner("quantization_config")
    parameters: int | None = elements
    if method is not None:  # several numbers share an element, and scales are elements, too
        parameters = parameter_count(spec) if spec else None
        notes = (*notes, f"quantized: {shown(method.get('quant_method'))}")
    return Inspection(
        name=name,
        family=_family(config),
        files=tuple((file.name, file.stat().st_size) for file in files),
        formats=dict(formats),
        parameters=parameters,
        active=parameters - _idle(spec) if spec and parameters else None,
        licence=_card_licence(folder),
        chat_template=_has_template(folder),
        refusal=str(loaded) if isinstance(loaded, CheckpointError) else None,
        spec=spec,
        notes=notes,
    )


def _planned(folder: Path) -> ModelSpec | CheckpointError:
    return _attempt(lambda: planned_model(str(folder)))


def _tensors(file: Path) -> list[tuple[str, int, int]]:
    """(dtype, bytes, elements) of every tensor, checked against the file's size."""
    why = damage(file)
    if why is not None:
        raise CheckpointError(f"{why}: download it again")
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(0)
        length = int.from_bytes(opened.read(8), "little")
        if length > LARGEST_SAFETENSORS_HEADER:
            raise CheckpointError(f"{file} claims a header of {length:,} bytes: it is refused")
        header = Fields.from_bytes(str(file), opened.read(length))
    made = []
    for tensor in header.values:
        entry = None if tensor == "__metadata__" else header.inner(tensor)
        if entry is None:
            continue
        offsets, shape = entry.integers("data_offsets"), entry.integers("shape")
        if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] <= size - 8 - length:
            raise CheckpointError(
                f"{file}: tensor {shown(tensor)} lies outside the file: it is incomplete; download "
                "it again"
            )
        if not all(0 <= extent <= LARGEST_COUNT for extent in shape) or len(shape) > 8:
            raise entry.wrong("shape", "at most 8 sizes of 0 or more")
        made.append((entry.text("dtype") or "none", offsets[1] - offsets[0], prod(shape)))
    return made


def _family(config: Fields) -> str:
    architectures = config.texts("architectures")
    return config.text("model_type") or (architectures[0] if architectures else "none")


def _card_licence(folder: Path) -> str | None:
    """As the model card's front matter states it."""
    try:
        with (folder / "README.md").open("rb") as file:
            text = file.read(_CARD).decode(errors="replace")
    except OSError:  # many have none
        return None
    front = text.split("\n---", 1)[0] if text.startswith("---") else ""
    match = _LICENCE.search(front)
    return one_line(match[1]) if match else None


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    file = folder / "tokenizer_config.json"
    return file.is_file() and bool(Fields.from_json(file, _LARGEST_SMALL).get("chat_template"))


def _attempt(read: Callable[[], Read]) -> Read | CheckpointError:
    """What is read, or why it cannot be."""
    try:
        return read()
    except CheckpointError as error:
        return error
