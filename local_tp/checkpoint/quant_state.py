"""What bitsandbytes says of a 4-bit tensor: JSON that lies beside it as a tensor of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from local_tp.checkpoint.fields import Fields
from local_tp.core import TensorInfo
from local_tp.errors import CheckpointError

_LARGEST = 1 << 12


@dataclass(frozen=True, slots=True)
class QuantState:
    """`shape` and `block` of the tensor in elements; `nested_*` of its largest magnitudes."""

    shape: tuple[int, ...]
    block: int
    nested_block: int
    nested_offset: float


def quant_state(info: TensorInfo) -> QuantState:
    """Reads it. Raises `CheckpointError`; `OSError` passes through."""
    if info.nbytes > _LARGEST:
        raise CheckpointError(
            f"{info.file} is damaged: a quant_state of {info.nbytes:,} bytes; download it again"
        )
    with Path(info.file).open("rb") as file:
        file.seek(info.offset)
        fields = Fields.from_bytes(f"{info.file}, quant_state", file.read(info.nbytes))
    offset = fields.get("nested_offset") or 0.0
    if not isinstance(offset, int | float) or not -1e30 < offset < 1e30:
        raise fields.wrong("nested_offset", "a number")
    return QuantState(
        fields.integers("shape"),
        fields.integer("blocksize"),
        fields.integer("nested_blocksize", default=256),
        float(offset),
    )
