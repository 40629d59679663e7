"""Every parameter of every rank is its part of the file's numbers, whatever the split."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import FOLDER_HEAD, HEAD, Values, expected, write_folder, write_gguf

from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.gguf_file import read_gguf
from local_tp.checkpoint.safetensors_folder import read_folder
from local_tp.core import EMPTY, Device, DeviceKind, Dtype, Goal, ModelSpec, Placement, Span, Split
from local_tp.load import loader
from local_tp.load.loader import Loading, Progress
from local_tp.model.blocks import Blocks, Stacked
from local_tp.model.linear import Dense, Int4, Int8, Linear
from local_tp.model.processor import Processor, learn_processor
from local_tp.model.streaming import ALIGNMENT
from local_tp.plan.layout import parameters
from local_tp.plan.planner import place

Model = tuple[ModelSpec, Values]
CPU = torch.device("cpu")
SPLITS: list[tuple[Split, int]] = [
    ("single", 1),
    ("layer", 2),
    ("tensor", 2),
    ("tensor", 3),
    ("tensor", 5),
    ("hybrid", 3),
]


@pytest.fixture(scope="module")
def processor() -> Processor:
    return learn_processor()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """Models by what their matrices are stored as, each written once."""
    folder = tmp_path_factory.mktemp("models")
    written: dict[str, Model] = {}

    def model(stored: str) -> Model:
        if stored not in written:
            written[stored] = write(folder, stored)
        return written[stored]

    return model


def write(folder: Path, stored: str) -> Model:
    path = folder / stored
    if stored.startswith("folder"):
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[stored[7:]]
        values = write_folder(path, dtype)
        return read_folder(path), values
    if stored == "mixed":
        values = write_gguf(path, "Q4_1", {"embed": "Q8_0", "v": "Q4_0", "down": "Q8_0"})
    elif stored == "Q4_K_M":  # formats of one fused parameter differ, and so do those of layers
        also = {"v": "Q6_K", "down": "Q6_K", "embed": "Q6_K", "head": "Q6_K", "o": "Q5_0"}
        values = write_gguf(path, "Q4_K", also, hidden=256, ffn=1024)
    elif FORMATS[stored].block_elements == 256:
        values = write_gguf(path, stored, hidden=256, ffn=1024)
    else:
        values = write_gguf(path, stored)
    return read_gguf(path)[0], values


def ranks_of(spec: ModelSpec, split: Split, ranks: int) -> tuple[Placement, ...]:
    return place(spec, [Device("cpu", "cpu", "processor", 0, 0)] * ranks, split, Goal())


def load(spec: ModelSpec, p: Placement, dtype: Dtype, processor: Processor) -> Loading:
    loading = Loading(spec, parameters(spec, p, dtype, "cpu"), CPU, processor)
    for _ in loading:
        pass
    return loading


def numbers(linear: Linear) -> np.ndarray:
    """A matrix as float32 numbers (rows, columns): exact if plain, else its product with one."""
    if isinstance(linear, Dense):
        return np.asarray(linear.weight.float().numpy())
    if isinstance(linear, Int8):
        return np.asarray(linear.rows(torch.arange(len(linear.codes))).numpy())
    if isinstance(linear, Stacked):
        return np.concatenate([numbers(part) for part in linear.parts])
    if isinstance(linear, Blocks):
        return np.asarray(linear.rows(torch.arange(linear.shape[0])).numpy())
    assert isinstance(linear, Int4)
    return np.asarray(linear(torch.eye(linear.shape[1])).float().T.numpy())


def difference(found: np.ndarray, known: np.ndarray) -> float:
    """The largest difference, of the largest number."""
    assert found.shape == known.shape
    return float(np.abs(found - known).max() / np.abs(known).max())


def head_dim(stored: str) -> int:
    return FOLDER_HEAD if stored.startswith("folder") else HEAD


# ----------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("block", [loader.BLOCK_ELEMENTS, 1 << 11])
@pytest.mark.parametrize(("split", "ranks"), SPLITS)
@pytest.mark.parametrize(
    "stored", ["Q4_0", "Q4_1", "Q8_0", "F16", "mixed", "Q4_K_M", "IQ4_XS", "folder F32"]
)
def test_in_32_bits_every_rank_holds_exactly_its_part(
    models: Callable[[str], Model],
    processor: Processor,
    monkeypatch: pytest.MonkeyPatch,
    stored: str,
    split: Split,
    ranks: int,
    block: int,
) -> None:
    monkeypatch.setattr(loader, "BLOCK_ELEMENTS", block)
    spec, values = models(stored)
    for p in ranks_of(spec, split, ranks):
        loading = load(spec, p, "float32", processor)
        known = expected(values, p, head_dim(stored))
        assert all(isinstance(linear, Dense) for linear in loading.linears.values())
        found = {name: numbers(linear) for name, linear in loading.linears.items()}
        found |= {name: vector.numpy() for name, vector in loading.vectors.items()}
        assert found.keys() == known.keys()
        for name, part in known.items():
            assert found[name].shape == part.shape, (p.rank, name)
            assert np.allclose(found[name], part, rtol=0, atol=1e-6), (p.rank, name)


@pytest.mark.parametrize(("split", "ranks"), SPLITS)
@pytest.mark.parametrize("stored", ["Q4_0", "Q4_1", "Q8_0", "mixed", "BF16", "folder BF16"])
def test_as_held_every_rank_holds_its_part_within_its_forms_rounding(
    models: Callable[[str], Model], processor: Processor, stored: str, split: Split, ranks: int
) -> None:
    """Plain 16-bit numbers come through exactly; quantized ones to a hundredth of the largest."""
    spec, values = models(stored)
    exact = stored in ("BF16", "folder BF16")
    for p in ranks_of(spec, split, ranks):
        loading = load(spec, p, "auto", processor)
        known = expected(values, p, head_dim(stored))
        assert loading.linears.keys() | loading.vectors.keys() == known.keys()
        for name, linear in loading.linears.items():
            off = difference(numbers(linear), known[name])
            assert off == 0 if exact else off < 1.2e-2, (p.rank, name)
        for name, vector in loading.vectors.items():
            assert vector.dtype == torch.float32
            assert np.array_equal(vector.numpy(), known[name])


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize(("split", "ranks"), SPLITS)
@pytest.mark.parametrize(
    "stored", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "Q4_K_M",
               "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"]
)  # fmt: skip
def test_as_stored_every_rank_holds_exactly_its_part(
    models: Callable[[str], Model],
    processor: Processor,
    stored: str,
    split: Split,
    ranks: int,
    kind: DeviceKind,
) -> None:
    """Not one number changes, also where a cut goes through blocks; 16 bits are few and said.

    The layout is a card's or the processor's; the bytes lie on the processor here.
    """
    spec, values = models(stored)
    blocks = 0
    for p in ranks_of(spec, split, ranks):
        layout = parameters(spec, p, "auto", kind)
        loading = Loading(spec, layout, CPU, processor)
        for _ in loading:
            pass
        known = expected(values, p, HEAD)
        for parameter in layout:
            if not parameter.stored:
                assert kind == "cpu" or parameter.vector or parameter.reason
                continue
            blocks += 1
            linear = loading.linears[parameter.name]
            assert np.array_equal(numbers(linear), known[parameter.name]), (p.rank, parameter)
            parts = linear.parts if isinstance(linear, Stacked) else [linear]
            assert sum(part.stored.numel() for part in parts) == parameter.nbytes
    assert blocks or (kind == "cpu" and stored not in ("Q2_K", "Q3_K", "MXFP4"))


@pytest.mark.parametrize("stored", ["F16", "Q4_1", "Q8_0", "mixed", "folder F32", "folder BF16"])
@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("tensor", 2), ("hybrid", 3)])
def test_eight_bits_are_made_from_whatever_is_stored(
    models: Callable[[str], Model], processor: Processor, stored: str, split: Split, ranks: int
) -> None:
    """Within half a step of each row's scale and that scale's 16 bits; plain where it cannot be."""
    spec, values = models(stored)
    forms: set[type[Linear]] = set()
    for p in ranks_of(spec, split, ranks):
        loading = load(spec, p, "int8", processor)
        known = expected(values, p, head_dim(stored))
        for name, linear in loading.linears.items():
            columns = known[name].shape[1]
            assert isinstance(linear, Dense if columns % 16 else Int8), (name, columns)
            forms.add(type(linear))
            largest = np.abs(known[name]).max(1, keepdims=True)
            off = np.abs(numbers(linear) - known[name])
            assert (off <= largest * (0.51 / 127 + 2**-8)).all(), (p.rank, name)
    assert Int8 in forms


@pytest.mark.parametrize("stored", ["mixed", "Q4_K_M"])
@pytest.mark.parametrize("dtype", ["auto", "float32", "int8"])
@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("layer", 2), ("tensor", 2)])
def test_streamed_layers_hold_the_same_numbers(
    models: Callable[[str], Model],
    processor: Processor,
    stored: str,
    dtype: Dtype,
    split: Split,
    ranks: int,
) -> None:
    """Each layer after its copy has arrived, in every step; what is not streamed stays."""
    spec, _ = models(stored)
    for p in ranks_of(spec, split, ranks):
        known = {name: numbers(m) for name, m in load(spec, p, dtype, processor).linears.items()}
        layout = parameters(spec, p, dtype, "cpu")
        loading = Loading(spec, layout, CPU, processor, p.layers, p.layers.start)
        for _ in loading:
            pass
        assert loading.linears.keys() == known.keys()
        for _ in range(2):
            for at in range(p.layers.size):
                loading.stream.wait(at)
                mine = f"layers.{p.layers.start + at}."
                for name, linear in loading.linears.items():
                    if name.startswith(mine) or "." not in name:
                        assert np.array_equal(numbers(linear), known[name]), (p.rank, name)
                loading.stream.release(at)
        whole = sum(parameter.nbytes for parameter in layout)
        aligned = whole + 2 * 8 * ALIGNMENT  # at most, of two layers with up to eight tensors each
        assert loading.nbytes < (whole if p.layers.size > 2 else aligned)


def test_each_form_is_met(models: Callable[[str], Model], processor: Processor) -> None:
    """The tests above would prove little if the small models never came to be held in 4 bits."""
    spec, _ = models("mixed")
    whole, third = (ranks_of(spec, "tensor", ranks)[-1] for ranks in (1, 3))
    loading = load(spec, whole, "auto", processor)
    forms = {name: type(linear) for name, linear in loading.linears.items()}
    assert forms["layers.0.qkv"] is forms["layers.2.gate_up"] is Int4
    assert forms["embed"] is forms["layers.1.down"] is Int8
    cut = load(spec, third, "auto", processor).linears
    assert type(cut["layers.0.qkv"]) is Int8
    plain = load(spec, third, "bfloat16", processor).linears
    assert type(plain["layers.0.qkv"]) is Dense


def test_an_uneven_cut_reads_whole_blocks_and_keeps_its_own_columns(
    models: Callable[[str], Model], processor: Processor
) -> None:
    spec, values = models("Q4_0")
    (whole,) = ranks_of(spec, "single", 1)
    for ffn in (Span(0, 40), Span(40, 130), Span(250, 256)):
        p = _with(whole, ffn)
        found = numbers(load(spec, p, "float32", processor).linears["layers.1.down"])
        assert np.allclose(found, values["layers.1.down"][:, slice(*ffn)], atol=1e-6)


def _with(p: Placement, ffn: Span) -> Placement:
    return Placement(p.rank, p.device, p.stage, p.layers, p.query_heads, p.kv_heads, ffn, p.vocab)


# ---------------------------------------------------------------------------------- progress


@pytest.mark.parametrize(("split", "ranks"), SPLITS)
def test_progress_rises_to_its_total(
    models: Callable[[str], Model],
    processor: Processor,
    monkeypatch: pytest.MonkeyPatch,
    split: Split,
    ranks: int,
) -> None:
    monkeypatch.setattr(loader, "BLOCK_ELEMENTS", 1 << 11)
    spec, _ = models("mixed")
    for p in ranks_of(spec, split, ranks):
        seen = list(Loading(spec, parameters(spec, p, "auto", "cpu"), CPU, processor))
        assert all(before.done < after.done for before, after in pairwise(seen))
        assert {step.total for step in seen} == {seen[-1].done}
        assert len(seen) > len(spec.tensors) / 2


def test_one_rank_reads_every_stored_byte_once(
    models: Callable[[str], Model], processor: Processor
) -> None:
    spec, _ = models("mixed")
    (p,) = ranks_of(spec, "single", 1)
    *_, last = Loading(spec, parameters(spec, p, "auto", "cpu"), CPU, processor)
    stored = sum(info.nbytes for info in spec.tensors.values())
    assert last == Progress(stored, stored)


def test_two_ranks_read_half_each(models: Callable[[str], Model], processor: Processor) -> None:
    spec, _ = models("Q4_1")
    whole = sum(i.nbytes for i in spec.tensors.values() if len(i.shape) == 2)
    vectors = sum(i.nbytes for i in spec.tensors.values() if len(i.shape) == 1)
    totals = []
    for p in ranks_of(spec, "tensor", 2):
        *_, last = Loading(spec, parameters(spec, p, "auto", "cpu"), CPU, processor)
        totals.append(last.total - vectors)
    assert sum(totals) == whole
    assert totals[0] == pytest.approx(whole / 2, rel=0.05)


def test_loading_can_be_stopped_between_blocks(
    models: Callable[[str], Model], processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "BLOCK_ELEMENTS", 1 << 11)
    spec, _ = models("Q8_0")
    (p,) = ranks_of(spec, "single", 1)
    steps = iter(Loading(spec, parameters(spec, p, "auto", "cpu"), CPU, processor))
    first = next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert 0 < first.done < first.total / 10
    assert next(steps, None) is None


def test_a_rank_with_nothing_but_norms_loads_them(
    models: Callable[[str], Model], processor: Processor
) -> None:
    spec, values = models("Q8_0")
    idle = Placement(1, "cpu", 0, Span(0, 3), EMPTY, EMPTY, EMPTY, EMPTY)
    loading = load(spec, idle, "auto", processor)
    assert loading.linears == {}
    assert loading.vectors.keys() == {"norm", "rope_factors"}
    assert np.array_equal(loading.vectors["norm"].numpy(), values["norm"])
