"""The stored tensors of a file under their canonical names, each where and how it lies.

Knows nothing of families but their rows. A checkpoint must have exactly the tensors that its sizes
call for, so that no weight is missing or silently unused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from local_tp.checkpoint.families import Family, Naming
from local_tp.checkpoint.fields import shown
from local_tp.checkpoint.formats import FORMATS
from local_tp.core import EMPTY, ModelSpec, Span, TensorInfo
from local_tp.errors import CheckpointError
from local_tp.traits import ROPE_FACTORS

Stored = Mapping[str, TensorInfo]

_PREDICTION = "multi-token prediction"
# Parts of models that see or hear, by how their tensors' names begin.
_OTHERS = {
    "model.visual.": "vision part",
    "visual.": "vision part",
    "vision_tower.": "vision part",
    "vision_model.": "vision part",
    "model.vision_tower.": "vision part",
    "model.embed_vision.": "vision part",
    "multi_modal_projector.": "vision part",
    "model.multi_modal_projector.": "vision part",
    "mm_projector.": "vision part",
    "model.mm_projector.": "vision part",
    "model.audio_tower.": "audio part",
    "model.embed_audio.": "audio part",
    "mtp.": _PREDICTION,
    "model.mtp_": _PREDICTION,
}
_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")
_PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
_ROTATED = ("q", "k", "q_bias", "k_bias", "kv_down")


def arrange(
    source: str, family: Family, naming: Naming, stored: Stored, wanted: ModelSpec
) -> dict[str, TensorInfo]:
    """The stored tensors by canonical name, in the order of the forward pass.

    `wanted` has every tensor that the model's sizes call for. Each must be there in that shape, and
    no other tensor may be there: an unknown one would be left out of the maths. Raises
    `CheckpointError` for the first wrong one.
    """
    arranged: dict[str, TensorInfo] = {}
    used: set[str] = set()
    for name, expected in _expected(naming, stored, wanted):
        place = _place(naming, stored, wanted, name)
        if place is None:
            raise CheckpointError(
                f"{source} has no tensor {_stored_name(naming, name)!r}: the model is incomplete, "
                "download it again"
            )
        whole, members, groups = place
        used.add(whole)
        tensor = _rows_of_one(stored[whole], len(expected.shape))
        if members:
            shapes = [wanted.tensors[m].shape for m in members]
            tensor = _member(tensor, shapes, members.index(name), groups)
        if tensor.shape != expected.shape:
            raise CheckpointError(
                f"{source}: tensor {whole!r} has the shape {tensor.shape} and the model's "
                f"dimensions call for {expected.shape}: the file is damaged, download it again"
            )
        arranged[name] = _as_kept(naming, wanted, name, tensor)
    if wanted.traits.tied_head:
        used.add(naming.names["head"])  # some exporters write the embedding a second time
    for name in stored:
        if name not in used and not name.endswith(naming.unused):
            raise CheckpointError(
                f"{source} has a tensor {shown(name)}, which the family {family.name} "
                "does not use: this variant is not supported yet, choose another model"
            )
    return arranged


def stored_shapes(naming: Naming, wanted: ModelSpec) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that the model has, by the names that a file may give them."""
    found: dict[str, tuple[int, ...]] = {}
    for name, expected in wanted.tensors.items():
        template, index = _template(name)
        if template in naming.names:
            found[_stored_name(naming, name)] = expected.shape
        for fused, members in naming.fused.items():
            if template in members:
                parts = [wanted.tensors[member.format(i=index)].shape for member in members]
                found[fused.format(i=index)] = (sum(part[0] for part in parts), *parts[0][1:])
    return found


def text_part(
    stored: Stored, predictors: Span = EMPTY
) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """The tensors of a model's text part, named as if there were no other, and what is left out.

    `predictors` are the numbers of layers that predict the tokens after the next.
    """
    kept, parts = {}, set[str]()
    for name, tensor in stored.items():
        other = next((part for start, part in _OTHERS.items() if name.startswith(start)), None)
        if other is not None:
            parts.add(other)
            continue
        prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
        plain = _PREFIXES.get(prefix, "") + name.removeprefix(prefix)
        layer = _LAYER.match(plain)
        if layer is not None and int(layer[1]) in predictors:
            parts.add(_PREDICTION)
            continue
        kept[plain] = tensor
    return kept, tuple(f"its {part} is not loaded" for part in sorted(parts))


def _expected(
    naming: Naming, stored: Stored, wanted: ModelSpec
) -> Iterator[tuple[str, TensorInfo]]:
    hidden = wanted.tensors["norm"].shape
    for name, expected in wanted.tensors.items():
        yield name, expected
        bias = f"{name}_bias"  # of the output projection: configs do not tell it apart
        known = bias in wanted.tensors or not name.endswith(".o")
        if not known and _stored_name(naming, bias) in stored:
            yield bias, TensorInfo(hidden, "F32", 4 * hidden[0], "", 0)
    size = wanted.traits.ropes[0].size or wanted.dimensions.head_dim
    for name in ROPE_FACTORS:
        if naming.names.get(name) in stored:
            yield name, TensorInfo((size // 2,), "F32", 2 * size, "", 0)


def _template(name: str) -> tuple[str, str]:
    """A canonical name without its layer's number, and that number."""
    if not name.startswith("layers."):
        return name, ""
    _, index, role = name.split(".", 2)
    return f"layers.{{i}}.{role}", index


def _stored_name(naming: Naming, name: str) -> str:
    template, index = _template(name)
    fused = (whole for whole, members in naming.fused.items() if template in members)
    return (naming.names.get(template) or next(fused, template)).format(i=index)


def _place(
    naming: Naming, stored: Stored, wanted: ModelSpec, name: str
) -> tuple[str, tuple[str, ...], int] | None:
    """The stored tensor that has this one, the canonical names of all that lie in it, and in how
    many groups of rows they do."""
    template, index = _template(name)
    alone = naming.names.get(template, "").format(i=index)
    if alone in stored:
        return alone, (), 1
    for fused, members in naming.fused.items():
        if template in members and (whole := fused.format(i=index)) in stored:
            groups = naming.grouped[fused](wanted, index) if fused in naming.grouped else 1
            return whole, tuple(member.format(i=index) for member in members), groups
    return None


def _rows_of_one(tensor: TensorInfo, dimensions: int) -> TensorInfo:
    """Several matrices or vectors in one tensor as one of them, since files have them so."""
    if dimensions == 1 and tensor.shape[-1] > 1:
        return replace(tensor, shape=(prod(tensor.shape),))
    if len(tensor.shape) < 3:
        return tensor
    return replace(tensor, shape=(prod(tensor.shape[:-1]), tensor.shape[-1]))


def _member(
    tensor: TensorInfo, shapes: list[tuple[int, ...]], at: int, groups: int = 1
) -> TensorInfo:
    """One of several matrices that are stored as one, whole rows of it or of each group there."""
    rows, columns = [shape[0] for shape in shapes], shapes[at][1:]
    if tensor.shape != (sum(rows), *columns):
        return tensor
    first = sum(rows[:at]) // groups
    if groups > 1:
        tensor = replace(tensor, run=rows[at] // groups, step=sum(rows) // groups)
    if tensor.packing is not None:
        packing = replace(tensor.packing, first=tensor.packing.first + first)
        return replace(tensor, shape=shapes[at], packing=packing)
    form = FORMATS[tensor.format]
    row = form.nbytes(1, prod(columns))
    apart = row if tensor.columns_of is None else form.nbytes(1, 1)
    return replace(
        tensor, shape=shapes[at], nbytes=rows[at] * row, offset=tensor.offset + first * apart
    )


def _as_kept(naming: Naming, wanted: ModelSpec, name: str, tensor: TensorInfo) -> TensorInfo:
    """What the row of the family says of the order and the origin of the numbers."""
    template, index = _template(name)
    role = template.rpartition(".")[2]
    if naming.paired and index and role in _ROTATED:
        d, ropes = wanted.dimensions, wanted.traits.ropes
        kind = wanted.kind(int(index))
        count = d.query_heads if role.startswith("q") else d.kv_heads
        head = tensor.shape[0] // (1 if role == "kv_down" else count)
        rotated = ropes[max(0, kind.rope)].size or wanted.dimensions.head_dim
        before = head - rotated if d.kv_row else 0
        return replace(tensor, paired=rotated, unpaired=before, head=head)
    if naming.shifted and role.endswith("norm") and role != "mix_norm":
        return replace(tensor, shifted=True)
    return tensor
