"""Each expert of a rank gets its own rows of a file, however the file keeps the experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from block_writer import quantized
from gguf import GGMLQuantizationType as Kind

from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import Shape, spec_of
from local_tp.core import EMPTY, Dtype, ModelSpec, Placement, Span, TensorInfo
from local_tp.load.loader import Loading
from local_tp.load.stored import opened
from local_tp.model.blocks import Blocks, Stacked
from local_tp.model.expert_matrices import matrices_of
from local_tp.model.linear import Dense, Int4, Int8, Linear
from local_tp.model.processor import learn_processor
from local_tp.plan.layout import Parameter, parameters

EXPERTS, HIDDEN, FFN = 5, 256, 320
MINE = Span(2, 5)
SHAPE = Shape(
    layers=1, hidden=HIDDEN, heads=1, head_dim=32, vocab=64, context=64, feeds="E",
    experts=EXPERTS, active_experts=2, expert_ffn=FFN,
)  # fmt: skip
PLACEMENT = Placement(0, "cpu", 0, Span(0, 1), EMPTY, EMPTY, EMPTY, EMPTY, experts=MINE)
ROLES = ("gate", "up", "down")
SIZES = {"gate": (FFN, HIDDEN), "up": (FFN, HIDDEN), "down": (HIDDEN, FFN)}

Numbers = dict[str, np.ndarray]  # (experts, rows, columns) by role
Write = Callable[[Path, Numbers], dict[str, TensorInfo]]


def random() -> Numbers:
    generator = np.random.default_rng(7)
    return {
        role: generator.standard_normal((EXPERTS, *size)).astype(np.float32)
        for role, size in SIZES.items()
    }


def written(path: Path, stored: np.ndarray, shape: tuple[int, ...], form: str) -> TensorInfo:
    """A file of these bytes behind ten others."""
    raw = np.ascontiguousarray(stored).tobytes()
    path.write_bytes(bytes(10) + raw)
    return TensorInfo(shape, form, len(raw), str(path), 10)


def stacked_as(form: str, numbers: Numbers, role: str, folder: Path) -> TensorInfo:
    """One tensor of all experts; `numbers` become what the format makes of them."""
    rows, columns = SIZES[role]
    stored = quantized(numbers[role].reshape(-1, columns), form)
    known = gguf.dequantize(stored, Kind[form]).astype(np.float32)
    numbers[role] = known.reshape(EXPERTS, rows, columns)
    return written(folder / role, stored, (EXPERTS * rows, columns), form)


def stacked(**forms: str) -> Write:
    return lambda folder, numbers: {
        role: stacked_as(forms[role], numbers, role, folder) for role in ROLES
    }


def fused(folder: Path, numbers: Numbers) -> dict[str, TensorInfo]:
    """The gate of an expert above its up, then the next expert's."""
    both = np.concatenate((numbers["gate"], numbers["up"]), 1)
    whole = written(folder / "both", both, (EXPERTS * FFN, HIDDEN), "F32")
    whole = replace(whole, run=FFN, step=2 * FFN)
    return {
        "gate": whole,
        "up": replace(whole, offset=whole.offset + FFN * HIDDEN * 4),
        "down": stacked_as("F32", numbers, "down", folder),
    }


def transposed(folder: Path, numbers: Numbers) -> dict[str, TensorInfo]:
    """Columns of gate and up take turns in an expert's (hidden, 2 ffn); down is (ffn, hidden)."""
    both = np.stack((numbers["gate"], numbers["up"]), 2).reshape(EXPERTS, 2 * FFN, HIDDEN)
    lying = both.transpose(0, 2, 1)
    whole = written(folder / "both", lying, (EXPERTS * HIDDEN, 2 * FFN), "F32")
    gate = replace(whole, shape=(EXPERTS * FFN, HIDDEN), columns_of=whole, run=1, step=2)
    down = numbers["down"].transpose(0, 2, 1)
    below = written(folder / "down", down, (EXPERTS * FFN, HIDDEN), "F32")
    return {
        "gate": gate,
        "up": replace(gate, offset=gate.offset + 4),
        "down": replace(below, shape=(EXPERTS * HIDDEN, FFN), columns_of=below),
    }


def apart(folder: Path, numbers: Numbers) -> dict[str, TensorInfo]:
    """A file each; those of other ranks' experts are not there."""
    found = {}
    for role, (rows, columns) in SIZES.items():
        members = [
            written(folder / f"{role}{expert}", numbers[role][expert], (rows, columns), "F32")
            for expert in range(EXPERTS)
        ]
        for expert in set(range(EXPERTS)) - set(range(*MINE)):
            Path(members[expert].file).unlink()
        shape = (EXPERTS * rows, columns)
        found[role] = replace(members[0], shape=shape, stack=tuple(members))
    return found


def layout(
    tensors: dict[str, TensorInfo], dtype: Dtype = "auto"
) -> tuple[ModelSpec, list[Parameter]]:
    spec = spec_of(SHAPE, "small", "small", mix("F32"))
    placed = {f"layers.0.experts_{role}": info for role, info in tensors.items()}
    spec = replace(spec, tensors=spec.tensors | placed)
    everything = parameters(spec, PLACEMENT, dtype, "cpu")
    return spec, [p for p in everything if ".experts_" in p.name]


def numbers_of(linear: Linear) -> np.ndarray:
    """(rows, columns): exact if plain or as stored, else its product with one."""
    if isinstance(linear, Stacked):
        return np.concatenate([numbers_of(part) for part in linear.parts])
    if isinstance(linear, Int4):
        return np.asarray(linear(torch.eye(linear.shape[1])).float().T.numpy())
    rows = {Dense: "weight", Int8: "codes", Blocks: "stored"}[type(linear)]
    return np.asarray(linear.rows(torch.arange(len(getattr(linear, rows)))).numpy())


CASES: dict[str, tuple[Write, Dtype, tuple[type, type], float]] = {
    "Q4_K, Q6_K and MXFP4": (
        stacked(gate="Q4_K", up="Q6_K", down="MXFP4"), "stored", (Stacked, Blocks), 0.0
    ),
    "Q4_0": (stacked(gate="Q4_0", up="Q4_0", down="Q4_0"), "auto", (Int4, Int4), 1e-2),
    "Q8_0": (stacked(gate="Q8_0", up="Q8_0", down="Q8_0"), "auto", (Int8, Int8), 1e-2),
    "BF16": (stacked(gate="BF16", up="BF16", down="BF16"), "auto", (Dense, Dense), 0.0),
    "gate and up of an expert in one": (fused, "float32", (Dense, Dense), 0.0),
    "the other way round": (transposed, "float32", (Dense, Dense), 0.0),
    "apart": (apart, "float32", (Dense, Dense), 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_an_expert_gets_its_numbers(name: str, tmp_path: Path) -> None:
    write, dtype, held, tolerance = CASES[name]
    numbers = random()
    spec, wanted = layout(write(tmp_path, numbers), dtype)
    loading = Loading(spec, wanted, torch.device("cpu"), learn_processor())
    progress = list(loading)
    gate_up, down = (matrices_of(loading.linears[p.name]) for p in wanted)
    assert len(gate_up) == len(down) == MINE.size
    for index, expert in enumerate(range(*MINE)):
        assert (type(gate_up[index]), type(down[index])) == held
        both = np.concatenate((numbers["gate"][expert], numbers["up"][expert]))
        for known, linear in ((both, gate_up[index]), (numbers["down"][expert], down[index])):
            found = numbers_of(linear)
            assert found.shape == known.shape
            assert np.abs(found - known).max() <= tolerance * np.abs(known).max()
    assert loading.nbytes == sum(p.nbytes for p in wanted) == held_bytes(gate_up + down)
    forms = {role: spec.tensors[f"layers.0.experts_{role}"].format for role in ROLES}
    read = sum(FORMATS[forms[role]].nbytes(*size) for role, size in SIZES.items())
    assert progress[-1].done == progress[-1].total == MINE.size * read


def held_bytes(matrices: tuple[Linear, ...]) -> int:
    """Bytes of all tensors of these matrices."""
    parts = [p for m in matrices for p in (m.parts if isinstance(m, Stacked) else (m,))]
    tensors = [t for part in parts for t in vars(part).values() if isinstance(t, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("write", [fused, transposed, apart])
def test_any_window_is_read(write: Write, tmp_path: Path) -> None:
    numbers = random()
    tensors = write(tmp_path, numbers)
    for role, (height, width) in SIZES.items():
        known = numbers[role].reshape(-1, width)
        for rows in (Span(2 * height, 2 * height + 1), Span(3 * height - 5, 5 * height)):
            for columns in (Span(0, width), Span(3, 40)):
                with opened(tensors[role]) as tensor:
                    found = tensor.read(rows, columns).contiguous().view(torch.float32).numpy()
                assert (found == known[slice(*rows), slice(*columns)]).all()


def test_streamed_experts_are_computed_with_where_they_lie(tmp_path: Path) -> None:
    numbers = random()
    spec, wanted = layout(stacked(gate="Q8_0", up="Q8_0", down="Q8_0")(tmp_path, numbers))
    loading = Loading(spec, wanted, torch.device("cpu"), learn_processor(), Span(0, 1))
    list(loading)
    loading.stream.wait(0)
    for index, expert in enumerate(range(*MINE)):
        down = numbers_of(matrices_of(loading.linears[wanted[1].name])[index])
        known = numbers["down"][expert]
        assert np.abs(down - known).max() <= 1e-2 * np.abs(known).max()
