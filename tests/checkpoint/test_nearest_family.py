"""A family without a row is refused by name, with the nearest that has one and what differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoints import gguf_values, write_gguf

from local_tp.checkpoint.families import gguf_family
from local_tp.checkpoint.read import read
from local_tp.errors import CheckpointError


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        read(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_gguf_file(tmp_path: Path) -> None:
    values = gguf_values() | {
        f"blk.{layer}.{name}.weight": np.zeros(32, np.float32)
        for layer in (0, 1)
        for name in ("ffn_sub_norm", "attn_sub_norm", "ffn_up_scale", "ffn_z")
    }
    path = write_gguf(tmp_path / "tiny.gguf", {"general.architecture": "llamb"}, values=values)
    assert refusal(path) == (
        f"{path} is of the family 'llamb', which is not supported yet: the nearest that is "
        "supported is llama, which has no 'blk.{i}.attn_sub_norm.weight', "
        "'blk.{i}.ffn_sub_norm.weight', 'blk.{i}.ffn_up_scale.weight' and 1 more; choose a model "
        "of one of the families in docs/models.md"
    )


def test_a_folder_whose_tensors_are_those_of_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen9"}')
    names = ("model.embed_tokens.weight", "model.layers.11.self_attn.q_proj.weight")
    save_file({name: torch.zeros(1) for name in names}, tmp_path / "model.safetensors")
    said = refusal(tmp_path)
    assert "family 'qwen9', which is not supported yet: the nearest that is supported is q" in said
    assert "which has no" not in said
    save_file({"model.layers.3.self_attn.beta": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert ", which has no 'model.layers.{i}.self_attn.beta'; choose" in refusal(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mistrall"}')
    assert "the nearest that is supported is mistral; choose" in refusal(tmp_path)


def test_a_name_like_no_other(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'zzz', .*: choose a model of the family llama or"):
        gguf_family("file", "zzz")
