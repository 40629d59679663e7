"""Small quantized model folders in the layouts of the programs that write them, and their numbers.

Each method rounds a matrix in its own way, packs it as its program does, one word at a time, and
says which numbers it kept: those come from the rounding, not from what was packed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

Array = np.ndarray
Parts = dict[str, Tensor]  # by what follows the module's name
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the row of eight at each place of a word
NF4 = np.array(
    (
        *(-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1),
    ),
    np.float32,
)
FP4 = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3, -0.0, -0.0625, -8, -12, -4, -6, -2, -3], "f4") / 12


@dataclass(frozen=True)
class Method:
    """`config` goes into `quantization_config`; `write` packs (rows, columns) numbers."""

    config: dict[str, Any]
    write: Callable[[Array], tuple[Parts, Array]]
    files: dict[str, Any] = field(default_factory=dict)


def integers(
    values: Array, bits: int, group: int, scale_type: torch.dtype, index: Array, symmetric: bool
) -> tuple[Array, Array, Array, Array]:
    """Codes (rows, columns), scale and zero (rows, groups), and the numbers they stand for.

    `index` names the group of each column.
    """
    top, groups = (1 << bits) - 1, int(index.max()) + 1
    codes, kept = np.zeros(values.shape, np.int64), np.zeros(values.shape, np.float32)
    scales, zeros = (
        np.zeros((len(values), groups), np.float32),
        np.zeros((len(values), groups), int),
    )
    for g in range(groups):
        at = np.flatnonzero(index == g)
        part = values[:, at]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        step = 2 * np.abs(part).max(1) / top if symmetric else (high - low) / top
        scale = torch.tensor(step + 1e-6).to(scale_type).float().numpy()
        zero = np.full(len(values), (top + 1) // 2) if symmetric else np.rint(-low / scale)
        zero = np.clip(zero, 0, top).astype(int)
        codes[:, at] = np.clip(np.rint(part / scale[:, None]) + zero[:, None], 0, top)
        kept[:, at] = scale[:, None] * (codes[:, at] - zero[:, None]).astype(np.float32)
        scales[:, g], zeros[:, g] = scale, zero
    return codes, scales, zeros, kept


def words(codes: Array, bits: int) -> Tensor:
    """(n, m) codes -> (n, m / a word's) int32, the first code lowest."""
    per_word = 32 // bits
    packed = np.zeros((len(codes), codes.shape[1] // per_word), np.uint32)
    for place in range(per_word):
        packed |= codes[:, place::per_word].astype(np.uint32) << np.uint32(place * bits)
    return torch.from_numpy(packed.view(np.int32).copy())


def awq(group: int, scale_type: torch.dtype = torch.float16) -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        columns = values.shape[1]
        index = np.arange(columns) // (columns if group == -1 else group)
        codes, scale, zero, kept = integers(values, 4, group, scale_type, index, False)
        order = [
            8 * word + AWQ_ORDER[place] for word in range(len(codes) // 8) for place in range(8)
        ]
        return {
            ".qweight": words(codes.T[:, order], 4),
            ".qzeros": words(zero.T[:, order], 4),
            ".scales": torch.tensor(scale.T.copy()).to(scale_type),
        }, kept

    stated = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}
    return Method({**stated, "zero_point": True}, write)


def gptq(
    bits: int, group: int, *, act_order: bool = False, v2: bool = False, sym: bool = False
) -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        columns = values.shape[1]
        index = np.arange(columns) // (columns if group == -1 else group)
        if act_order:
            index = np.random.default_rng(columns).permutation(index)
        codes, scale, zero, kept = integers(values, bits, group, torch.float16, index, sym)
        stored_zero = zero if v2 else (zero - 1) & (1 << bits) - 1
        return {
            ".qweight": words(codes, bits).T.contiguous(),
            ".qzeros": words(stored_zero.T, bits),
            ".scales": torch.tensor(scale.T.copy()).half(),
            ".g_idx": torch.tensor(index, dtype=torch.int32),
            ".bias": torch.zeros(len(values), dtype=torch.float16),
        }, kept

    stated: dict[str, Any] = {"quant_method": "gptq", "bits": bits, "group_size": group}
    if v2:
        stated["checkpoint_format"] = "gptq_v2"
    return Method({**stated, "desc_act": act_order, "sym": sym}, write)


def compressed(
    form: str, weights: dict[str, Any], write: Callable[[Array], tuple[Parts, Array]]
) -> Method:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    stated = {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}
    return Method({**stated, "ignore": ["lm_head", "re:.*vision.*"]}, write)


def pack_quantized(
    bits: int, group: int | None, *, sym: bool = True, act_order: bool = False
) -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        rows, columns = values.shape
        index = np.arange(columns) // (group or columns)
        if act_order:
            index = np.random.default_rng(columns).permutation(index)
        codes, scale, zero, kept = integers(values, bits, 0, torch.bfloat16, index, sym)
        parts = {
            ".weight_packed": words(codes, bits),
            ".weight_scale": torch.tensor(scale).bfloat16(),
            ".weight_shape": torch.tensor([rows, columns]),
        }
        if not sym:
            parts[".weight_zero_point"] = words(zero.T, bits).T.contiguous()
        if act_order:
            parts[".weight_g_idx"] = torch.tensor(index, dtype=torch.int32)
        return parts, kept

    weights = {"num_bits": bits, "type": "int", "symmetric": sym, "group_size": group}
    if act_order:
        weights["actorder"] = "group"
    return compressed("pack-quantized", weights, write)


def int_quantized(group: int | None, *, sym: bool = True) -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        columns = values.shape[1]
        index = np.arange(columns) // (group or columns)
        codes, scale, zero, kept = integers(values, 8, 0, torch.float32, index, sym)
        parts = {
            ".weight": torch.tensor((codes - 128).astype(np.int8)),
            ".weight_scale": torch.tensor(scale),
            ".input_scale": torch.tensor([0.5]),
        }
        if not sym:
            parts[".weight_zero_point"] = torch.tensor((zero - 128).astype(np.int8))
        return parts, kept

    weights = {"num_bits": 8, "type": "int", "symmetric": sym, "group_size": group}
    return compressed("int-quantized", weights, write)


def floating(values: Array, scale: Array, dtype: torch.dtype) -> tuple[Tensor, Array]:
    """Codes of 8 bits, and their numbers; `scale` has a value for every number."""
    codes = torch.tensor(values / scale).to(dtype)
    return codes, codes.float().numpy() * scale


def float_quantized(per_row: bool) -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        largest = np.abs(values).max(1, keepdims=True) if per_row else np.abs(values).max()
        scale = torch.tensor(largest / 448).bfloat16().float().numpy()
        codes, kept = floating(values, np.broadcast_to(scale, values.shape), torch.float8_e4m3fn)
        stored = torch.tensor(scale if per_row else scale.reshape(1)).bfloat16()
        return {".weight": codes, ".weight_scale": stored}, kept

    weights = {"num_bits": 8, "type": "float", "strategy": "channel" if per_row else "tensor"}
    return compressed("float-quantized", weights, write)


def fp8_blocks(
    dtype: torch.dtype = torch.float8_e4m3fn, size: int = 128, e8m0: bool = False
) -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        rows, columns = values.shape
        scale = np.zeros((-(-rows // size), -(-columns // size)), np.float32)
        every = np.zeros(values.shape, np.float32)
        for i in range(len(scale)):
            for j in range(scale.shape[1]):
                at = slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size)
                scale[i, j] = np.abs(values[at]).max() / torch.finfo(dtype).max
                if e8m0:
                    scale[i, j] = 2 ** np.ceil(np.log2(scale[i, j]))
                every[at] = scale[i, j]
        codes, kept = floating(values, every, dtype)
        stored = torch.tensor(scale)
        return {
            ".weight": codes,
            ".weight_scale_inv": stored.to(torch.float8_e8m0fnu) if e8m0 else stored,
        }, kept

    return Method({"quant_method": "fp8", "weight_block_size": [size, size]}, write)


def fp8_tensor() -> Method:
    """A scale without a size, as modelopt writes it."""

    def write(values: Array) -> tuple[Parts, Array]:
        scale = np.float32(np.abs(values).max() / 448)
        codes, kept = floating(values, scale, torch.float8_e4m3fn)
        return {".weight": codes, ".weight_scale": torch.tensor(scale)}, kept

    return Method({"quant_method": "modelopt", "quant_algo": "FP8"}, write)


def code_book(kind: str, *, nested: bool, block: int = 64) -> Method:
    book = {"nf4": NF4, "fp4": FP4}[kind]

    def write(values: Array) -> tuple[Parts, Array]:
        flat = values.reshape(-1, block)
        absmax = np.abs(flat).max(1)
        parts: Parts = {}
        state = {"quant_type": kind, "blocksize": block, "shape": list(values.shape)}
        if nested:
            table = np.linspace(-1, 1, 256, dtype=np.float32)
            offset = float(np.float32(absmax.mean()))
            size = 4  # bitsandbytes has 256; so few that a tiny matrix has several
            found = np.zeros_like(absmax)
            stored = np.zeros(len(absmax), np.uint8)
            scales = []
            for start in range(0, len(absmax), size):
                part = absmax[start : start + size] - np.float32(offset)
                scale = np.float32(np.abs(part).max())
                stored[start : start + size] = np.abs(part[:, None] / scale - table).argmin(1)
                found[start : start + size] = table[stored[start : start + size]] * scale
                scales.append(scale)
            absmax = found + np.float32(offset)
            parts[".weight.nested_absmax"] = torch.tensor(np.array(scales))
            parts[".weight.nested_quant_map"] = torch.tensor(table)
            parts[".weight.absmax"] = torch.tensor(stored)
            state |= {"nested_blocksize": size, "nested_offset": offset}
        else:
            parts[".weight.absmax"] = torch.tensor(absmax)
        codes = np.abs(flat[..., None] / absmax[:, None, None] - book).argmin(-1)
        pairs = codes.reshape(-1, 2)
        parts[".weight"] = torch.tensor((pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8))
        parts[".weight.quant_map"] = torch.tensor(book)
        said = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
        parts[f".weight.quant_state.bitsandbytes__{kind}"] = torch.tensor(said)
        return parts, (book[codes] * absmax[:, None]).reshape(values.shape)

    stated = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}
    return Method({**stated, "bnb_4bit_use_double_quant": nested}, write)


def int8_rows() -> Method:
    def write(values: Array) -> tuple[Parts, Array]:
        largest = np.abs(values).max(1)
        codes = np.rint(values * (127 / largest)[:, None]).astype(np.int8)
        return {
            ".weight": torch.tensor(codes),
            ".SCB": torch.tensor(largest),
            ".weight_format": torch.tensor(0, dtype=torch.uint8),
        }, codes * (largest / np.float32(127))[:, None]

    return Method({"quant_method": "bitsandbytes", "load_in_8bit": True}, write)


METHODS: dict[str, Method] = {
    "awq-32": awq(32),
    "awq-64": awq(64),
    "awq-128": awq(128, torch.bfloat16),
    "awq-whole": awq(-1),
    "gptq-4": gptq(4, 64),
    "gptq-4-sym": gptq(4, 32, sym=True),
    "gptq-4-v2": gptq(4, 32, v2=True),
    "gptq-4-act-order": gptq(4, 32, act_order=True),
    "gptq-4-whole": gptq(4, -1, act_order=True),
    "gptq-8": gptq(8, 128),
    "gptq-8-act-order": gptq(8, 64, act_order=True),
    "packed-4": pack_quantized(4, 128),
    "packed-4-zeros": pack_quantized(4, 32, sym=False),
    "packed-4-rows": pack_quantized(4, None),
    "packed-4-act-order": pack_quantized(4, 64, act_order=True),
    "packed-8": pack_quantized(8, 64),
    "int-rows": int_quantized(None),
    "int-groups": int_quantized(128),
    "int-zeros": int_quantized(32, sym=False),
    "float-rows": float_quantized(True),
    "float-tensor": float_quantized(False),
    "fp8-blocks": fp8_blocks(),
    "fp8-small-blocks": fp8_blocks(size=64),
    "fp8-e5m2": fp8_blocks(torch.float8_e5m2),
    "fp8-e8m0": fp8_blocks(e8m0=True),
    "fp8-tensor": fp8_tensor(),
    "nf4": code_book("nf4", nested=False),
    "nf4-nested": code_book("nf4", nested=True),
    "nf4-128": code_book("nf4", nested=False, block=128),
    "fp4": code_book("fp4", nested=True),
    "int8-rows": int8_rows(),
}

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")


def is_linear(name: str) -> bool:
    """Whether a parameter of that name is quantized."""
    return name.endswith(tuple(f"{linear}.weight" for linear in (*LINEARS, *LATENT)))


def write_quantized(
    folder: Path, method: Method, config: dict[str, Any], values: dict[str, Array]
) -> dict[str, Array]:
    """A folder with `values` by stored name, its linear layers quantized; returns what it means."""
    folder.mkdir(parents=True)
    stored: Parts = {}
    meant: dict[str, Array] = {}
    for name, value in values.items():
        if is_linear(name):
            parts, meant[name] = method.write(value)
            stored |= {name.removesuffix(".weight") + end: part for end, part in parts.items()}
        else:
            stored[name] = torch.tensor(value)
            meant[name] = value
    save_file(stored, folder / "model.safetensors")
    whole = config | {"quantization_config": method.config}
    (folder / "config.json").write_text(json.dumps(whole))
    return meant
