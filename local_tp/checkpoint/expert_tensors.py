"""The tensors of routed experts as one for all experts of a layer, however a folder keeps them.

Knows nothing of families but their rows. Experts that are stored apart, under numbers, become a
stack without the number; matrices that are stored the other way round get to know it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from local_tp.checkpoint.families import Naming
from local_tp.checkpoint.fields import shown
from local_tp.core import TensorInfo
from local_tp.errors import CheckpointError

Stored = Mapping[str, TensorInfo]

_NUMBERED = re.compile(r"(.+\.experts\.)(\d{1,5})\.(.+)")
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


def gathered(source: str, naming: Naming, stored: Stored) -> dict[str, TensorInfo]:
    """`stored` with one tensor where a layer's experts have one each.

    Raises `CheckpointError` where experts are missing or unlike one another.
    """
    found: dict[str, TensorInfo] = {}
    apart = defaultdict[str, dict[int, TensorInfo]](dict)
    for name, tensor in stored.items():
        match = _NUMBERED.fullmatch(name)
        if match is None:
            found[name] = _turned(naming, name, tensor)
        else:
            apart[match[1] + match[3]][int(match[2])] = tensor
    for name, experts in apart.items():
        if name in found:
            raise CheckpointError(
                f"{source} has tensor {shown(name)} whole and expert by expert: keep the files of "
                "one model in the folder"
            )
        found[name] = _stacked(source, name, experts)
    return found


def _stacked(source: str, name: str, experts: Mapping[int, TensorInfo]) -> TensorInfo:
    missing = next((number for number in range(len(experts)) if number not in experts), None)
    if missing is not None:
        raise CheckpointError(
            f"{source} has no tensor of expert {missing} for {shown(name)}: the model is "
            "incomplete, download it again"
        )
    members = [experts[number] for number in range(len(experts))]
    first = members[0]
    other = next((m for m in members if (m.shape, m.format) != (first.shape, first.format)), None)
    if other is not None:
        raise CheckpointError(
            f"{source} has experts in {shown(name)} as {first.format} {first.shape} and as "
            f"{other.format} {other.shape}: choose a model whose experts are alike"
        )
    return replace(
        first,
        shape=(len(members) * first.shape[0], *first.shape[1:]),
        nbytes=sum(member.nbytes for member in members),
        parts={},
        packing=None,
        stack=tuple(members),
    )


def _turned(naming: Naming, name: str, tensor: TensorInfo) -> TensorInfo:
    """A tensor (experts or heads, columns, rows) as one of (experts x rows, columns)."""
    plain = tensor.packing is None and len(tensor.shape) == 3
    if not plain or _LAYER.sub("{i}", name, count=1) not in naming.transposed:
        return tensor
    experts, columns, rows = tensor.shape
    matrices = replace(tensor, shape=(experts * columns, rows))
    return replace(tensor, shape=(experts * rows, columns), columns_of=matrices)
