"""The quantized tensors of a model folder, each as one tensor with its parts.

Which method wrote them, the config says; what they are, the tensors say themselves, so that lists
of modules left out, and patterns for them, need not be followed. Knows nothing of families.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.formats import RAW_BYTES
from local_tp.checkpoint.packed_parts import (
    Module,
    Stated,
    awq,
    code_book,
    coded_bytes,
    gptq,
    int8_rows,
    mxfp4,
    packed,
)
from local_tp.core import TensorInfo
from local_tp.errors import CheckpointError

Shapes = Mapping[str, tuple[int, ...]]
_STATE = "weight.quant_state.bitsandbytes__"
_BOOKS = {_STATE + "nf4": "NF4", _STATE + "fp4": "FP4"}
_LARGEST_ZERO_BIAS = 1 << 20
_LARGEST_CONFIG = 1 << 20
_OLDER = {"quantize_config.json": "gptq", "quant_config.json": "awq"}

# Endings that say how activations and the cache were quantized, or what shapes say, too.
_NOT_NEEDED = (
    ".input_scale",
    ".input_zero_point",
    ".input_global_scale",
    ".output_scale",
    ".activation_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".weight_shape",
    ".weight_format",
    ".weight.quant_map",
)
_PARTS = (
    ".qweight",
    ".qzeros",
    ".scales",
    ".g_idx",
    ".weight",
    ".weight_packed",
    ".weight_scale",
    ".weight_scale_inv",
    ".weight_zero_point",
    ".weight_g_idx",
    ".weight.absmax",
    ".weight.nested_absmax",
    ".weight.nested_quant_map",
    ".SCB",
    *(f".{name}" for name in _BOOKS),
    "_blocks",
    "_scales",
)


def quantization(folder: Path, config: Fields) -> Fields | None:
    """What a folder says of its quantization: in its config, or in an older file beside it."""
    stated = config.inner("quantization_config")
    if stated is not None:
        return stated
    for name, method in _OLDER.items():
        if (folder / name).is_file():
            fields = Fields.from_json(folder / name, _LARGEST_CONFIG)
            return Fields(fields.source, {"quant_method": method, **fields.values})
    return None


def assembled(
    stated: Fields | None, stored: Mapping[str, TensorInfo], shapes: Shapes
) -> dict[str, TensorInfo]:
    """The tensors of `stored`, those of a quantized module put together as its `weight`.

    `stated` is what `quantization` found; `shapes` are those that the model has, by stored name.
    Raises `CheckpointError` for a method, a type or parts that cannot be read; `OSError` passes
    through.
    """
    method = None if stated is None else _read_method(stated)
    found = dict(stored) if method is None else _put_together(method, stored, shapes)
    for name, tensor in found.items():
        if tensor.format in RAW_BYTES:
            raise CheckpointError(
                f"{tensor.file}: tensor {shown(name)} is stored as {shown(tensor.format)}, which "
                "is not supported yet: use F32, F16 or BF16, or a GGUF file"
            )
    return found


def _put_together(
    stated: Stated, stored: Mapping[str, TensorInfo], shapes: Shapes
) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    modules: dict[str, dict[str, TensorInfo]] = {}
    for name, tensor in stored.items():
        ending = next((e for e in _PARTS if name.endswith(e)), None)
        if name.endswith(_NOT_NEEDED):
            continue
        if ending is None:
            found[name] = tensor
        else:
            modules.setdefault(name.removesuffix(ending), {})[ending.removeprefix(".")] = tensor
    for name, parts in modules.items():
        made = _assemble(Module(name, parts, stated, shapes.get(f"{name}.weight")))
        found |= {name if made.format == "MXFP4" else f"{name}.weight": made}
        if made.packing is not None and _is_zero_bias(found, f"{name}.bias", shapes):
            del found[f"{name}.bias"]
    return found


def _assemble(module: Module) -> TensorInfo:
    """The module's weight, by the parts that it has."""
    parts = module.parts
    if "qweight" in parts:
        return awq(module) if module.stated.layout == "awq" else gptq(module)
    if "weight_packed" in parts:
        return packed(module)
    if "_blocks" in parts or "_scales" in parts:
        return mxfp4(module)
    state = next((name for name in _BOOKS if name in parts), None)
    if state is not None:
        return code_book(module, _BOOKS[state], state)
    weight = module.part("weight")
    if weight.format == "I8" and "SCB" in parts:
        return int8_rows(module)
    if weight.format in ("I8", "F8_E4M3", "F8_E5M2"):
        inverse = "weight_scale_inv" in parts
        return coded_bytes(module, "weight_scale_inv" if inverse else "weight_scale")
    if len(parts) > 1:
        raise module.wrong("weight", "a quantized type beside its scales")
    return weight


def _is_zero_bias(found: Mapping[str, TensorInfo], name: str, shapes: Shapes) -> bool:
    """Whether there is a bias that the model does not have and that adds nothing.

    Early quantizers wrote one for every module.
    """
    bias = found.get(name)
    if bias is None or name in shapes or bias.nbytes > _LARGEST_ZERO_BIAS:
        return False
    with Path(bias.file).open("rb") as file:
        file.seek(bias.offset)
        return not any(file.read(bias.nbytes))


# ------------------------------------------------------------------------------ the methods


def _read_method(stated: Fields) -> Stated:
    method = stated.text("quant_method") or "none"
    read = _METHODS.get(method)
    if read is None:
        known = ", ".join(_METHODS)
        raise CheckpointError(
            f"{stated.source} says that the weights are quantized by {shown(method)}, which is not "
            f"supported: choose a model quantized by {known}, a GGUF, or the unquantized model"
        )
    return read(stated)


def _awq(stated: Fields) -> Stated:
    version = (stated.text("version") or "gemm").lower()
    if version != "gemm":
        raise stated.wrong("version", "'gemm' (choose a model in AWQ's GEMM layout)")
    bits = stated.integer("bits", default=stated.integer("w_bit", default=4))
    if bits != 4:
        raise stated.wrong("bits", "4")
    key = "group_size" if stated.get("group_size") is not None else "q_group_size"
    return Stated((4,), (_group(stated, key),), layout="awq")


def _gptq(stated: Fields) -> Stated:
    layout = stated.text("checkpoint_format") or "gptq"
    if stated.get("is_marlin_format") is True or layout not in ("gptq", "gptq_v2"):
        key = "checkpoint_format" if stated.get("checkpoint_format") else "is_marlin_format"
        raise stated.wrong(key, "'gptq' or 'gptq_v2' (choose a model that was not packed again)")
    bits = stated.integer("bits", default=4)
    if bits not in (4, 8):
        raise stated.wrong("bits", "4 or 8")
    ordered = stated.flag("desc_act", default=False)
    return Stated((bits,), (_group(stated, "group_size"),), ordered, layout=layout)


def _group(stated: Fields, key: str) -> int:
    """Columns that share a scale, or 0 where all of a row do."""
    size = stated.get(key)
    if size == -1:
        return 0
    return stated.integer(key, default=128)


_COMPRESSED = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mixed-precision",
    "dense",
)


def _compressed_tensors(stated: Fields) -> Stated:
    if stated.get("transform_config"):
        raise stated.wrong("transform_config", "none (choose a model without rotations)")
    sparsity = stated.inner("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in (None, "dense"):
        raise sparsity.wrong("format", "'dense' (choose a model that is not sparse)")
    groups = stated.inner("config_groups")
    if groups is None:
        raise stated.wrong("config_groups", "an object (choose another model)")
    bits: dict[int, None] = {}
    sizes: dict[int, None] = {}
    block = (0, 0)
    for group in (stated, *filter(None, map(groups.inner, groups.values))):
        if group.text("format") not in (None, *_COMPRESSED):
            raise group.wrong("format", " or ".join(_COMPRESSED[:4]))
        weights = group.inner("weights")
        if weights is None:
            continue
        bits[weights.integer("num_bits", default=8)] = None
        whole_rows = weights.get("group_size") in (None, -1)
        sizes[0 if whole_rows else weights.integer("group_size")] = None
        block = _both(weights, "block_structure") or block
    return Stated(tuple(bits), tuple(sizes), block=block)


def _fp8(stated: Fields) -> Stated:
    if stated.text("fmt") not in (None, "e4m3", "float8_e4m3fn", "e5m2", "float8_e5m2"):
        raise stated.wrong("fmt", "'e4m3' or 'e5m2'")
    return Stated(block=_both(stated, "weight_block_size") or (0, 0))


def _both(stated: Fields, key: str) -> tuple[int, int] | None:
    sizes = stated.integers(key)
    if not sizes:
        return None
    if len(sizes) != 2 or min(sizes) < 1:
        raise stated.wrong(key, "two sizes of 1 or more")
    return sizes[0], sizes[1]


def _modelopt(stated: Fields) -> Stated:
    if stated.text("quant_algo") not in (None, "FP8"):
        raise stated.wrong("quant_algo", "'FP8'")
    return Stated()


_METHODS: dict[str, Callable[[Fields], Stated]] = {
    "awq": _awq,
    "gptq": _gptq,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": lambda _: Stated(),
    "modelopt": _modelopt,
    "bitsandbytes": lambda _: Stated(),
    "mxfp4": lambda _: Stated(),
}
