"""A Hugging Face folder by path: a small random llama against the library that wrote it.

Untied head, llama3 rotary scaling, more ranks than KV heads: what the starter model does not have.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from engines import running
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from local_tp.core import Goal, Row, Sampling, Split, Step

PROMPT = tuple(range(3, 60))
TOKENS = 16


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as stored in one of two types."""
    path = tmp_path_factory.mktemp("llama") / request.param
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.2,
        eos_token_id=1,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )
    LlamaForCausalLM(config).to(getattr(torch, request.param)).save_pretrained(path)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def model(folder: Path) -> LlamaForCausalLM:
    """The reference, in float32 from the same files."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize(
    ("split", "ranks"), [("single", 1), ("layer", 3), ("tensor", 3), ("hybrid", 3)]
)
def test_equals_transformers(
    folder: Path, model: LlamaForCausalLM, split: Split, ranks: int
) -> None:
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        expected = model(ids).logits[0, -1].numpy()
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    goal = Goal(split=split, dtype="float32", context=128, streams=2, chunk=20)
    with running(folder, ranks, goal) as (engine, crew):
        logits = []
        for start in range(0, len(PROMPT), goal.chunk):
            part = PROMPT[start : start + goal.chunk]
            row = Row(0, part, start, (3, 1), logits=True)
            (result,) = crew.run(Step(0, (row,)))
            logits.append(numpy.frombuffer(result.logits, "<f4"))
        assert numpy.abs(logits[-1] - expected).max() <= 1e-4 * numpy.abs(expected).max()
        generation = engine.submit(PROMPT, Sampling(), max_tokens=TOKENS)
        assert list(generation.result().tokens) == out[0, len(PROMPT) :].tolist()
