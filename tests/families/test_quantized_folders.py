"""Quantized model folders by path: a small random llama against the library, with the numbers kept.

The reference has each method's own rounded numbers in float32; ours reads what was packed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch
from family_pool import RankPool
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from local_tp.core import Dtype, Goal, Row, Split, Step
from tests.quantized_folders import METHODS, write_quantized

PROMPT = tuple(range(3, 60))
CONFIG = {
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
}


def write(folder: Path, method: str) -> LlamaForCausalLM:
    """The folder, and the model of the numbers that it means."""
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).eval()
    values = {name: value.float().numpy() for name, value in model.state_dict().items()}
    config = json.loads(model.config.to_json_string())
    meant = write_quantized(folder, METHODS[method], config, values)
    model.load_state_dict({name: torch.tensor(value) for name, value in meant.items()})
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return model


def difference(
    pool: RankPool, folder: Path, model: LlamaForCausalLM, ranks: int, dtype: Dtype
) -> float:
    """Of the last logits after a prompt in chunks, the largest difference over the largest."""
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT])).logits[0, -1].numpy()
    split: Split = "single" if ranks == 1 else "tensor"
    goal = Goal(split=split, dtype=dtype, context=128, streams=1, chunk=40)
    with pool.reading(folder, ranks, goal) as (run, _):
        for start in range(0, len(PROMPT), goal.chunk):
            part = PROMPT[start : start + goal.chunk]
            row = Row(0, part, start, (0, 1), logits=True)
            (result,) = run(Step(start, (row,)))
    assert result.logits is not None
    found = numpy.frombuffer(result.logits, "<f4")
    return float(numpy.abs(found - expected).max() / numpy.abs(expected).max())


@pytest.mark.parametrize(
    "method",
    [
        *("awq-128", "gptq-4-v2", "gptq-8", "packed-4-zeros", "int-groups", "float-rows"),
        *("fp8-tensor", "fp4", "int8-rows"),
    ],
)
def test_equals_the_library(pool: RankPool, tmp_path: Path, method: str) -> None:
    """In float32, which every number of these formats fits in."""
    model = write(tmp_path / "m", method)
    assert difference(pool, tmp_path / "m", model, 1, "float32") <= 1e-4


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("method", ["awq-32", "gptq-4-act-order", "fp8-blocks", "nf4-nested"])
def test_on_any_number_of_ranks(pool: RankPool, tmp_path: Path, method: str, ranks: int) -> None:
    """In float32, and held as stored, where a product may be in bfloat16."""
    model = write(tmp_path / "m", method)
    assert difference(pool, tmp_path / "m", model, ranks, "float32") <= 1e-4
    assert difference(pool, tmp_path / "m", model, ranks, "auto") <= 4e-2
