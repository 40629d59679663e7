"""One tensor of a quantized repository, put together from the headers of its parts.

A function for each kind of parts; it finds out the shape, which columns share a scale, and the
canonical format, and refuses parts that do not belong together. Group indices are the only data
that is read. Knows nothing of configs and families.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from local_tp.checkpoint.canonical import Canonical, canonical_group
from local_tp.checkpoint.quant_state import quant_state
from local_tp.core import TensorInfo
from local_tp.errors import CheckpointError
from local_tp.tensors import Packing

_WORD = 32
_FLOAT_CODES = {"F8_E4M3": "E4M3", "F8_E5M2": "E5M2"}
_SCALES = ("F16", "BF16", "F32", "F8_E8M0")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the config says of all tensors. `group` columns share a scale, 0: those of a row do.

    `block` are rows and columns that do, where both are stated; `bits` those of a packed code.
    """

    bits: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    ordered: bool = False
    block: tuple[int, int] = (0, 0)
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """The parts that begin with one `name`, and the shape that the model has for it, if any."""

    name: str
    parts: Mapping[str, TensorInfo]
    stated: Stated
    shape: tuple[int, ...] | None = None

    def part(self, ending: str) -> TensorInfo:
        found = self.parts.get(ending)
        if found is None:
            raise CheckpointError(
                f"{self._file}: {self.name} has no {ending}: the model is incomplete, download it "
                "again"
            )
        return found

    def matrix(self, ending: str, dtype: str) -> tuple[int, int]:
        """The shape of a part that must have two sizes and this type."""
        found = self.part(ending)
        if len(found.shape) != 2 or found.format != dtype:
            raise self.wrong(ending, f"a matrix of {dtype}")
        rows, columns = found.shape
        return rows, columns

    def require(self, ending: str, shape: tuple[int, ...], *dtypes: str) -> None:
        found = self.part(ending)
        if found.shape != shape or found.format not in dtypes:
            raise self.wrong(ending, f"{' or '.join(dtypes)} {shape}")

    def wrong(self, ending: str, needed: str) -> CheckpointError:
        found = self.parts[ending]
        return CheckpointError(
            f"{self._file}: {self.name}.{ending} is {found.format} {found.shape}, and {needed} is "
            "needed: the model is damaged or of an unknown variant, choose another"
        )

    def refused(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self._file}: {self.name} {why}")

    def made(
        self,
        codes: str,
        scale: str,
        shape: tuple[int, int],
        packing: Packing,
        parts: Mapping[str, TensorInfo],
    ) -> TensorInfo:
        """The tensor as loading will give it."""
        group = canonical_group(packing.block[1], shape[1])
        if not group:
            raise self.refused(
                f"has a scale for every {packing.block[1]} columns, which is not supported: choose "
                "a model with groups of 32, 64 or 128"
            )
        stored = "F32" if scale == "F8_E8M0" else scale
        name = Canonical(codes, group, stored).name
        return placed(shape, name, packing, parts)

    @property
    def _file(self) -> str:
        return next(iter(self.parts.values())).file


def placed(
    shape: tuple[int, int], form: str, packing: Packing, parts: Mapping[str, TensorInfo]
) -> TensorInfo:
    """The tensor at the place of its codes, the first of `parts`."""
    codes = next(iter(parts.values()))
    return replace(codes, shape=shape, format=form, parts=dict(parts), packing=packing)


def awq(module: Module) -> TensorInfo:
    """`qweight` (columns, rows / 8), `qzeros` (groups, rows / 8), `scales` (groups, rows)."""
    columns, words = module.matrix("qweight", "I32")
    rows, (group, groups) = 8 * words, _groups(module, "scales", columns, 0)
    module.require("scales", (groups, rows), "F16", "BF16", "F32")
    module.require("qzeros", (groups, words), "I32")
    parts = {name: module.part(name) for name in ("qweight", "qzeros", "scales")}
    scale = parts["scales"].format
    return module.made("INT4", scale, (rows, columns), Packing("awq", (1, group)), parts)


def gptq(module: Module) -> TensorInfo:
    """`qweight` (columns / a word's, rows), `qzeros` (groups, rows / a word's), `scales` (groups,
    rows), `g_idx` (columns,)."""
    words, rows = module.matrix("qweight", "I32")
    bits, columns = _bits_and_columns(module, words, "g_idx")
    group, groups = _groups(module, "scales", columns, 0)
    module.require("scales", (groups, rows), "F16", "BF16", "F32")
    module.require("qzeros", (groups, -(-rows * bits // _WORD)), "I32")
    names = ["qweight", "qzeros", "scales"]
    ordered = _is_ordered(module, "g_idx", columns, group)
    parts = {name: module.part(name) for name in (*names, *(["g_idx"] if ordered else []))}
    packing = Packing(module.stated.layout, (1, group), ordered=ordered)
    return module.made(f"INT{bits}", parts["scales"].format, (rows, columns), packing, parts)


def packed(module: Module) -> TensorInfo:
    """`weight_packed` (rows, columns / a word's), `weight_scale` (rows, groups) and, where zeros
    are not the middle, `weight_zero_point` (rows / a word's, groups)."""
    rows, words = module.matrix("weight_packed", "I32")
    bits, columns = _bits_and_columns(module, words, "weight_g_idx")
    group, groups = _groups(module, "weight_scale", columns, 1)
    module.require("weight_scale", (rows, groups), "F16", "BF16", "F32")
    parts = {name: module.part(name) for name in ("weight_packed", "weight_scale")}
    if "weight_zero_point" in module.parts:
        module.require("weight_zero_point", (-(-rows * bits // _WORD), groups), "I32")
        parts["weight_zero_point"] = module.part("weight_zero_point")
    ordered = _is_ordered(module, "weight_g_idx", columns, group)
    if ordered:
        parts["g_idx"] = module.part("weight_g_idx")
    packing = Packing("packed", (1, group), ordered=ordered)
    scale = parts["weight_scale"].format
    return module.made(f"INT{bits}", scale, (rows, columns), packing, parts)


def coded_bytes(module: Module, scale_name: str) -> TensorInfo:
    """`weight` (rows, columns) in 8 bits, with a scale for the tensor, each row, groups of its
    columns or blocks of both."""
    weight, scale = module.part("weight"), module.part(scale_name)
    if len(weight.shape) != 2:
        raise module.wrong("weight", "a matrix")
    rows, columns = weight.shape
    if scale.format not in _SCALES:
        raise module.wrong(scale_name, " or ".join(_SCALES))
    block = _block(module, (rows, columns), scale_name)
    parts = {"weight": weight, "weight_scale": scale}
    zero = module.parts.get("weight_zero_point")
    if zero is not None and weight.format == "I8":
        module.require("weight_zero_point", scale.shape, "I8")
        parts["weight_zero_point"] = zero
    codes = _FLOAT_CODES.get(weight.format, "INT8")
    return module.made(codes, scale.format, (rows, columns), Packing("bytes", block), parts)


def int8_rows(module: Module) -> TensorInfo:
    """bitsandbytes' `weight` (rows, columns) and `SCB` (rows,)."""
    rows, columns = module.matrix("weight", "I8")
    module.require("SCB", (rows,), "F32")
    parts = {name: module.part(name) for name in ("weight", "SCB")}
    return module.made("INT8", "F32", (rows, columns), Packing("int8-rows", (1, columns)), parts)


def code_book(module: Module, book: str, state_name: str) -> TensorInfo:
    """bitsandbytes' `weight` (elements / 2, 1) and `weight.absmax`, which may be codes, too."""
    weight, absmax = module.part("weight"), module.part("weight.absmax")
    state = module.part(state_name)
    shape = module.shape or quant_state(state).shape
    if len(shape) != 2 or prod(shape) % 2 or weight.nbytes != prod(shape) // 2:
        raise module.wrong("weight", f"half a byte for each of {shape} elements")
    rows, columns = shape
    block, rest = divmod(rows * columns, prod(absmax.shape))
    if rest or columns % block:
        raise module.refused(
            f"has blocks of {block} elements that go over the ends of rows of {columns}, which is "
            "not supported: choose another model"
        )
    parts = {
        "weight": replace(weight, shape=(rows, columns // 2)),
        "absmax": replace(absmax, shape=(rows, columns // block)),
    }
    if absmax.format == "U8":
        parts["nested_absmax"] = module.part("weight.nested_absmax")
        parts["nested_quant_map"] = module.part("weight.nested_quant_map")
        parts["quant_state"] = state
        module.require("weight.nested_quant_map", (256,), "F32")
        if parts["nested_absmax"].format != "F32":
            raise module.wrong("weight.nested_absmax", "F32")
    elif absmax.format != "F32":
        raise module.wrong("weight.absmax", "F32 or U8")
    return module.made(book, "F32", (rows, columns), Packing("code-book", (1, block)), parts)


def mxfp4(module: Module) -> TensorInfo:
    """gpt-oss: `_blocks` (experts, rows, groups, 16) and `_scales` (experts, rows, groups)."""
    blocks, scales = module.part("_blocks"), module.part("_scales")
    if len(blocks.shape) != 4 or blocks.shape[3] != 16 or blocks.format != "U8":
        raise module.wrong("_blocks", "U8 (experts, rows, groups, 16)")
    module.require("_scales", blocks.shape[:3], "U8")
    experts, rows, groups, _ = blocks.shape
    parts = {
        "blocks": replace(blocks, shape=(experts * rows, groups * 16)),
        "scales": replace(scales, shape=(experts * rows, groups)),
    }
    return placed((experts * rows, groups * 32), "MXFP4", Packing("mxfp4", (1, 32)), parts)


def _groups(module: Module, name: str, columns: int, axis: int) -> tuple[int, int]:
    """Columns of a group and groups of a row, by what is stated and how many scales there are."""
    scale = module.part(name)
    if len(scale.shape) != 2:
        raise module.wrong(name, "a matrix")
    for group in module.stated.group:
        size = group or columns
        if -(-columns // size) == scale.shape[axis]:
            return size, scale.shape[axis]
    sizes = " or ".join(str(group or columns) for group in module.stated.group)
    raise module.wrong(name, f"a scale for every {sizes} of {columns} columns")


def _bits_and_columns(module: Module, words: int, index: str) -> tuple[int, int]:
    """Bits of a code and columns of the tensor, by its shape or else what is stated."""
    columns = None
    if module.shape is not None and len(module.shape) == 2:
        columns = module.shape[1]
    elif index in module.parts:
        columns = module.parts[index].shape[0]
    found = [b for b in (4, 8) if columns is not None and -(-columns * b // _WORD) == words]
    bits = next(iter(found), None) or next(iter(module.stated.bits), 0)
    if bits not in (4, 8):
        raise module.refused(
            f"is quantized to {bits} bits, which is not supported: choose a model with 4 or 8 bits"
        )
    return bits, columns if found and columns is not None else words * _WORD // bits


def _block(module: Module, shape: tuple[int, int], name: str) -> tuple[int, int]:
    """Rows and columns that share a scale."""
    rows, columns = shape
    scale = module.part(name).shape
    height, width = module.stated.block
    if height and width and scale == (-(-rows // height), -(-columns // width)):
        return height, width
    if prod(scale) == 1:
        return rows, columns
    if scale in ((rows,), (rows, 1)):
        return 1, columns
    if len(scale) == 2 and scale[0] == rows and columns % scale[1] == 0:
        return 1, columns // scale[1]
    raise module.wrong(name, f"one scale, {rows}, or one for each block of columns or of both")


def _is_ordered(module: Module, name: str, columns: int, group: int) -> bool:
    """Whether columns belong to groups in an order of their own; refuses impossible ones.

    All zeros say nothing, as many writers leave them: then it is as the config says.
    """
    groups = -(-columns // group)
    if name not in module.parts or groups == 1:
        return False
    module.require(name, (columns,), "I32")
    index = _integers(module.part(name))
    if not any(index):
        return module.stated.ordered
    if index == tuple(column // group for column in range(columns)):
        return False
    if min(index) < 0 or max(index) >= groups:
        raise module.refused(
            f"has a {name} of {min(index)} to {max(index)} for {groups} groups: the model is "
            "damaged, download it again"
        )
    if any(count != group for count in Counter(index).values()):
        raise module.refused(
            f"has groups of different sizes in {name}, which is not supported: choose another model"
        )
    return True


def _integers(info: TensorInfo) -> tuple[int, ...]:
    """The numbers of a small I32 vector. `OSError` passes through."""
    with Path(info.file).open("rb") as file:
        file.seek(info.offset)
        return struct.unpack(f"<{info.shape[0]}i", file.read(info.nbytes))
