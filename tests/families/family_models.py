"""Small random models written by transformers, and what transformers makes of two texts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

VOCAB = 72
# What every family's config takes: heads larger than hidden / heads, groups of four.
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LENGTHS = (45, 21)  # of the two texts


@dataclass(frozen=True)
class Reference:
    """A model in memory and on disk, two texts, and logits (places, vocab) of each."""

    model: PreTrainedModel
    folder: Path
    texts: tuple[tuple[int, ...], ...]
    logits: tuple[Tensor, ...]


def write_model(
    config: PretrainedConfig,
    folder: Path,
    auto: type = AutoModelForCausalLM,
    prepare: Callable[[PreTrainedModel], None] = lambda model: None,
) -> Reference:
    """A model of `config` with weights large enough for logits that differ.

    `prepare` gets to change the model that the reference comes from, once it is written.
    """
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    model = auto.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    randomize(model)
    model.save_pretrained(folder)
    prepare(model)
    texts = tuple(tuple(torch.randint(3, VOCAB, (n,)).tolist()) for n in LENGTHS)
    with torch.no_grad():
        logits = tuple(model(torch.tensor([text])).logits[0].float() for text in texts)
    return Reference(model, folder, texts, logits)


@torch.no_grad()
def randomize(model: torch.nn.Module) -> None:
    """Matrices that keep the size of what they multiply; vectors away from their start."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.3)
        elif "embed" in name:
            parameter.copy_(torch.randn_like(parameter))
        else:
            parameter.copy_(torch.randn_like(parameter) * 1.5 / parameter.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if "correction" in name:
            buffer.copy_(torch.randn_like(buffer) * 0.3)
