"""A GGUF llama in every format, in real processes, against transformers in float32.

The reference gets the numbers that the `gguf` package reads. Weights held as stored are exact, so
the logits differ by the type that products are in: float32 to 1e-4 of the largest, bfloat16 by its
8 bits of every factor, through three layers.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from family_pool import RankPool
from load.tiny_models import (
    FOLDER_NAMES,
    HEAD,
    HEADS,
    KV_HEADS,
    LAYERS,
    VOCAB,
    Values,
    stored_name,
    write_gguf,
)
from transformers import LlamaConfig, LlamaForCausalLM

from local_tp.checkpoint.formats import FORMATS
from local_tp.core import Dtype, Goal, Row, Split, Step
from local_tp.model.dequantize.gguf import GGUF_TYPES

HIDDEN, FFN = 256, 1024
PROMPT = tuple(range(3, 53))
MIXED = {"v": "Q6_K", "down": "Q6_K", "embed": "Q6_K", "head": "Q6_K", "o": "F16"}
SINGLE: tuple[Split, int] = ("single", 1)
TENSOR: tuple[tuple[Split, int], ...] = (("tensor", 2), ("tensor", 3))


def write(path: Path, form: str, tied: bool = False) -> Values:
    base, changes = ("Q4_K", MIXED) if form == "Q4_K_M" else (form, {})
    return write_gguf(path, base, changes, hidden=HIDDEN, ffn=FFN, size=0.06, tied=tied)


def reference(values: Values) -> numpy.ndarray:
    """Logits of every position of the prompt, (tokens, vocab), by transformers."""
    tied = "head" not in values
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    weights = {}
    for canonical, numbers in values.items():
        if canonical not in ("head", "rope_factors"):
            layer, name = stored_name(FOLDER_NAMES, canonical)
            full = f"model.layers.{layer}.{name}" if layer else f"model.{name}"
            weights[full] = torch.from_numpy(numbers)
    weights["lm_head.weight"] = torch.from_numpy(values["embed" if tied else "head"])
    model.load_state_dict(weights)
    model.model.rotary_emb.inv_freq /= torch.from_numpy(values["rope_factors"])
    with torch.no_grad():
        return model(torch.tensor([PROMPT])).logits[0].numpy()


def logits(pool: RankPool, path: Path, dtype: Dtype, split: Split, ranks: int) -> numpy.ndarray:
    """Of the last token of two chunks and of single tokens after them, (rows, vocab)."""
    goal = Goal(split=split, dtype=dtype, context=64, streams=1, chunk=36)
    found, at = [], 0
    with pool.reading(path, ranks, goal) as (run, _):
        for tokens in (PROMPT[:36], PROMPT[36:46], *((token,) for token in PROMPT[46:])):
            row = Row(0, tokens, at, (1, 0), logits=True)
            (result,) = run(Step(at, (row,)))
            assert result.logits is not None
            found.append(numpy.frombuffer(result.logits, "<f4"))
            at += len(tokens)
    return numpy.stack(found)


def error(found: numpy.ndarray, values: Values) -> float:
    known = reference(values)[[35, 45, 46, 47, 48, 49]]
    assert found.shape == known.shape
    assert known.std() > 0.1
    return float(numpy.abs(found - known).max() / numpy.abs(known).max())


@pytest.mark.parametrize("form", sorted(GGUF_TYPES))
def test_in_float32_every_format_equals_transformers(
    pool: RankPool, form: str, tmp_path: Path
) -> None:
    values = write(tmp_path / "model.gguf", form)
    assert error(logits(pool, tmp_path / "model.gguf", "float32", *SINGLE), values) < 1e-4


@pytest.mark.parametrize("form", [*sorted(GGUF_TYPES), "Q4_K_M"])
def test_as_stored_every_format_is_as_good_as_its_products(
    pool: RankPool, form: str, tmp_path: Path
) -> None:
    values = write(tmp_path / "model.gguf", form)
    assert error(logits(pool, tmp_path / "model.gguf", "auto", *SINGLE), values) < 5e-2


@pytest.mark.parametrize(("split", "ranks"), [*TENSOR, ("layer", 2), ("hybrid", 3)])
@pytest.mark.parametrize("form", ["Q4_K_M", "Q5_K", "IQ4_XS"])
def test_splits_say_what_one_process_says(
    pool: RankPool, form: str, split: Split, ranks: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    values = write(path, form, tied=form == "Q5_K")
    assert error(logits(pool, path, "float32", split, ranks), values) < 1e-4
    assert error(logits(pool, path, "auto", split, ranks), values) < 5e-2


def test_a_tied_head_is_held_once_as_stored(pool: RankPool, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    values = write(path, "Q6_K", tied=True)
    assert error(logits(pool, path, "float32", *SINGLE), values) < 1e-4
    assert error(logits(pool, path, "auto", *SINGLE), values) < 5e-2


def test_the_processes_hold_the_bytes_of_the_file(pool: RankPool, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, "Q3_K")
    goal = Goal(split="tensor", context=64, streams=1)
    with pool.reading(path, 2, goal) as (_, plan):  # which holds what is planned
        held = [p.memory.weights for p in plan.placements]
    rows = 2 * VOCAB + LAYERS * (2 * FFN + HIDDEN + 256)
    matrices = FORMATS["Q3_K"].nbytes(rows, HIDDEN) + LAYERS * FORMATS["Q3_K"].nbytes(HIDDEN, FFN)
    twice = LAYERS * 2 * FORMATS["Q3_K"].nbytes(HIDDEN, 256)  # o, whose blocks the cut goes through
    vectors = 4 * (2 * (2 * LAYERS + 1) * HIDDEN + 2 * HEAD // 2)  # on both ranks
    assert sum(held) == matrices + twice + vectors
